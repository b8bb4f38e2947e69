"""Docstrings as the site shows them: examples become code blocks, roles become code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`")


class Doctests(griffe.Extension):
    """Fence every example of every docstring."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = shown(obj.docstring.value)


def shown(text: str) -> str:
    """Return a docstring with its examples fenced and its roles as code.

    >>> print(shown("See :func:`layoutalg.draw`.\\n\\n>>> 1 + 1\\n2"))
    See `layoutalg.draw`.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    paragraphs = [_fenced(part) for part in re.split(r"\n[ \t]*\n", text)]
    return _ROLE.sub(r"`\1`", "\n\n".join(paragraphs))


def _fenced(paragraph: str) -> str:
    if not paragraph.lstrip().startswith(">>> "):
        return paragraph
    margin = paragraph[: len(paragraph) - len(paragraph.lstrip())].lstrip("\n")
    return f"{margin}```pycon\n{paragraph.strip(chr(10))}\n{margin}```"
