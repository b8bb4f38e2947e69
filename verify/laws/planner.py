"""Theorems that the permute planner rests on: subspaces of index bits over GF(2), and edge colouring.

A subspace K is a predicate on 64-bit vectors of which only closure is known: x, y in K imply x ^ y in K, for the
finitely many vectors that a proof mentions.  So the laws hold in every dimension and for all subspaces.

* Two kernels: while K1 + W and K2 + W are proper, some vector avoids both (``vector_outside_two``); adding it to W
  keeps W independent of K1 and of K2 (``extension``) and raises both ranks (``rank_step``).  By induction on the
  dimension of W, which is the hand part: kernels of one dimension have a common complement, and for unequal ones both
  phases reach their own bound, since a kernel that already fills the space with W asks for nothing more.
* Sub-word plans: W must also avoid U = S + D, the bits that move an element inside its source or its destination word.
  ``greedy_step`` says that the greedy choice never fails while the three spaces are proper: were they to cover
  everything, S in ker A + W and in U + W would lie in ker B + W too, and D in ker A + W; then U + W would lie in both
  others, so two proper subspaces would cover the space, which ``vector_outside_two`` excludes.  The three spaces are
  proper at every step if each of ker A, ker B and U leaves five dimensions, and no five lane bits avoid U where it does
  not (``dimension_condition``).
* Colouring: a bipartite multigraph needs no more colours than its largest degree.  Proved: a node with an uncoloured
  edge has a free colour (``free_colour``); the alternating path from one end of the edge never reaches the other
  (``path_sides``); exchanging the two colours along it keeps the colouring proper and frees the colour at both ends
  (``exchange``).  Hand part: the induction over edges, and that an alternating path ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, product
from operator import xor
from typing import Any

import z3

from layoutalg.subspaces import Span, contains
from verify.laws.core import Law, Mutant, Replay, Settings
from verify.solve import prove
from verify.verdict import Proved, Refuted, Verdict

__all__ = ["LAWS"]

#: Hypotheses and conclusion.
Sequent = tuple[list[Any], Any]
Statement = Callable[[str], Sequent]


def _vectors(names: str) -> list[Any]:
    return [z3.BitVec(name, 64) for name in names]


def _sums(vectors: Sequence[Any]) -> list[Any]:
    """Return the sum of every non-empty set of vectors."""
    return [reduce(xor, chosen) for k in range(1, len(vectors) + 1) for chosen in combinations(vectors, k)]


def _subspace(name: str, vectors: Sequence[Any]) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return a predicate and its closure on the sums of the vectors."""
    function = z3.Function(name, z3.BitVecSort(64), z3.BoolSort())

    def member(x: Any) -> Any:
        return function(z3.simplify(x))

    sums = _sums(vectors)
    closure = [z3.Implies(z3.And(member(x), member(y)), member(x ^ y)) for x, y in combinations(sums, 2)]
    return member, [*closure, member(z3.BitVecVal(0, 64))]


def vector_outside_two(wrong: str) -> Sequent:
    """For a outside K1 and b outside K2, one of a, b, a ^ b is outside both: two proper subspaces never cover."""
    a, b = _vectors("ab")
    (first, close1), (second, close2) = _subspace("K1", [a, b]), _subspace("K2", [a, b])
    choices = [a, b] if wrong else [a, b, a ^ b]
    found = z3.Or(*(z3.And(z3.Not(first(x)), z3.Not(second(x))) for x in choices))
    return [*close1, *close2, z3.Not(first(a)), z3.Not(second(b))], found


def extension(wrong: str) -> Sequent:
    """A vector v outside K + W keeps W + v independent of K: w ^ v is in K for no w in W."""
    v, w = _vectors("vw")
    kernel, close1 = _subspace("K", [v, w])
    total, close2 = _subspace("K_plus_W", [v, w])
    members = [z3.Implies(kernel(x), total(x)) for x in (v, w, v ^ w)]
    outside = z3.Not(kernel(v)) if wrong else z3.Not(total(v))
    return [*close1, *close2, *members, total(w), outside], z3.Not(kernel(w ^ v))


def rank_step(wrong: str) -> Sequent:
    """For linear A with kernel K, v outside K + W has an image outside A(W): the rank of A on W grows by one."""
    v, w = _vectors("vw")
    image = z3.Function("A", z3.BitVecSort(64), z3.BitVecSort(64))
    space, close = _subspace("K_plus_W", [v, w])
    linear = image(v ^ w) == image(v) ^ image(w)
    kernel = z3.Implies(image(v ^ w) == 0, space(v ^ w))
    outside = z3.BoolVal(True) if wrong else z3.Not(space(v))
    return [*close, linear, kernel, space(w), v != w, outside], image(v) != image(w)


