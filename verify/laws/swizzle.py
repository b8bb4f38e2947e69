"""Swizzles, bit by bit: laws for all bits B, bases M, shifts S and addresses of any size.

A word is the function that gives its bits, and the shipping formula runs on such words: a shift moves the index, XOR
and AND act bit by bit, ``(1 << B) - 1`` has the bits below B.  So a law is a statement about one unknown bit of unknown
words, and B, M, S are unknown integers.  Both directions of the shift are cases.  Two laws are proved a second time on
64-bit vectors, as the machine computes.

Hand lemmas: a number is determined by its bits; an injection of a finite set is a bijection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import z3

from layoutalg.errors import RangeError
from layoutalg.swizzle import Swizzle
from verify.laws.core import Law, Mutant, Settings, conjunction
from verify.laws.words import Amount, Mask, Vector64, Word
from verify.solve import prove
from verify.verdict import Proved, Refuted, Unknown, Verdict

__all__ = ["LAWS"]

#: Bit-blasting 64-bit shifts by unknown amounts costs more than linear arithmetic.
_BUDGET_FACTOR = 4


class Bits:
    """What a law may say; ``wrong`` names the mistake, ``sign`` the direction of the shift."""

    wrong = ""
    sign = 1
    bits: Any
    base: Any
    shift: Any  # the size of S

    def word(self, name: str) -> Any:
        """An unknown address."""
        raise NotImplementedError

    def index(self, name: str) -> Any:
        """The number of an unknown bit."""
        raise NotImplementedError

    def f(self, x: Any, *, coarser: Any = 0) -> Any:
        """The shipping formula; ``coarser`` is taken off the base."""
        raise NotImplementedError

    def bit(self, x: Any, i: Any) -> Any:
        """Bit i of a word."""
        raise NotImplementedError

    def assume(self, condition: Any) -> None:
        """Add a hypothesis."""
        raise NotImplementedError

    def both(self, a: Any, b: Any) -> Any:
        """Conjunction."""
        return a & b

    def implies(self, a: Any, b: Any) -> Any:
        """Implication."""
        return ~a | b

    @property
    def period(self) -> Any:
        """M + |S| + B, the logarithm of the period."""
        return self.base + self.shift + self.bits


class _Proof(Bits):
    def __init__(self, sign: int, wrong: str) -> None:
        self.wrong, self.sign = wrong, sign
        self.bits, self.base, self.shift = (z3.Int(name) for name in ("B", "M", "S"))
        self.given: list[Any] = [self.bits >= 0, self.base >= 0, self.shift >= (0 if wrong == "shift 0" else 1)]

    def word(self, name: str) -> Any:
        function = z3.Function(name, z3.IntSort(), z3.BoolSort())
        return Word(lambda i: z3.And(i >= 0, function(i)))

    def index(self, name: str) -> Any:
        value = z3.Int(name)
        self.given.append(value >= 0)
        return value

    def f(self, x: Any, *, coarser: Any = 0) -> Any:
        stand_in = SimpleNamespace(
            bits=Amount(self.bits, Mask),
            base=Amount(self.base - coarser, Mask),
            shift=Amount(self.shift, Mask, self.sign),
        )
        return Swizzle._formula(stand_in, x)  # type: ignore[arg-type]

    def bit(self, x: Any, i: Any) -> Any:
        return x.bit(i)

    def assume(self, condition: Any) -> None:
        self.given.append(condition)


class _Grid(Bits):
    """Addresses below 96 and bits below 12, for one swizzle, as numpy arrays."""

    def __init__(self, bits: int, base: int, shift: int) -> None:
        self.bits, self.base, self.shift = bits, base, abs(shift)
        self.sign = 1 if shift > 0 else -1
        self.mask: Any = True
        self.unknowns = 0

    def _axis(self, values: Any) -> Any:
        self.unknowns += 1
        shape = [1] * 4
        shape[self.unknowns - 1] = -1
        return values.reshape(shape)

    def word(self, name: str) -> Any:
        return self._axis(np.arange(48, dtype=np.int64) * (1 + len(name) % 2))

    def index(self, name: str) -> Any:
        return self._axis(np.arange(10 + len(name) % 2, dtype=np.int64))

    def f(self, x: Any, *, coarser: Any = 0) -> Any:
        if type(coarser) is int:
            return Swizzle(self.bits, self.base - coarser, self.sign * self.shift).apply(x)
        rows = [self.f(x, coarser=min(int(c), self.base)) for c in coarser.reshape(-1)]
        axis = int(np.argmax(coarser.shape))
        return np.concatenate(
            [np.broadcast_to(row, np.broadcast_shapes(row.shape, (1,) * 4)) for row in rows], axis=axis
        )

    def bit(self, x: Any, i: Any) -> Any:
        return (i >= 0) & (((x >> np.maximum(i, 0)) & 1) == 1)

    def assume(self, condition: Any) -> None:
        self.mask = self.mask & condition


Statement = Callable[[Bits], Any]
Replay = Callable[[Any], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class _BitLaw:
    statement: Statement

    def prove(self, settings: Settings, scope: str) -> Verdict:
        return conjunction(scope, [self._case(sign, "", settings, scope) for sign in (1, -1)])

    def _case(self, sign: int, wrong: str, settings: Settings, scope: str, largest: int = 0) -> Verdict:
        world = _Proof(sign, wrong)
        goal = self.statement(world)
        if largest:
            world.given.extend(x <= largest for x in (world.bits, world.base, world.shift))
        verdict = prove(goal, given=world.given, scope=scope, budget=settings.budget, seed=settings.seed)
        if isinstance(verdict, Refuted):
            return Refuted(scope, {**verdict.counterexample, "sign": sign}, verdict.effort)
        return verdict

    def refute(self, wrong: str, settings: Settings) -> Verdict:
        found = []
        for sign in (1, -1):
            found.append(self._case(sign, wrong, settings, "B, M, S up to 4", largest=4))
            if isinstance(found[-1], Refuted):
                return found[-1]
        return conjunction("no counterexample", found)

    def evaluate(self) -> Verdict:
        count = 0
        for bits, base, shift in product((1, 2, 3), (0, 1, 2), (-3, -2, -1, 1, 2, 3)):
            world = _Grid(bits, base, shift)
            goal = self.statement(world)
            mask, good = np.broadcast_arrays(world.mask, np.asarray(goal))
            if (mask & ~good).any():
                return Refuted("small swizzles", {"bits": bits, "base": base, "shift": shift})
            count += int(np.count_nonzero(mask))
        return Proved(f"{count} members evaluated") if count else Unknown("0 members evaluated", "nothing evaluated")


def involution(w: Bits) -> Any:
    """Where |S| >= B, applying the swizzle twice changes no bit."""
    x, i = w.word("x"), w.index("i")
    if not w.wrong:
        w.assume(w.shift >= w.bits)
    return w.bit(w.f(w.f(x)), i) == w.bit(x, i)


def injective(w: Bits) -> Any:
    """Bit i of x follows from bit i of f(x) and a bit of x that is |S| further up (down for S < 0).

    So addresses with one image agree bit by bit, from the top (the bottom) on: S != 0 makes every swizzle a bijection.
    """
    x, y, i = w.word("x"), w.word("y"), w.index("i")
    other = i + w.shift if w.sign > 0 else i - w.shift
    w.assume(w.bit(w.f(x), i) == w.bit(w.f(y), i))
    if not w.wrong:
        w.assume(w.bit(x, other) == w.bit(y, other))
    return w.bit(x, i) == w.bit(y, i)


def period(w: Bits) -> Any:
    """Bits from M + |S| + B upward pass unchanged, and those below depend on no bit above.

    So f(x + k*P) = f(x) + k*P with P = 2^(M+|S|+B), for an aligned base address, for example, and f permutes [0, P).
    """
    x, y, i = w.word("x"), w.word("y"), w.index("i")
    log = w.base + w.bits if w.wrong else w.period
    below = i + w.shift if w.sign > 0 else i - w.shift
    for j in (i, below):
        w.assume(w.implies(j < log, w.bit(x, j) == w.bit(y, j)))
    passes = w.implies(i >= log, w.bit(w.f(x), i) == w.bit(x, i))
    return w.both(passes, w.implies(i < log, w.bit(w.f(x), i) == w.bit(w.f(y), i)))


def neighbours_stay(w: Bits) -> Any:
    """Bits below M pass unchanged, and those from M upward depend on no bit below: 2^M neighbours stay neighbours."""
    x, y, i = w.word("x"), w.word("y"), w.index("i")
    log = w.base + 1 if w.wrong else w.base
    other = i + w.shift if w.sign > 0 else i - w.shift
    for j in (i, other):
        w.assume(w.implies(j >= log, w.bit(x, j) == w.bit(y, j)))
    passes = w.implies(i < log, w.bit(w.f(x), i) == w.bit(x, i))
    return w.both(passes, w.implies(i >= log, w.bit(w.f(x), i) == w.bit(w.f(y), i)))


def linear(w: Bits) -> Any:
    """f(x ^ y) = f(x) ^ f(y): a swizzle is a linear map of address bits."""
    x, y, i = w.word("x"), w.word("y"), w.index("i")
    either = x & y if w.wrong else x ^ y
    return w.bit(w.f(either), i) == w.bit(w.f(x) ^ w.f(y), i)


def recast(w: Bits) -> Any:
    """f(2^r * x) = 2^r * g(x) for the swizzle g of base M - r, 0 <= r <= M: wider elements, the same permutation."""
    x, r, i = w.word("x"), w.index("r"), w.index("i")
    w.assume(r <= w.base)
    wide = x << r
    return w.bit(w.f(wide), i) == w.bit(w.f(x, coarser=r * 0 if w.wrong else r) << r, i)


# -- replays -------------------------------------------------------------------------------------------------------


def _number(v: Any, name: str) -> int:
    """An address below 2^16 whose bits are those of the counterexample's function."""
    return int(sum(1 << i for i, bit in enumerate(_bits(v.get(name, "[]"))) if bit))


