"""Division, digits and flat indices: the lemmas that every other step uses.

The first five laws connect Div and Mod, about which the solver knows nothing, with division as Z3 and Python define
it.  Divisors are extents, at least 1, where Z3's Euclidean and Python's floor division agree.
"""

from __future__ import annotations

from typing import Any

from layoutalg.index import flatten, split
from verify.laws.core import Law
from verify.laws.step import Proof, World, step, steps_of

__all__ = ["LAWS"]

ALL = "all integers, all extents >= 1"


def _both_ways(v: Any) -> tuple[Any, Any]:
    return {divmod(v["q1"] * v["e"] + v["r1"], v["e"])}, {(v["q1"], v["r1"]), (v["q2"], v["r2"])}


@step(ALL, mutants={"remainder up to e": _both_ways})
def divmod_is_unique(w: World) -> Any:
    """n = q*e + r with 0 <= r < e in one way only."""
    e = w.extent("e")
    q1, r1, q2, r2 = (w.integer(name) for name in ("q1", "r1", "q2", "r2"))
    for r in (r1, r2):
        w.assume(w.all(r >= 0, r <= e if w.wrong else r < e))
    w.assume(q1 * e + r1 == q2 * e + r2)
    return w.all(q1 == q2, r1 == r2)


@step(ALL, mutants={"divisors of any sign": lambda v: (0 <= v["n"] % v["e"] < v["e"], True)})
def divmod_exists(w: World) -> Any:
    """Z3's quotient and remainder by e >= 1 are such a q and r (its own division, not Div and Mod)."""
    n = w.integer("n")
    e = w.integer("e") if w.wrong else w.extent("e")
    w.assume(e != 0)
    q, r = w.division(n, e)
    return w.all(n == q * e + r, r >= 0, r < e)


@step(ALL, mutants={"remainder up to e": lambda v: (divmod(v["q"] * v["e"] + v["r"], v["e"]), (v["q"], v["r"]))})
def lemma_divmod(w: World) -> Any:
    """The lemma instances about Div and Mod: e >= 1 and 0 <= r < e imply (q*e + r) div e = q, mod e = r.

    From existence and uniqueness, here with Z3's own division.
    """
    q, e = w.integer("q"), w.extent("e")
    r = w.integer("r") if w.wrong else w.digit("r", e)
    if w.wrong:
        w.assume(w.all(r >= 0, r <= e))
    n = q * e + r
    big, rest = w.division(n, e)
    w.assume(w.all(n == big * e + rest, rest >= 0, rest < e))  # divmod_exists
    if isinstance(w, Proof):  # divmod_is_unique
        w.assume(w.implies(w.all(n == big * e + rest, rest >= 0, rest < e, r >= 0, r < e), w.all(big == q, rest == r)))
    return w.all(big == q, rest == r)


@step(ALL, mutants={"digit up to e": lambda v: ((v["u"] * v["e"] + v["c"]) < v["f"] * v["e"], True)})
def lemma_range(w: World) -> Any:
    """0 <= u < f and 0 <= c < e imply 0 <= u*e + c < f*e."""
    f, e = w.extent("f"), w.extent("e")
    u = w.digit("u", f)
    c = w.digit("c", e + 1 if w.wrong else e)
    n = u * e + c
    return w.all(n >= 0, n < f * e)


@step(ALL, mutants={"extents from 0": lambda v: (v["a"] * v["b"] >= 1, True)})
def lemma_positive(w: World) -> Any:
    """Products of extents are extents."""
    a = w.digit("a", 4) if w.wrong else w.extent("a")
    b = w.extent("b")
    return a * b >= 1


@step(
    ALL,
    mutants={
        "taking the remainder first": lambda v: (
            split(v["n"], (9, v["f"], v["e"]))[1],
            v["n"] % (v["f"] * v["e"]) % v["f"],
        )
    },
)
def nested_division(w: World) -> Any:
    """n div e div f = n div fe, n mod fe mod e = n mod e and n mod fe div e = n div e mod f."""
    u, f, e = w.integer("u"), w.extent("f"), w.extent("e")
    n = w.digits(u, (w.digit("c", f), f), (w.digit("d", e), e))
    if w.wrong:
        named = w.integer("n")
        w.assume(named == n)
        return (n % (f * e)) % f == (n // e) % f
    return w.all(n // e // f == n // (f * e), (n % (f * e)) % e == n % e, (n % (f * e)) // e == (n // e) % f)


def _both_by_f(v: Any) -> tuple[Any, Any]:
    n, f, e = v["n"], v["f"], v["e"]
    return n, flatten((n // f // f, n // f % f, n % f), (1, f, e))


@step(ALL, mutants={"both digits of one extent": _both_by_f})
def digits_cover_all(w: World) -> Any:
    """Every index is generated: n = ((n div e div f)*f + (n div e) mod f)*e + n mod e, each digit in its range.

    So a law about generated indices is a law about all indices.
    """
    n, f, e = w.integer("n"), w.extent("f"), w.extent("e")
    first = f if w.wrong else e
    q, d = w.division(n, first)
    u, c = w.division(q, f)
    w.assume(w.all(n == q * first + d, d >= 0, d < first, q == u * f + c, c >= 0, c < f))  # divmod_exists, twice
    return w.all(n == (u * f + c) * e + d, c >= 0, c < f, d >= 0, d < e)


def _fastest_first(v: Any) -> tuple[Any, Any]:
    return flatten((v["u"], v["c"]), (v["U"], v["e"])), v["u"] + v["U"] * v["c"]


@step(ALL, mutants={"fastest first": lambda v: (split(_fastest_first(v)[1], (v["U"], v["e"])), (v["u"], v["c"]))})
def split_inverts_flatten(w: World) -> Any:
    """split(flatten(x)) = x for every coordinate of a shape, and the flat index is inside."""
    extents = [w.extent(name) for name in ("U", "f", "e")]
    x = [w.digit(name, e) for name, e in zip(("u", "b", "c"), extents, strict=True)]
    w.digits(x[0], (x[1], extents[1]), (x[2], extents[2]))
    w.know("range", x[0], extents[0], x[1], extents[1])
    w.know("positive", extents[0], extents[1])
    w.know("range", x[0] * extents[1] + x[1], extents[0] * extents[1], x[2], extents[2])
    flat = x[0] + extents[0] * (x[1] + extents[1] * x[2]) if w.wrong else flatten(x, extents)
    back = split(flat, extents)
    inside = w.all(flat >= 0, flat < extents[0] * extents[1] * extents[2])
    return w.all(inside, *(a == b for a, b in zip(back, x, strict=True)))


@step(
    ALL,
    mutants={"outermost digit left out": lambda v: (flatten(split(v["n"], (3, v["e"])), (3, v["e"])), v["n"] % v["e"])},
)
def flatten_inverts_split(w: World) -> Any:
    """flatten(split(n)) = n for every index, whatever the outermost extent."""
    f, e = w.extent("f"), w.extent("e")
    n = w.digits(w.integer("u"), (w.digit("c", f), f), (w.digit("d", e), e))
    back = split(n, (1, f, e))
    if w.wrong:
        named = w.integer("n")
        w.assume(named == n)
        back = (0, *back[1:])
    return flatten(back, (1, f, e)) == n


LAWS: tuple[Law, ...] = steps_of(__name__)
