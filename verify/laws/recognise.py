"""The recogniser: the innermost iter is the longest run from the start, and nothing is guessed.

The steps say why reading off the longest run is right and forced.  The recogniser itself reads numpy tables, so the
shipping code is tried on every small table of values rather than on unknowns.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from layoutalg.algebra import recognise
from layoutalg.axis import laneid, m
from layoutalg.errors import NotExpressibleError
from layoutalg.iters import vector_at
from verify.explore import Form, equal_to, holds
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Labelled, Patch, agreement, attempt, fails_first_at, family, no_layout
from verify.laws.step import World, places, step, steps_of

__all__ = ["LAWS"]

ALL = "all tables, strides and positions, all extents >= 1"


def _first_block(v: Any) -> tuple[Any, Any]:
    def table(n: int) -> int:
        return int((n // v["T_extent"]) * v["T_outer"] + (n % v["T_extent"]) * v["T_inner"])

    u, place = places([(v["e"], v["s"])], v["n"])
    return table(v["n"]), table(u * v["e"]) + place


@step(ALL, mutants={"only the first block looked at": _first_block})
def repeated_run(w: World) -> Any:
    """If T(u*e + d) = T(u*e) + d*s in every block, T is the map u -> T(u*e) of the block starts, then (e : s)."""
    e, s, u, values = w.extent("e"), w.integer("s"), w.integer("u"), w.map("T")
    d = w.digit("d", e)
    n = w.digits(u, (d, e))
    if w.wrong:
        named = w.integer("n")
        w.assume(w.all(named == n, w.implies(u == 0, values(n) == values(u * e) + d * s)))
    else:
        w.assume(values(n) == values(u * e) + d * s)
    top, place = w.values([(e, s)], n)
    return values(n) == values(top * e) + place


def _short_run(v: Any) -> tuple[Any, Any]:
    iters = [(v["f"], v["t"]), (v["e"], v["s"])]
    values = np.array([places(iters, n)[1] for n in range(v["f"] * v["e"])])
    found, _ = recognise.recognise_values({m: values})
    return found[-1].extent, v["e"]


@step(ALL, mutants={"neighbours that continue are allowed": _short_run})
def longest_run(w: World) -> Any:
    """In a canonical list the last iter (e : s) is exactly the longest run: T(d) = T(0) + d*s for d < e, not for d = e.

    The neighbour (f : t) has f >= 2 and does not continue it, t != e*s.
    """
    f, e, s, t = w.extent("f"), w.extent("e"), w.integer("s"), w.integer("t")
    d = w.digit("d", e)
    w.assume(f >= 2)
    if not w.wrong:
        w.assume(t != e * s)
    for q, extent, r in ((0, e, d), (1, e, 0), (0, f, 0), (0, f, 1)):
        w.know("divmod", q, extent, r)
    iters = [(f, t), (e, s)]
    inside, after = w.values(iters, d), w.values(iters, e)
    return w.all(inside[1] == d * s, after[1] != e * s)


# -- the shipping code ---------------------------------------------------------------------------------------------

Table = tuple[tuple[int, int], ...]


def _tables() -> Iterator[Table]:
    """Tables of (m, laneid) values: every one of values 0..2 up to 8 long on m, and 0..1 on two axes up to 6 long."""
    yield from _long_tables()
    low, high = -(1 << 63), (1 << 63) - 1
    yield from (((low, 0), (high, 0)), ((0, low), (0, 0), (0, high)), ((0, 0), (1 << 70, 0)))
    for size in (1, 2, 3, 4, 6, 8):
        for rest in product((0, 1, 2), repeat=size - 1):
            yield ((0, 0), *((x, 0) for x in rest))
    for size in (2, 4, 6):
        for pairs in product(product((0, 1), (0, 1)), repeat=size - 1):
            yield ((0, 0), *pairs)


def _long_tables() -> Iterator[Table]:
    """Longer than what is looked at first, with one value spoilt; and two whose last block is not whole."""
    for (e, s), (f, t) in (((2, 500), (65, 1)), ((65, 3), (2, 1)), ((2, 0), (64, 7)), ((5, 70), (26, 0))):
        values = [x * s + y * t for x in range(e) for y in range(f)]
        yield tuple((value, 0) for value in values)
        for n in (63, 64, 65, 66, 100, len(values) - 1):
            yield tuple((value + (k == n), 0) for k, value in enumerate(values))
    for text in ("0 1 0 1 0 1 0 1 10 11 10 11 11 11 10 11", "0 5 0 5 1 6 1 6 2 7 2 7 3 8 2 8"):
        yield tuple((int(value), 0) for value in text.split())


def _run(values: Table) -> Any:
    columns = {axis: np.array([x[k] for x in values]) for k, axis in enumerate((m, laneid))}
    return attempt(recognise.recognise_values, columns)


def _judge(values: Table, answer: Any) -> bool:
    wanted = [{"m": a, "laneid": b} for a, b in values]
    if isinstance(answer, NotExpressibleError):
        return holds(no_layout(wanted), {}) and answer.index == agreement(wanted)
    iters, offset = answer
    for n, value in enumerate(wanted):
        found = {axis.name: x for axis, x in vector_at(iters, n).items()}
        if any(found.get(a, 0) + offset.get({"m": m, "laneid": laneid}[a], 0) != x for a, x in value.items()):
            return False
    return True


_right_block = recognise._broken_block
_right_run = recognise._first_run


def _first_only(table: Any, length: int) -> Any:
    return _right_block({axis: column[: 2 * length] for axis, column in table.items()}, length)


def _run_of_two(table: Any, count: int, unit: int) -> Any:
    length, stride, axis = _right_run(table, count, unit)
    return (2 if length > 2 and count % 2 == 0 else length), stride, axis


class Unknowns(NamedTuple):
    """A table of this many values, all of them unknown, on these axes."""

    size: int
    axes: str


def _integer(value: Any) -> Any:
    return value if isinstance(value, Form) else int(value)


def _run_unknown(x: Any, member: Unknowns) -> Any:
    """Read a table of unknowns; the shipping code converts numpy's integers by ``int``, which keeps unknowns here."""
    names = {"m": m, "l": laneid}
    table = {}
    for letter in member.axes:
        column = np.empty(member.size, dtype=object)
        column[:] = [x.unknown(f"{letter}{n}") for n in range(member.size)]
        table[names[letter]] = column
    with mock.patch.object(recognise, "int", _integer, create=True):
        return table, recognise._read(table, member.size)


