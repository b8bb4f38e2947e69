"""PTX text to tokens, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from verify.ptx.errors import PtxError

__all__ = ["Token", "tokens"]

_TOKEN = re.compile(
    r"""
    [ \t\r\f\v]*  # blanks go with what follows them
  (?: (?P<remark>//[^\n]*)
  | (?P<newline>\n)
  | (?P<comment>/\*.*?\*/)
  | (?P<number>0[fF][0-9a-fA-F]{8}(?!\w) | 0[dD][0-9a-fA-F]{16}(?!\w)
      | 0[xX][0-9a-fA-F]{1,32}U?(?!\w) | 0[bB][01]{1,128}U?(?!\w) | [0-9]{1,32}(?:U|\.[0-9]{1,4})?(?!\w))
  | (?P<directive>\.[A-Za-z_][\w]*(?:(?:::|\.)[A-Za-z]\w*)*)
  | (?P<word>[A-Za-z_$%][\w$]*(?:(?:\.|::)[\w$]+)*)
  | (?P<string>"[^"\n]*")
  | (?P<sign>[{}()\[\],;:|<>@!+\-=])
  | (?P<end>\Z)
  )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class Token(NamedTuple):
    """A token: ``kind`` is ``number``, ``directive``, ``word``, ``string``, ``sign`` or ``end``."""

    kind: str
    text: str
    line: int
    begin: int
    end: int


def tokens(text: str, *, file: str = "<ptx>") -> list[Token]:
    """Split a PTX text into tokens; comments and blanks are dropped.

    Raises:
        PtxError: a character that no token can contain.

    >>> [token.text for token in tokens("ld.shared.b32 %r1, [%r2+4]; // why")]
    ['ld.shared.b32', '%r1', ',', '[', '%r2', '+', '4', ']', ';']
    """
    return list(_scan(text, file))


def _scan(text: str, file: str) -> Iterator[Token]:
    line, position = 1, 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            character = text[position:].lstrip(" \t\r\f\v")[0]
            raise PtxError(f"unexpected character {character!r}", file=file, line=line)
        kind = found.lastgroup or ""
        position = found.end()
        if kind == "newline":
            line += 1
        elif kind == "comment":
            line += found[kind].count("\n")
        elif kind not in ("remark", "end"):
            yield Token(kind, found[kind], line, found.start(kind), position)
