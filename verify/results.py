"""Certify one answer of the algebra: right at all positions, or the first index where it is wrong.

``certify(op, inputs, output)`` takes what the operation means (:mod:`verify.goals`) and has :mod:`verify.reads` decide
it, at any size and with symbolic strides.  No algorithm of the operation is called.  A refusal is an output too: see
:mod:`verify.refusals`.

>>> from layoutalg import TileLayout
>>> layout = TileLayout.parse("S[(2,2,4):(100,10,1)]")
>>> print(certify_slice(layout, (16,), ((6, 10),), layout.slice((16,), ((6, 10),))))
Proved
>>> print(certify_slice(layout, (16,), ((6, 10),), TileLayout.parse("S[(2,2):(8,1)] + 12")).counterexample["index"])
2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from layoutalg.errors import LayoutError, NotExpressibleError
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout
from verify.goals import GOALS, Goal
from verify.reads import Claim, Symbolic, decide
from verify.refusals import certify_refusal
from verify.sides import Side, add_places, difference_of_sets
from verify.solve import BUDGET
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["certify", "certify_slice", "prove_equivalent"]


def certify(op: str, inputs: Sequence[Any], output: Any, *, budget: int = BUDGET, **options: Any) -> Verdict:
    """Prove that an output is right, for all positions, or name the first index where it is wrong.

    Args:
        op: the method or function: ``"slice"``, ``"group"``, ``"tile"``, ``"compose"``, ...
        inputs: the layout it was called on, then its positional arguments.
        output: what it returned, or the NotExpressibleError that it raised.
        budget: resource limit of each of the solver's checks.
        options: its keyword arguments.

    Raises:
        LayoutError: the operation is not known, or the inputs are no valid request.

    >>> from layoutalg import TileLayout
    >>> tile = TileLayout.parse("S[32:1]")
    >>> print(certify("group", [tile, (4, 8)], tile.group((4, 8))))
    Proved
    >>> certify("unpack", [tile, 2], TileLayout.parse("S[64:2]")).counterexample
    {'k': 0, 'j': 1, 'index': 1}
    """
    if op not in GOALS:
        raise LayoutError(f"certify: no operation {op!r}; known: {', '.join(sorted(GOALS))}", op=op)
    scope = f"{op}({', '.join(map(str, [*inputs, *options.values()]))}) at all positions"
    if any(isinstance(x, SwizzledLayout) for x in (inputs[0], output)):
        return _swizzled(op, inputs, output, options, scope=scope, budget=budget)
    try:
        if isinstance(output, NotExpressibleError):
            return certify_refusal(op, GOALS[op], inputs, output, options=options, budget=budget)
        if isinstance(output, Exception):
            return Unknown(scope, f"{type(output).__name__} says that the request is wrong, which is no answer to it")
        return check_goal(GOALS[op](output, *inputs, **options), scope=scope, budget=budget)
    except Symbolic as reason:
        return Unknown(scope, str(reason))


def certify_slice(
    layout: TileLayout, shape: Sequence[Any], region: Sequence[Any], result: Any, *, budget: int = BUDGET
) -> Verdict:
    """Prove that ``result`` (a layout, or the refusal) is ``layout.slice(shape, region)``; see :func:`certify`.

    >>> big = TileLayout.parse("S[(1048576,1048576):(2097152,1)]")
    >>> box = ((1 << 19, (1 << 19) + (1 << 30)),)
    >>> print(certify_slice(big, (1 << 40,), box, big.slice((1 << 40,), box)))
    Proved
    """
    return certify("slice", [layout, shape, region], result, budget=budget)


def prove_equivalent(a: TileLayout, b: TileLayout, *, budget: int = BUDGET) -> Verdict:
    """Prove that two layouts put every index at the same set of places, or give the first index where they do not.

    >>> print(prove_equivalent(TileLayout.parse("S[4,8]"), TileLayout.parse("S[32:1]")))
    Proved
    >>> prove_equivalent(TileLayout.parse("S[4,8]"), TileLayout.parse("S[(4,8):(9,1)]")).counterexample
    {'n': 8, 'index': 8}
    """
    return certify("equivalent", [a], b, budget=budget)


def check_goal(goal: Goal, *, scope: str, budget: int = BUDGET) -> Verdict:
    """Decide a goal: its conditions, its sets of replicas, its places, its intervals.

    Raises:
        Symbolic: numbers that are not decided here.
    """
    for fact, holds in goal.facts.items():
        if not holds:
            return Refuted(scope, {"fails": fact})
    moved, odd = difference_of_sets(goal.left, goal.right)
    if odd is not None:
        return Refuted(scope, {"index": 0, **odd})
    rest = add_places(add_places(goal.left.offset, goal.right.offset, -1), moved)
    reads = (*goal.left.reads, *(_negated(read) for read in goal.right.reads))
    found = [decide(Claim(goal.ranges, goal.order, reads, rest), scope=scope, budget=budget)]
    if found[0].ok:
        found += [_inside(goal, *interval, scope=scope, budget=budget) for interval in goal.within]
    wrong = next((verdict for verdict in found if not verdict.ok), None)
    effort = sum(verdict.effort for verdict in found)
    return Proved(scope, effort) if wrong is None else replace(wrong, effort=effort)


def _negated(read: Any) -> Any:
    scale = {axis: (name, -factor) for axis, (name, factor) in read.scale.items()}
    return replace(read, scale=scale, factor=-read.factor)


def _inside(goal: Goal, side: Side, axis: str, first: int, end: int, *, scope: str, budget: int) -> Verdict:
    """Prove that all places of a side on an axis, replicas included, lie in [first, end)."""
    low, high = side.ends(axis)
    claim = Claim(goal.ranges, goal.order, tuple(side.reads), side.offset, within={axis: (first - low, end - high)})
    verdict = decide(claim, scope=scope, budget=budget)
    if isinstance(verdict, Refuted):
        return replace(verdict, counterexample={**verdict.counterexample, "leaves": f"{axis} in [{first}, {end})"})
    return verdict


# -- swizzled layouts ----------------------------------------------------------------------------------------------


def _swizzled(
    op: str, inputs: Sequence[Any], output: Any, options: Mapping[str, Any], *, scope: str, budget: int
) -> Verdict:
    """Under one swizzle the tiles decide: a bijection of addresses keeps equality and difference."""
    layout = inputs[0]
    if op not in ("slice", "group", "group_many", "regroup", "canonicalize", "equivalent", "permute", "broadcast"):
        return Unknown(scope, f"{op} of swizzled layouts is not certified")
    if not isinstance(layout, SwizzledLayout):
        return Unknown(scope, "a swizzled answer to a question about a plain layout is not certified")
    if isinstance(output, Exception):
        return certify(op, [layout.inner, *inputs[1:]], output, budget=budget, **options)
    first, others = (output[0], output[1:]) if isinstance(output, tuple) else (output, ())
    if not isinstance(first, SwizzledLayout) or first.swizzle != layout.swizzle:
        return Unknown(scope, "layouts under different swizzles are not compared")
    inner = (first.inner, *others) if others else first.inner
    return certify(op, [layout.inner, *inputs[1:]], inner, budget=budget, **options)
