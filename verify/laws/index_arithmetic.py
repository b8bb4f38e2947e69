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


def _scaled(v: Mapping[str, Any]) -> tuple[int, int]:
    c, m, k = v["c1"], v["k1"] * v["m1"], v["k1"] * v["g"]
    x, r = v["q"] * m + v["d"], v["u"] * k + v["v"] - c * v["d"]
    return (c * (x % m) + r) % k, (c * x + r) % k


@step(ALL, mutants={"any factor": _scaled})
def scaled_remainder(w: World) -> Any:
    """k divides c*m implies (c*(x mod m) + r) mod k = (c*x + r) mod k."""
    # k | c*m says just this: k = k1*g, c = c1*g and m = k1*m1 for some g.
    g, c1, k1, m1 = (w.extent(name) for name in ("g", "c1", "k1", "m1"))
    c, m, k = c1 if w.wrong else c1 * g, k1 * m1, k1 * g
    w.know("positive", k1, m1)
    w.know("positive", k1, g)
    q, d, u, v = w.integer("q"), w.digit("d", m), w.integer("u"), w.digit("v", k)
    x, n = w.digits(q, (d, m)), w.digits(u, (v, k))
    w.know("divmod", c1 * q * m1 + u, k, v)
    r = n - c * d
    return (x % m * c + r) % k == (x * c + r) % k


def _residues(v: Mapping[str, Any]) -> tuple[int, int]:
    total, g = v["q"] * v["g"] + v["r"], v["g"]
    return (total + g * (v["s"] + v["t"])) % (2 * g), total % (2 * g)


@step(ALL, mutants={"modulus doubled": _residues})
def residues_add(w: World) -> Any:
    """x = a and y = b (mod g) imply (x + y) mod g = (a + b) mod g; any divisor of both moduli may be g."""
    g, a, s, t = w.extent("g"), w.integer("a"), w.integer("s"), w.integer("t")
    q, r = w.integer("q"), w.digit("r", g)
    n = w.digits(q, (r, g))  # a + b
    x, y = a + s * g, n - a + t * g
    w.know("divmod", q + s + t, g, r)
    modulus = g * 2 if w.wrong else g
    return (x + y) % modulus == n % modulus


@step(
    ALL,
    mutants={"divisors squared": lambda v: (v["g"] * v["a"] * v["h"] * v["b"] % (v["g"] * v["g"] * v["h"]), 0)},
)
def multiples_multiply(w: World) -> Any:
    """g divides x and h divides y imply that gh divides xy."""
    g, h, a, b = w.extent("g"), w.extent("h"), w.integer("a"), w.integer("b")
    w.know("positive", g, h)
    w.know("divmod", a * b, g * h, 0)
    product = (a * g) * (b * h)
    return product % (g * g * h if w.wrong else g * h) == 0


@step(
    ALL,
    mutants={
        "remainders ordered too": lambda v: (v["q"] * v["k"] + v["r"] <= v["p"] * v["k"] + v["s"], v["r"] <= v["s"])
    },
)
def quotients_keep_order(w: World) -> Any:
    """x <= y implies x div k <= y div k, so bounds of x divide to bounds of the quotient."""
    k, q, p = w.extent("k"), w.integer("q"), w.integer("p")
    r, s = w.digit("r", k), w.digit("s", k)
    x, y = w.digits(q, (r, k)), w.digits(p, (s, k))
    w.assume(x <= y)
    w.know("range", 0, q - p, s, k)
    return x % k <= y % k if w.wrong else x // k <= y // k


@step(
    ALL,
    mutants={"any factor": lambda v: (v["x"] <= v["y"], v["x"] * -v["c"] <= v["y"] * -v["c"])},
)
def products_keep_order(w: World) -> Any:
    """x <= y and c >= 1 imply c*x <= c*y, so bounds of atoms sum to bounds of the linear form."""
    c, x, y = w.extent("c"), w.integer("x"), w.integer("y")
    w.assume(x <= y)
    w.know("positive", y - x, c)
    factor = -c if w.wrong else c
    return x * factor <= y * factor


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


