"""The rules by which generated index arithmetic is simplified, as laws about integers.

Whoever simplifies ``floor``, ``mod``, ``^`` and ``&`` of an index uses these and nothing else; each has the name under
which the simplifier lists it.  The laws about bits are proved on 32-bit vectors, the width of an index in C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import z3

from verify.laws.core import Law, Mutant, Settings, conjunction
from verify.laws.step import World, step, steps_of
from verify.solve import prove
from verify.verdict import Proved, Refuted, Verdict

__all__ = ["LAWS"]

ALL = "all integers, all divisors >= 1"
WORDS = "all 32-bit words"
_WIDTH: Final = 32


def _number(v: Mapping[str, Any]) -> int:
    return int(v["q"] * v["k"] + v["r"])


@step(
    ALL,
    mutants={
        "multiple not divided": lambda v: (
            (_number(v) + v["k"] * v["B"]) // v["k"],
            v["k"] * v["B"] + _number(v) // v["k"],
        )
    },
)
def multiple_leaves(w: World) -> Any:
    """(k*B + n) div k = B + n div k and (k*B + n) mod k = n mod k."""
    k, b, q = w.extent("k"), w.integer("B"), w.integer("q")
    r = w.digit("r", k)
    n = w.digits(q, (r, k))
    w.know("divmod", b + q, k, r)
    moved = n + b * k
    if w.wrong:
        return moved // k == b * k + n // k
    return w.all(moved // k == b + n // k, moved % k == n % k)


@step(ALL, mutants={"range up to k": lambda v: (v["r"] // v["k"], 0)})
def small_vanishes(w: World) -> Any:
    """0 <= r < k implies r div k = 0 and r mod k = r."""
    k = w.extent("k")
    r = w.digit("r", k + 1 if w.wrong else k)
    w.know("divmod", 0, k, r)
    return w.all(r // k == 0, r % k == r)


def _split(v: Mapping[str, Any]) -> tuple[int, int]:
    b = v["u"] * v["q"] + v["c"]
    return (v["g"] * b + v["r"]) // (v["g"] * v["q"]), b // v["q"]


@step(ALL, mutants={"small part up to 2g": _split})
def digit_splits(w: World) -> Any:
    """0 <= r < g implies (g*B + r) div gq = B div q and (g*B + r) mod gq = g*(B mod q) + r."""
    g, q = w.extent("g"), w.extent("q")
    u, c = w.integer("u"), w.digit("c", q)
    r = w.digit("r", g * 2 if w.wrong else g)
    b, n = w.digits(u, (c, q)), w.digits(u, (c, q), (r, g))
    return w.all(n // (q * g) == b // q, n % (q * g) == (b % q) * g + r)


def _forgotten(v: Mapping[str, Any]) -> tuple[int, int]:
    k, s, n = v["k"], v["p"] * v["k"] + v["s"], _number(v)
    a = s + k * v["t"]
    return (a + n - s) // k, a // k + (n - s) // k


@step(ALL, mutants={"residue forgotten": _forgotten})
def residue_is_enough(w: World) -> Any:
    """a = s (mod k) implies (a + r) div k = a div k - s div k + (s + r) div k and (a + r) mod k = (s + r) mod k."""
    k, t = w.extent("k"), w.integer("t")
    p, small = w.integer("p"), w.digit("s", k)
    q, d = w.integer("q"), w.digit("r", k)
    s, n = w.digits(p, (small, k)), w.digits(q, (d, k))  # n = s + r
    w.know("divmod", p + t, k, small)
    w.know("divmod", q + t, k, d)
    a, r = s + t * k, n - s
    if w.wrong:
        return (a + r) // k == a // k + r // k
    return w.all((a + r) // k == a // k - s // k + (s + r) // k, (a + r) % k == (s + r) % k)


def _digits(v: Mapping[str, Any]) -> int:
    return int((v["u"] * v["f"] + v["c"]) * v["e"] + v["d"])


@step(
    ALL,
    mutants={"divisors added": lambda v: (_digits(v) // v["e"] // v["f"], _digits(v) // (v["e"] + v["f"]))},
)
def quotients_nest(w: World) -> Any:
    """n div e div f = n div ef."""
    f, e = w.extent("f"), w.extent("e")
    n = w.digits(w.integer("u"), (w.digit("c", f), f), (w.digit("d", e), e))
    return n // e // f == n // (f + e if w.wrong else f * e)


@step(
    ALL,
    mutants={
        "any divisor": lambda v: (_digits(v) % (v["f"] * v["e"] + 1) % v["e"], _digits(v) % v["e"]),
    },
)
def remainders_nest(w: World) -> Any:
    """e divides m = fe implies n mod m mod e = n mod e."""
    f, e = w.extent("f"), w.extent("e")
    n = w.digits(w.integer("u"), (w.digit("c", f), f), (w.digit("d", e), e))
    return (n % (f * e + 1 if w.wrong else f * e)) % e == n % e


@step(ALL, mutants={"another divisor": lambda v: (_number(v), _number(v) // v["k"] * v["k"] + _number(v) % v["f"])})
def digits_recombine(w: World) -> Any:
    """k*(n div k) + n mod k = n."""
    k = w.extent("k")
    n = w.digits(w.integer("q"), (w.digit("r", k), k))
    return (n // k) * k + n % (w.extent("f") if w.wrong else k) == n


# -- bits ----------------------------------------------------------------------------------------------------------

# One function of the unknowns and of whether the mistake is made, on bit-vectors and on numpy's unsigned words alike.
_Rule = Callable[..., tuple[Any, Any]]


def _disjoint(x: Any, y: Any, *_: Any, wrong: bool) -> tuple[Any, Any]:
    return (x & y) == (x & y if wrong else 0), (x ^ y) == x + y


def _union(x: Any, y: Any, p: Any, q: Any, *, wrong: bool) -> tuple[Any, Any]:
    return (p & q) == (p & q if wrong else 0), (((x & p) + (y & q)) & ~(p | q)) == 0


def _kept(x: Any, bits: Any, mask: Any, *_: Any, wrong: bool) -> tuple[Any, Any]:
    return (bits & ~mask) == (bits & ~mask if wrong else 0), ((x & bits) & mask) == (x & bits)


def _cleared(x: Any, bits: Any, mask: Any, *_: Any, wrong: bool) -> tuple[Any, Any]:
    return (bits & mask) == (bits & mask if wrong else 0), ((x & bits) & mask) == 0


def _far(x: Any, low: Any, far: Any, *_: Any, wrong: bool) -> tuple[Any, Any]:
    far = far if wrong else far & 0xFFFFFF00
    return x == x, ((x & 0xFF) ^ ((low & 0xFF) + far)) == ((x & 0xFF) ^ (low & 0xFF)) + far


_RULES: Final[dict[str, tuple[_Rule, str, str]]] = {
    "disjoint_bits_add": (_disjoint, "x and y have no bit in common implies x ^ y = x + y.", "any words"),
    "bits_of_a_sum": (_union, "Words within disjoint masks p and q have their sum within p | q.", "any masks"),
    "mask_keeps": (_kept, "A word within bits, all of them in the mask, is kept by it.", "any mask"),
    "mask_clears": (_cleared, "A word within bits, none of them in the mask, is cleared by it.", "any mask"),
    "far_bits_add": (_far, "Bits of a constant beyond those of x are added: x ^ (a + b) = (x ^ a) + b.", "any bits"),
}


def _bit_law(name: str, rule: _Rule, statement: str, wrong: str) -> Law:
    words = [z3.BitVec(n, _WIDTH) for n in "wxyz"]

    def check(settings: Settings, *, mistake: bool = False) -> Verdict:
        given, goal = rule(*words, wrong=mistake)
        hypotheses = [given] if isinstance(given, z3.BoolRef) else []
        return prove(goal, given=hypotheses, scope=WORDS, budget=settings.budget, logic="QF_BV", seed=settings.seed)

    def replay(v: Mapping[str, Any]) -> tuple[Any, Any]:
        given = (np.array([v.get(n, 0)], dtype=np.uint32) for n in "wxyz")
        return bool(rule(*given, wrong=True)[1][0]), True

    def evaluate() -> Verdict:
        values = np.meshgrid(*[np.arange(16, dtype=np.uint32)] * 4, indexing="ij")
        given, goal = np.broadcast_arrays(*rule(*values, wrong=False))
        bad = np.argwhere(given & ~goal)
        members = int(np.count_nonzero(given))
        if bad.size:
            return Refuted(f"{members} members evaluated", dict(zip("wxyz", map(int, bad[0]), strict=True)))
        return Proved(f"{members} members evaluated")

    mutant = Mutant(wrong, lambda settings: check(settings, mistake=True), replay)
    return Law(f"index_arithmetic.{name}", statement, WORDS, "step", check, (mutant,), evaluate)


def _power_law(name: str, statement: str, wrong: str) -> Law:
    """``x & (2^n - 1) = x mod 2^n`` and ``x >> n = x div 2^n`` for every n below 32."""
    x = z3.BitVec("x", _WIDTH)

    def sides(n: int, *, mistake: bool) -> tuple[Any, Any]:
        power = z3.BitVecVal(1 << n, _WIDTH)
        if name == "low_mask_is_remainder":
            return x & ((1 << n) - (0 if mistake else 1)), z3.URem(x, power)
        return (x >> n if mistake else z3.LShR(x, n)), z3.UDiv(x, power)

    def one(n: int, settings: Settings, *, mistake: bool) -> Verdict:
        left, right = sides(n, mistake=mistake)
        budget, seed = settings.budget, settings.seed
        return prove(left == right, scope=f"n = {n}, {WORDS}", budget=budget, logic="QF_BV", seed=seed)

    def check(settings: Settings) -> Verdict:
        found = [one(n, settings, mistake=False) for n in range(_WIDTH)]
        return conjunction(f"every n below {_WIDTH}, {WORDS}", found)

    def replay(v: Mapping[str, Any]) -> tuple[int, int]:
        word, n = int(v["x"]), 4
        if name == "low_mask_is_remainder":
            return word % (1 << n), word & (1 << n)
        signed = word - (1 << _WIDTH if word >> (_WIDTH - 1) else 0)
        return word >> n, (signed >> n) % (1 << _WIDTH)

    def evaluate() -> Verdict:
        for n in range(10):
            for word in range(300):
                left, right = (word & ((1 << n) - 1), word % (1 << n))
                if left != right or word >> n != word // (1 << n):
                    return Refuted("n below 10, words below 300", {"x": word, "n": n})
        return Proved("3000 members evaluated")

    mutant = Mutant(wrong, lambda settings: one(4, settings, mistake=True), replay)
    return Law(
        f"index_arithmetic.{name}", statement, f"every n below {_WIDTH}, {WORDS}", "step", check, (mutant,), evaluate
    )


LAWS: tuple[Law, ...] = (
    *steps_of(__name__),
    *(_bit_law(name, *rule) for name, rule in _RULES.items()),
    _power_law("low_mask_is_remainder", "x & (2^n - 1) = x mod 2^n.", "one bit too high"),
    _power_law("shift_is_quotient", "x >> n = x div 2^n, unsigned.", "signed shift"),
)