def _judge_unknown(member: Unknowns, answer: Any) -> Labelled:
    table, (iters, failure) = answer
    values = [{axis.name: column[n] for axis, column in table.items()} for n in range(member.size)]
    if failure is not None:
        yield {"refused at": failure[0]}, no_layout(values)
        yield {"not first": failure[0]}, fails_first_at(values, failure[0])
        return
    for n, value in enumerate(values):
        moved = {axis.name: y for axis, y in vector_at(iters, n).items()}
        yield {"index": n}, equal_to(value, {a: moved.get(a, 0) + values[0][a] for a in value})


def _one_axis(table: Any, count: int, unit: int) -> Any:
    """The first axis that moves is taken for the only one."""
    first = next((axis for axis, column in table.items() if column[1] != column[0]), m)
    return _right_run({first: table[first]} if first in table else table, count, unit)


def _families() -> Iterator[Law]:
    for name, scope, members, values, mutants in (
        (
            "tables_on_one_axis",
            "every table of up to 8 values on one axis; all values",
            [Unknowns(size, "m") for size in range(1, 9)],
            (0, 1, 2),
            {
                "only two blocks looked at": [Patch(_right_block, _first_only)],
                "the last failure named": [Patch(recognise._least, lambda a, b: max(a or b, b))],
            },
        ),
        (
            "tables_on_two_axes",
            "every table of 2 to 5 values on two axes; all values",
            [Unknowns(size, "ml") for size in range(2, 6)],
            (0, 1),
            {"one axis looked at": [Patch(_right_run, _one_axis)]},
        ),
    ):
        yield family(
            f"recognise.{name}",
            "The recogniser reads a layout with the values of the table, or no layout has them; it fails at the first "
            "index at which every layout fails that has the values before it.",
            scope=scope,
            members=members,
            run=_run_unknown,
            judge=_judge_unknown,
            mutants=mutants,
            values=values,
        )


LAWS: tuple[Law, ...] = (
    *steps_of(__name__),
    *_families(),
    exhaustive(
        "recognise.recognise_values",
        "recognise_values gives a layout with the values of the table, or no layout has them; the index of a refusal "
        "is the first that no layout of that size reaches.",
        scope="every table of values 0..2 up to 8 long, of values 0..1 on two axes up to 6 long; 33 large ones",
        members=_tables,
        run=_run,
        judge=_judge,
        mutants={
            "only two blocks looked at": [Patch(_right_block, _first_only)],
            "runs of two preferred": [Patch(_right_run, _run_of_two)],
        },
    ),
)