def _distributed(x: Any, y: Any, mask: Any, *_: Any, wrong: bool) -> tuple[Any, Any]:
    return (x & y) == (x & y if wrong else 0), ((x + y) & mask) == (x & mask) + (y & mask)


def _cancel(x: Any, y: Any, *_: Any, wrong: bool) -> tuple[Any, Any]:
    return x == (x if wrong else y), (x ^ y) == 0


def _within(x: Any, y: Any, p: Any, q: Any, *, wrong: bool) -> tuple[Any, Any]:
    inside = ((x & ~p) | (y & ~q)) == 0
    union = p if wrong else p | q
    return inside, (((x ^ y) & ~union) | ((x & y) & ~(p & q))) == 0


def _truncated(x: Any, y: Any, *_: Any, wrong: bool) -> tuple[Any, Any]:
    if isinstance(x, z3.BitVecRef):
        given = y > 0 if wrong else z3.And(x >= 0, y > 0)
        return given, z3.And(x / y == z3.UDiv(x, y), z3.SRem(x, y) == z3.URem(x, y))
    a, b = (word.astype(np.int32).astype(np.int64) for word in (x, y))
    divisor = np.where(b == 0, 1, b)
    quotient = np.sign(a) * np.sign(divisor) * (abs(a) // abs(divisor))  # as C divides
    return (b > 0) & (wrong | (a >= 0)), quotient == x // np.where(b == 0, 1, b)


def _far(x: Any, low: Any, far: Any, *_: Any, wrong: bool) -> tuple[Any, Any]:
    far = far if wrong else far & 0xFFFFFF00
    return x == x, ((x & 0xFF) ^ ((low & 0xFF) + far)) == ((x & 0xFF) ^ (low & 0xFF)) + far


_RULES: Final[dict[str, tuple[_Rule, str, str]]] = {
    "disjoint_bits_add": (_disjoint, "x and y have no bit in common implies x ^ y = x + y.", "any words"),
    "bits_of_a_sum": (_union, "Words within disjoint masks p and q have their sum within p | q.", "any masks"),
    "mask_keeps": (_kept, "A word within bits, all of them in the mask, is kept by it.", "any mask"),
    "mask_clears": (_cleared, "A word within bits, none of them in the mask, is cleared by it.", "any mask"),
    "mask_distributes": (
        _distributed,
        "x and y have no bit in common implies (x + y) & m = (x & m) + (y & m).",
        "any words",
    ),
    "equal_words_cancel": (_cancel, "x = y implies x ^ y = 0.", "any words"),
    "bits_of_operations": (
        _within,
        "Words within p and q have their exclusive or within p | q, and what they share within p & q.",
        "bits of the first alone",
    ),
    "truncation_is_floor": (
        _truncated,
        "C's quotient and remainder of signed words are floor and modulo where x >= 0 and y > 0.",
        "negative dividends",
    ),
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


# The two sides of an equation for one power of two, on bit-vectors and on numpy's unsigned words alike.
_Sides = Callable[..., tuple[Any, Any]]


def _quotient(x: Any, power: Any) -> Any:
    return z3.UDiv(x, power) if isinstance(x, z3.BitVecRef) else x // power


def _low_mask(x: Any, _: Any, _n: int, power: Any, *, wrong: bool) -> tuple[Any, Any]:
    remainder = z3.URem(x, power) if isinstance(x, z3.BitVecRef) else x % power
    return x & (power if wrong else power - 1), remainder


def _shift(x: Any, _: Any, n: int, power: Any, *, wrong: bool) -> tuple[Any, Any]:
    if isinstance(x, z3.BitVecRef):
        return (x >> n if wrong else z3.LShR(x, n)), _quotient(x, power)
    return (x.astype(np.int32) >> n if wrong else x >> n).astype(np.uint32), _quotient(x, power)


def _reach(x: Any, _: Any, _n: int, power: Any, *, wrong: bool) -> tuple[Any, Any]:
    below = z3.URem(x, power) if isinstance(x, z3.BitVecRef) else x % power  # any word below 2^n
    return below & ~((power >> 1 if wrong else power) - 1), below ^ below


def _divided(x: Any, p: Any, _n: int, power: Any, *, wrong: bool) -> tuple[Any, Any]:
    bits = p if wrong else _quotient(p, power)
    return _quotient(x & p, power) & ~bits, x ^ x


def _low_bits(x: Any, p: Any, _n: int, power: Any, *, wrong: bool) -> tuple[Any, Any]:
    mask = (power << 1 if wrong else power) - 1
    return (x + p * power) & mask, x & mask


_POWERS: Final[dict[str, tuple[_Sides, str, str]]] = {
    "low_mask_is_remainder": (_low_mask, "x & (2^n - 1) = x mod 2^n.", "one bit too high"),
    "shift_is_quotient": (_shift, "x >> n = x div 2^n, unsigned.", "signed shift"),
    "reach_of_a_bound": (_reach, "A word below 2^n has no bit from 2^n on.", "one bit fewer"),
    "bits_of_a_quotient": (_divided, "A word within p has its quotient by 2^n within p div 2^n.", "bits not divided"),
    "low_bits_of_a_residue": (_low_bits, "x + p*2^n has the low n bits of x.", "one bit more"),
}


def _power_law(name: str, sides: _Sides, statement: str, wrong: str) -> Law:
    """An equation for every power of two below 2^32, each proved on 32-bit vectors."""
    x, p = z3.BitVecs("x p", _WIDTH)

    def one(n: int, settings: Settings, *, mistake: bool) -> Verdict:
        left, right = sides(x, p, n, z3.BitVecVal(1 << n, _WIDTH), wrong=mistake)
        budget, seed = settings.budget, settings.seed
        return prove(left == right, scope=f"n = {n}, {WORDS}", budget=budget, logic="QF_BV", seed=seed)

    def check(settings: Settings) -> Verdict:
        found = [one(n, settings, mistake=False) for n in range(_WIDTH)]
        return conjunction(f"every n below {_WIDTH}, {WORDS}", found)

    def words(n: int, *values: Any, mistake: bool) -> tuple[Any, Any]:
        arrays = (np.asarray(value, dtype=np.uint32) for value in values)
        with np.errstate(over="ignore"):
            return sides(*arrays, np.uint32(n), np.uint32(1 << n), wrong=mistake)

    def replay(v: Mapping[str, Any]) -> tuple[int, int]:
        left, right = words(4, [v.get("x", 0)], [v.get("p", 0)], mistake=True)
        return int(left[0]), int(right[0])

    def evaluate() -> Verdict:
        grid = np.meshgrid(np.arange(300), np.arange(0, 300, 7), indexing="ij")
        for n in range(10):
            bad = np.argwhere(np.not_equal(*words(n, *grid, mistake=False)))
            if bad.size:
                x, p = (int(axis[tuple(bad[0])]) for axis in grid)
                return Refuted("n below 10, words below 300", {"x": x, "p": p, "n": n})
        return Proved(f"{10 * grid[0].size} members evaluated")

    mutant = Mutant(wrong, lambda settings: one(4, settings, mistake=True), replay)
    return Law(
        f"index_arithmetic.{name}", statement, f"every n below {_WIDTH}, {WORDS}", "step", check, (mutant,), evaluate
    )


LAWS: tuple[Law, ...] = (
    *steps_of(__name__),
    *(_bit_law(name, *rule) for name, rule in _RULES.items()),
    *(_power_law(name, *sides) for name, sides in _POWERS.items()),
)