def greedy_step(wrong: str) -> Sequent:
    """Were X = ker A + W, Y = ker B + W, Z = U + W proper and together everything, what X and Z share would be in Y.

    Applied to S (in ker A and U) and, with A and B exchanged, to D: so Z would lie in X and Y, and two would cover.
    """
    vectors = _vectors("abcs")
    spaces = [_subspace(name, vectors) for name in ("X", "Y", "Z")]
    given = [fact for _, closure in spaces for fact in closure]
    given += [z3.Not(member(x)) for (member, _), x in zip(spaces, vectors, strict=False)]
    given += [z3.Or(*(member(x) for member, _ in spaces)) for x in _sums(vectors)]
    s = vectors[3]
    (in_x, _), (in_y, _), (in_z, _) = spaces
    given.append(in_x(s))
    if not wrong:
        given.append(in_z(s))
    return given, in_y(s)


def dimension_condition(wrong: str) -> Sequent:
    """If n - 5 >= dim U, U + W is proper while dim W < 5; if dim W = 5 and U and W share 0 alone, n - 5 >= dim U.

    U is any of ker A, ker B and S + D.  Dimensions of sums and intersections add up, and none exceeds n.
    """
    n, u, w, total, shared = (z3.Int(name) for name in ("n", "u", "w", "total", "shared"))
    given = [shared >= 0, shared <= u, shared <= w, total == u + w - shared, total <= n]
    room = n - 4 >= u if wrong else n - 5 >= u
    return given, z3.And(z3.Implies(z3.And(room, w < 5), total < n), z3.Implies(z3.And(w == 5, shared == 0), room))


_COLOURS = 32


def free_colour(wrong: str) -> Sequent:
    """A node of degree at most 32 = the number of colours, one of whose edges is uncoloured, has a colour to spare."""
    used = [z3.Bool(f"used{c}") for c in range(_COLOURS)]
    coloured, degree = z3.Int("coloured"), z3.Int("degree")
    given = [degree <= _COLOURS, coloured <= degree if wrong else coloured < degree]
    given.append(z3.Sum([z3.If(u, 1, 0) for u in used]) <= coloured)  # every used colour has an edge of its own
    return given, z3.Or(*(z3.Not(u) for u in used))


def path_sides(wrong: str) -> Sequent:
    """The path of colours a, b, a, ... from a right node enters left nodes by a alone: not one where a is free.

    Invariant: the node reached is on the left exactly when the edge that reached it has colour a.
    """
    left, by_a, next_left, next_by_a = (z3.Bool(name) for name in ("left", "by_a", "next_left", "next_by_a"))
    given = [left == by_a, next_by_a == z3.Not(by_a)]  # colours alternate
    if not wrong:
        given.append(next_left == z3.Not(left))  # edges join the sides
    return given, next_left == next_by_a


def exchange(wrong: str) -> Sequent:
    """Exchanging a and b on every edge of the path keeps any two edges at a node apart, and moves the free colour.

    At a node either all its edges of colours a and b are on the path or none, save that a path may end there.
    """
    e, f, a, b = (z3.Int(name) for name in ("e", "f", "a", "b"))
    e_on, f_on = z3.Bool("e_on"), z3.Bool("f_on")

    def after(colour: Any, on: Any) -> Any:
        return z3.If(z3.And(on, colour == a), b, z3.If(z3.And(on, colour == b), a, colour))

    two = [z3.Or(e == a, e == b), z3.Or(f == a, f == b)]
    given = [a != b, e != f]
    if not wrong:
        given.append(z3.Implies(z3.And(*two), e_on == f_on))
    # A node whose colour b was free and whose a is on the path has a free now.
    freed = z3.Implies(z3.And(e != b, f != b, z3.Implies(e == a, e_on), z3.Implies(f == a, f_on)),
                       z3.And(after(e, e_on) != a, after(f, f_on) != a))  # fmt: skip
    return given, z3.And(after(e, e_on) != after(f, f_on), freed)


# -- small members and replays -------------------------------------------------------------------------------------


def _spaces(bits: int, generators: int) -> list[Span]:
    """Every subspace of GF(2)^bits with at most so many generators."""
    found: dict[frozenset[int], Span] = {}
    for vectors in product(range(1 << bits), repeat=generators):
        span = Span(vectors)
        members = frozenset(x for x in range(1 << bits) if span.reduce(x) == 0)
        found.setdefault(members, span)
    return list(found.values())