def _bits(text: str) -> list[bool]:
    """Read Z3's text of a function from bit numbers to truth values: [0 -> True, else -> False]."""
    entries = dict(part.split(" -> ") for part in text.strip("[]").replace("\n", " ").split(", ") if " -> " in part)
    default = entries.pop("else", "False").strip() == "True"
    table = {int(key): value.strip() == "True" for key, value in entries.items()}
    return [table.get(i, default) for i in range(16)]


def _swizzle(v: Any) -> Swizzle:
    return Swizzle(int(v["B"]), int(v["M"]), int(v["sign"]) * int(v["S"]))


def _replay_twice(v: Any) -> tuple[Any, Any]:
    f, x = _swizzle(v), _number(v, "x")
    return f.apply(f.apply(x)), x


def _replay_injective(v: Any) -> tuple[Any, Any]:
    """The two addresses have different images: knowing one bit of the image alone does not do."""
    f, i = _swizzle(v), int(v["i"])
    x, y = _number(v, "x"), _number(v, "y")
    return (f.apply(x) >> i & 1 == f.apply(y) >> i & 1, x >> i & 1 == y >> i & 1), (True, True)


def _replay_zero(v: Any) -> tuple[Any, Any]:
    """With shift 0 the formula maps two words onto one; the constructor refuses it."""
    try:
        Swizzle(int(v["B"]), int(v["M"]), 0)
    except RangeError:
        return "refused", "accepted"
    return "accepted", "accepted"


