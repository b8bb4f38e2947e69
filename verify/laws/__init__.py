"""The theorems of the library, one module per operation.

>>> len([law for law in all_laws() if law.group == "index"])
9
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import starmap
from typing import Any, Final

from verify.laws.core import Law

__all__ = ["GROUPS", "all_laws", "law_named"]

#: Modules of laws, in the order in which they build on each other.
GROUPS: Final = (
    "index",
    "index_arithmetic",
    "points",
    "canonical",
    "replica",
    "recognise",
    "grouping",
    "slicing",
    "slicing_numbers",
    "ragged",
    "permuting",
    "tiling",
    "summands",
    "packing",
    "sets",
    "axes",
    "image",
    "compose",
    "swizzle",
    "bits",
    "swizzled",
    "planner",
    "known",
)


@cache
def all_laws() -> tuple[Law, ...]:
    """Return every law, in the order of :data:`GROUPS`, with the mutants of :mod:`verify.laws.mistakes` as well."""
    written = [law for group in GROUPS for law in import_module(f"verify.laws.{group}").LAWS]
    mistakes = import_module("verify.laws.mistakes").MISTAKES
    return tuple(_with_mistakes(law, mistakes.get(law.name, {})) for law in written)


def _with_mistakes(law: Law, mistakes: Mapping[str, Sequence[Any]]) -> Law:
    if not mistakes or law.mutant_of is None:
        return law
    return replace(law, mutants=(*law.mutants, *starmap(law.mutant_of, mistakes.items())))


def law_named(name: str) -> Law:
    """Return the law of this name.

    Raises:
        KeyError: there is none.
    """
    return {law.name: law for law in all_laws()}[name]