def _two_spaces() -> Verdict:
    count = 0
    for bits in (1, 2, 3):
        whole = range(1 << bits)
        proper = [s for s in _spaces(bits, bits) if len(s.basis) < bits]
        for first, second in product(proper, repeat=2):
            count += 1
            if not any(first.reduce(x) and second.reduce(x) for x in whole):
                return Refuted("small spaces", {"first": first.basis, "second": second.basis})
    return Proved(f"{count} members evaluated")


def _complements() -> Verdict:
    """For every pair of subspaces of GF(2)^3: the greedy W meets neither and raises both ranks to their bounds."""
    count = 0
    for first, second in product(_spaces(3, 3), repeat=2):
        count += 1
        w = Span()
        ranks = [3 - len(s.basis) for s in (first, second)]
        for size in range(max(ranks)):
            totals = [Span([*s.basis, *w.basis]) for s, r in zip((first, second), ranks, strict=True) if size < r]
            v = next((x for x in range(8) if all(t.reduce(x) for t in totals)), None)
            if v is None:
                return Refuted("GF(2)^3", {"first": first.basis, "second": second.basis, "W": w.basis})
            w.add(v)
        reached = [len(Span([*s.basis, *w.basis]).basis) for s in (first, second)]
        if reached != [3, 3]:
            return Refuted("GF(2)^3", {"first": first.basis, "second": second.basis, "W": w.basis})
    return Proved(f"{count} members evaluated")


def _greedy_never_fails() -> Verdict:
    """In GF(2)^4, for kernels and words of one and two dimensions: three proper spaces of this kind never cover."""
    count = 0
    lines = [Span([x]) for x in range(1, 16)]
    planes = [s for s in _spaces(4, 2) if len(s.basis) == 2]
    for a, b in product(planes[::9], planes[::5]):
        for s, d in product([x for x in range(1, 16) if not a.reduce(x)], [x for x in range(1, 16) if not b.reduce(x)]):
            for w in [Span(), *lines[::4]]:
                three = [Span([*a.basis, *w.basis]), Span([*b.basis, *w.basis]), Span([s, d, *w.basis])]
                if any(len(t.basis) == 4 for t in three):
                    continue
                count += 1
                if not any(all(t.reduce(x) for t in three) for x in range(16)):
                    return Refuted("GF(2)^4", {"A": a.basis, "B": b.basis, "S": s, "D": d, "W": w.basis})
    return Proved(f"{count} members evaluated")


def _five_steps() -> Verdict:
    """In GF(2)^6: five vectors can be found beside every line, and every space of five dimensions meets every plane."""
    count = 0
    for line in range(1, 64):
        total = Span([line])
        for _ in range(5):
            total.add(next(x for x in range(64) if total.reduce(x)))
        count += 1
        if len(total.basis) != 6:
            return Refuted("GF(2)^6", {"U": [line], "U_plus_W": total.basis})
    for a, b in combinations(range(1, 64), 2):
        for normal in range(1, 64):
            count += 1
            if all((normal & x).bit_count() % 2 for x in (a, b, a ^ b)):
                return Refuted("GF(2)^6", {"U": [a, b], "normal": normal})
    return Proved(f"{count} members evaluated")


def _colourings() -> Verdict:
    """Bipartite multigraphs on 2 + 3 nodes, up to two parallel edges: colourable with the largest degree."""
    count = 0
    for weights in product((0, 1, 2), repeat=6):
        edges = [(u, v) for (u, v), k in zip(product(range(2), range(3)), weights, strict=True) for _ in range(k)]
        degrees = [sum(e[0] == u for e in edges) for u in range(2)] + [sum(e[1] == v for e in edges) for v in range(3)]
        count += 1
        if not _colourable(edges, max(degrees)):
            return Refuted("small graphs", {"edges": edges})
    return Proved(f"{count} members evaluated")


def _colourable(edges: list[tuple[int, int]], colours: int) -> bool:
    chosen: list[int] = []

    def search() -> bool:
        if len(chosen) == len(edges):
            return True
        u, v = edges[len(chosen)]
        for c in range(colours):
            if all(c != d or (e[0] != u and e[1] != v) for e, d in zip(edges, chosen, strict=False)):
                chosen.append(c)
                if search():
                    return True
                chosen.pop()
        return False

    return search()


def _replay_two(v: Mapping[str, Any]) -> tuple[Any, Any]:
    """K1 spanned by b and K2 by a: neither a nor b avoids both, their sum does."""
    a, b = int(v["a"]), int(v["b"])
    choices = [x for x in (a, b, a ^ b) if not contains([b], x) and not contains([a], x)]
    return choices, [x for x in choices if x in (a, b)]