def _replay_period(v: Any) -> tuple[Any, Any]:
    f, x, y, i = _swizzle(v), _number(v, "x"), _number(v, "y"), int(v["i"])
    log = int(v["M"]) + int(v["B"])
    if i >= log:
        return f.apply(x) >> i & 1, x >> i & 1
    return f.apply(x) >> i & 1, f.apply(y) >> i & 1


def _replay_neighbours(v: Any) -> tuple[Any, Any]:
    f, x, y, i = _swizzle(v), _number(v, "x"), _number(v, "y"), int(v["i"])
    if i < int(v["M"]) + 1:
        return f.apply(x) >> i & 1, x >> i & 1
    return f.apply(x) >> i & 1, f.apply(y) >> i & 1


def _replay_linear(v: Any) -> tuple[Any, Any]:
    f, x, y = _swizzle(v), _number(v, "x"), _number(v, "y")
    return f.apply(x & y), f.apply(x) ^ f.apply(y)


def _replay_recast(v: Any) -> tuple[Any, Any]:
    f, x, r = _swizzle(v), _number(v, "x"), int(v["r"])
    return f.recast(8, 8 << r).apply(x), f.apply(x)


# -- 64-bit vectors ------------------------------------------------------------------------------------------------


def _vector_law(name: str, statement: str, goal: Callable[[Any, Any, Any], Any], given: Callable[..., Any]) -> Law:
    """A law on 64-bit vectors with B, M, S unknown and M + |S| + B <= 62; ``given`` takes B, S and the mistake."""

    def attempt(settings: Settings, scope: str, wrong: bool) -> Verdict:
        found = []
        for sign in (1, -1):
            b, m, s = (z3.ZeroExt(58, z3.BitVec(letter, 6)) for letter in ("B", "M", "S"))
            stand_in = SimpleNamespace(
                bits=Amount(b, Vector64), base=Amount(m, Vector64), shift=Amount(s, Vector64, sign)
            )
            x, y = (Vector64(z3.BitVec(letter, 64)) for letter in ("x", "y"))
            hypotheses = [z3.ULE(b + m + s, 62), z3.ULT(x.expr, 1 << 62), z3.ULT(y.expr, 1 << 62), *given(b, s, wrong)]

            def f(v: Any, stand_in: Any = stand_in) -> Any:
                return Swizzle._formula(stand_in, v)

            budget = settings.budget * _BUDGET_FACTOR
            verdict = prove(
                goal(f, x, y), given=hypotheses, scope=scope, budget=budget, logic="QF_BV", seed=settings.seed
            )
            if isinstance(verdict, Refuted):
                return Refuted(scope, {**verdict.counterexample, "sign": sign}, verdict.effort)
            found.append(verdict)
        return conjunction(scope, found)

    def evaluate() -> Verdict:
        x = np.arange(4096)
        for bits, base, shift in product((1, 2, 3), (0, 1, 2), (-4, -3, 3, 4)):
            f = Swizzle(bits, base, shift).apply
            if len(np.unique(f(x))) != len(x) or (f(f(x)) != x).any():
                return Refuted("small swizzles", {"bits": bits, "base": base, "shift": shift})
        return Proved(f"{36 * len(x)} members evaluated")

    scope = "all B, M, S with M + |S| + B <= 62, both directions, all 62-bit addresses"
    replay = _replay_vector_twice if name.startswith("involution") else _replay_zero
    wrong = "|S| < B" if name.startswith("involution") else "shift 0"
    return Law(
        name=f"swizzle.{name}",
        statement=statement,
        scope=scope,
        kind="step",
        check=lambda settings: attempt(settings, scope, False),
        mutants=(Mutant(wrong, lambda settings: attempt(settings, scope, True), replay),),
        evaluate=evaluate,
    )


