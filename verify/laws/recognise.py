"""The recogniser: the innermost iter is the longest run from the start, and nothing is guessed.

The steps say why reading off the longest run is right and forced.  The recogniser itself reads numpy tables, so the
shipping code is tried on every small table of values rather than on unknowns.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from layoutalg.algebra import recognise
from layoutalg.axis import laneid, m
from layoutalg.errors import NotExpressibleError
from layoutalg.iters import vector_at
from verify.explore import holds
from verify.laws.core import Law
from verify.laws.exhaustive import exhaustive
from verify.laws.family import Patch, agreement, attempt, no_layout
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
    for size in (1, 2, 3, 4, 6, 8):
        for rest in product((0, 1, 2), repeat=size - 1):
            yield ((0, 0), *((x, 0) for x in rest))
    for size in (2, 4, 6):
        for pairs in product(product((0, 1), (0, 1)), repeat=size - 1):
            yield ((0, 0), *pairs)


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


LAWS: tuple[Law, ...] = (
    *steps_of(__name__),
    exhaustive(
        "recognise.recognise_values",
        "recognise_values gives a layout with the values of the table, or no layout has them; the index of a refusal "
        "is the first that no layout of that size reaches.",
        scope="every table of values 0..2 up to 8 long, and of values 0..1 on two axes up to 6 long",
        members=_tables,
        run=_run,
        judge=_judge,
        mutants={
            "only two blocks looked at": [Patch(_right_block, _first_only)],
            "runs of two preferred": [Patch(_right_run, _run_of_two)],
        },
    ),
)