def _replay_extension(v: Mapping[str, Any]) -> tuple[Any, Any]:
    """K spanned by v ^ w, W by w: v is outside K, yet (W + v) meets K."""
    x, w = int(v["v"]), int(v["w"])
    return contains([x ^ w], x), contains([w, x], x ^ w)


def _replay_rank(v: Mapping[str, Any]) -> tuple[Any, Any]:
    """v ^ w in the kernel: the images of v and w agree."""
    x, w = int(v["v"]), int(v["w"])
    kernel = Span([x ^ w])
    return kernel.reduce(x) == kernel.reduce(w), False


def _replay_cover(_v: Mapping[str, Any]) -> tuple[Any, Any]:
    """Three planes of GF(2)^2 ... lines through 1, 2 and 3 cover it: s = 1 lies in X alone."""
    spaces = [Span([x]) for x in (1, 2, 3)]
    covered = all(any(not s.reduce(x) for s in spaces) for x in range(4))
    return covered and spaces[1].reduce(1) != 0, False


def _replay_dimensions(v: Mapping[str, Any]) -> tuple[Any, Any]:
    """U of the first unit vectors and W of those that are left: the mistake says that some vector is outside both."""
    n, u, w = (int(v[name]) for name in ("n", "u", "w"))
    total = Span([1 << bit for bit in range(min(n, u + w))])
    return any(total.reduce(1 << bit) for bit in range(n)), n - 4 >= u


def _replay_free(_v: Mapping[str, Any]) -> tuple[Any, Any]:
    """Two parallel edges use up two colours: a third edge, beyond the degree, finds none."""
    return _colourable([(0, 0)] * 2, 2), _colourable([(0, 0)] * 3, 2)


def _replay_sides(_v: Mapping[str, Any]) -> tuple[Any, Any]:
    """A triangle, which is not bipartite, needs three colours, its degrees are two."""
    return 2, next(c for c in range(1, 5) if _proper([(0, 1), (1, 2), (2, 0)], c))


def _proper(edges: list[tuple[int, int]], colours: int) -> bool:
    return any(
        all(not set(e) & set(f) or c != d for (e, c), (f, d) in combinations(zip(edges, choice, strict=True), 2))
        for choice in product(range(colours), repeat=len(edges))
    )


def _replay_exchange(v: Mapping[str, Any]) -> tuple[Any, Any]:
    """Exchanging on one of two edges at a node gives both one colour."""
    e, f, a, b = (int(v.get(name, 0)) for name in ("e", "f", "a", "b"))
    swap = {a: b, b: a}
    after = [swap.get(c, c) if v.get(on) else c for c, on in ((e, "e_on"), (f, "f_on"))]
    return len({e, f}), len(set(after))


@dataclass(frozen=True, slots=True)
class _Written:
    statement: Statement

    def decide(self, wrong: str, settings: Settings, scope: str) -> Verdict:
        given, goal = self.statement(wrong)
        return prove(goal, given=given, scope=scope, budget=settings.budget, seed=settings.seed)


def _law(statement: Statement, scope: str, wrong: str, replay: Replay, evaluate: Callable[[], Verdict]) -> Law:
    written = _Written(statement)
    return Law(
        name=f"planner.{statement.__name__}",
        statement=" ".join((statement.__doc__ or "").split()),
        scope=scope,
        kind="step",
        check=lambda settings: written.decide("", settings, scope),
        mutants=(Mutant(wrong, lambda settings: written.decide(wrong, settings, scope), replay),),
        evaluate=evaluate,
    )


def _laws() -> Iterator[Law]:
    spaces, graphs = "all subspaces, every dimension up to 64", "every bipartite multigraph"
    yield _law(vector_outside_two, spaces, "a or b suffices", _replay_two, _two_spaces)
    yield _law(extension, spaces, "outside K suffices", _replay_extension, _complements)
    yield _law(rank_step, spaces, "v anywhere", _replay_rank, _complements)
    yield _law(greedy_step, spaces, "three arbitrary subspaces", _replay_cover, _greedy_never_fails)
    yield _law(dimension_condition, "all dimensions", "four dimensions suffice", _replay_dimensions, _five_steps)
    yield _law(free_colour, "32 colours", "every edge coloured", _replay_free, _colourings)
    yield _law(path_sides, graphs, "graphs that are not bipartite", _replay_sides, _colourings)
    yield _law(exchange, graphs, "a part of the path exchanged", _replay_exchange, _colourings)


LAWS: tuple[Law, ...] = tuple(_laws())