def _replay_vector_twice(v: Any) -> tuple[Any, Any]:
    f = _swizzle({"M": 0, "B": 0, "S": 1, **v})
    return f.apply(f.apply(int(v["x"]))), v["x"]


def _law(statement: Statement, mutants: Mapping[str, Replay]) -> Law:
    scope = "all B, M >= 0, |S| >= 1, both directions, addresses of any size"
    written = _BitLaw(statement)
    return Law(
        name=f"swizzle.{statement.__name__}",
        statement=" ".join((statement.__doc__ or "").split()),
        scope=scope,
        kind="step",
        check=lambda settings: written.prove(settings, scope),
        mutants=tuple(
            Mutant(wrong, lambda settings, wrong=wrong: written.refute(wrong, settings), replay)  # type: ignore[misc]
            for wrong, replay in mutants.items()
        ),
        evaluate=written.evaluate,
    )


def _laws() -> Iterator[Law]:
    yield _law(involution, {"|S| < B": _replay_twice})
    yield _law(injective, {"the image's bit alone": _replay_injective})
    yield _law(period, {"period 2^(M+B)": _replay_period})
    yield _law(neighbours_stay, {"blocks of 2^(M+1)": _replay_neighbours})
    yield _law(linear, {"AND instead of XOR": _replay_linear})
    yield _law(recast, {"the same base": _replay_recast})
    yield _vector_law(
        "involution_on_64_bits",
        "Where |S| >= B, applying the swizzle twice changes no 64-bit address.",
        lambda f, x, _y: f(f(x)) == x,
        lambda b, s, wrong: [z3.UGE(s, 1), *([] if wrong else [z3.UGE(s, b)])],
    )
    yield _vector_law(
        "injective_on_64_bits",
        "Distinct 64-bit addresses stay distinct, whenever S is not 0.",
        lambda f, x, y: z3.Implies(f(x) == f(y), x == y),
        lambda _b, s, wrong: [] if wrong else [z3.UGE(s, 1)],
    )


LAWS: tuple[Law, ...] = tuple(_laws())
