"""Operations on values in two parts, a thread's and a block's; see :mod:`verify.ptx.blocks.separate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import z3
from numpy.typing import NDArray

from verify.ptx.arrays import Array, UnsupportedTermError, bits_of, masked, operate
from verify.ptx.blocks.separate import Parts, Separated, Words
from verify.ptx.names import bottom_up

__all__ = ["Terms"]

_WORD = 64


class Terms(Separated):
    """The values of solver terms over all threads of a block and all blocks of a list.

    Args:
        threads: the unknowns that depend on the thread, one value per thread.
        blocks: the unknowns that depend on the block, one value per block.
        count: the number of blocks.

    >>> thread, block = z3.BitVec("tid.x", 2), z3.BitVec("ctaid.x", 3)
    >>> index = z3.ZeroExt(30, thread) + 4 * z3.ZeroExt(29, block)
    >>> terms = Terms({"tid.x": np.arange(4, dtype=np.uint64)}, {"ctaid.x": np.arange(8, dtype=np.uint64)}, 8)
    >>> inside = terms.truth(z3.ULT(index, 30))
    >>> [inside[terms.classes.of[block]].tolist() for block in (0, 6, 7)]
    [[True, True, True, True], [True, True, True, True], [True, True, False, False]]
    >>> len(terms.classes)
    2
    """

    def __init__(self, threads: Mapping[str, Words], blocks: Mapping[str, Words], count: int) -> None:
        super().__init__(count)
        self._threads, self._blocks = threads, blocks
        self._known: dict[int, tuple[Any, Parts]] = {}

    def parts(self, term: Any) -> Parts:
        """Return a term's values.

        Raises:
            UnsupportedTermError: an operation, or an unknown, that has no meaning here.
            TooManyClassesError: blocks have too little in common.
        """
        return bottom_up(term, self._known, self._evaluate)

    def truth(self, condition: Any) -> NDArray[np.bool_]:
        """Return a condition's values by class and thread, in the present partition."""
        return np.asarray(self.rows(self.parts(condition)))

    def _evaluate(self, term: Any, children: list[Any]) -> Parts:
        if term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            return self._unknown(term, children)
        args = [self._known[child.get_id()][1] for child in children]
        if all(arg.blocks is None for arg in args):
            return self._of_threads(term, args)
        if all(arg.threads.shape[1] == 1 for arg in args):
            return self._of_blocks(term, args)
        operation = _OPERATIONS.get(term.decl().kind())
        found = operation(self, term, args) if operation is not None else None
        return found if found is not None else self._alike(term, args)

    def _unknown(self, term: Any, children: list[Any]) -> Parts:
        name = term.decl().name()
        if not children and name in self._threads:
            return self.made(bits_of(term), self._threads[name][None, :], None)
        if not children and name in self._blocks:
            return self.made(bits_of(term), np.zeros((1, 1), dtype=np.uint64), self._blocks[name])
        raise UnsupportedTermError(f"nothing is known of {name}")

    def _of_threads(self, term: Any, args: list[Parts]) -> Parts:
        values = operate(term, [self.rows(arg) for arg in args])
        return self.made(bits_of(term), values.reshape(1, -1) if values.ndim == 1 else values, None)

    def _of_blocks(self, term: Any, args: list[Parts]) -> Parts:
        """Every block on its own; a truth value makes classes."""
        values = operate(term, [self._by_block(arg) for arg in args])
        if values.dtype == bool:
            self.classes.split(values.astype(np.int64))
            return self.made(0, values[self.classes.first][:, None], None)
        return self.made(bits_of(term), np.zeros((1, 1), dtype=values.dtype), values)

    def _by_block(self, arg: Parts) -> Array:
        rows = self.rows(arg)[:, 0]
        rows = rows if len(rows) == 1 else rows[self.classes.of]
        return np.asarray(rows) if arg.blocks is None else masked(rows + arg.blocks, arg.width)

    def _alike(self, term: Any, args: list[Parts]) -> Parts:
        """Any operation, on arguments whose blocks are made alike first."""
        for arg in args:
            self.fixed(arg)
        return self._of_threads(term, [self.fixed(arg) for arg in args])


# --- sums ---------------------------------------------------------------------------------------------------------


def _blocks(arg: Parts) -> Words:
    return np.zeros(1, dtype=np.uint64) if arg.blocks is None else arg.blocks


def _sum(terms: Terms, term: Any, args: list[Parts]) -> Parts:
    width = bits_of(term)
    if width > _WORD:
        raise UnsupportedTermError(f"a sum of {width} bits")
    threads, blocks = terms.rows(args[0]), _blocks(args[0])
    for arg in args[1:]:
        threads, blocks = threads + terms.rows(arg), blocks + _blocks(arg)
    moving = any(arg.blocks is not None for arg in args)
    return terms.made(width, masked(threads, width), masked(blocks, width) if moving else None)


def _difference(terms: Terms, term: Any, args: list[Parts]) -> Parts:
    return _sum(terms, term, [args[0], *(_times(arg, -1) for arg in args[1:])])


def _times(arg: Parts, factor: int) -> Parts:
    if arg.width > _WORD:
        raise UnsupportedTermError(f"a product of {arg.width} bits")
    number = np.uint64(factor % (1 << _WORD))
    blocks = None if arg.blocks is None else masked(arg.blocks * number, arg.width)
    return Parts(arg.width, masked(arg.threads * number, arg.width), blocks, arg.epoch)


def _negative(_terms: Terms, _term: Any, args: list[Parts]) -> Parts:
    return _times(args[0], -1)


def _complement(_terms: Terms, term: Any, args: list[Parts]) -> Parts:
    """All bits turned: -x - 1."""
    return _shifted(_times(args[0], -1), -1, bits_of(term))


def _shifted(arg: Parts, by: int, width: int) -> Parts:
    """The value plus a constant."""
    return Parts(width, masked(arg.threads + np.uint64(by % (1 << _WORD)), width), arg.blocks, arg.epoch)


def _constant(arg: Parts) -> int | None:
    return int(arg.threads[0, 0]) if arg.blocks is None and arg.threads.shape == (1, 1) else None


def _product(_terms: Terms, _term: Any, args: list[Parts]) -> Parts | None:
    factor, others = 1, []
    for arg in args:
        constant = _constant(arg)
        if constant is None:
            others.append(arg)
        else:
            factor *= constant
    return _times(others[0], factor) if len(others) == 1 else None


def _left(_terms: Terms, term: Any, args: list[Parts]) -> Parts | None:
    by = _constant(args[1])
    return None if by is None or by >= bits_of(term) else _times(args[0], 1 << by)


# --- bits ---------------------------------------------------------------------------------------------------------


def _low(arg: Parts, width: int) -> Parts:
    """The lowest bits: they depend on nothing above them."""
    blocks = None if arg.blocks is None else masked(arg.blocks, width)
    return Parts(width, masked(arg.threads, width), blocks, arg.epoch)


def _bits(terms: Terms, arg: Parts, high: int, low: int) -> Parts:
    """Bits high to low, once the sums of what lies below carry alike for all blocks of a class."""
    if arg.width > _WORD:
        raise UnsupportedTermError(f"bits of a number of {arg.width} bits")
    whole = _low(arg, high + 1)
    if low == 0 or whole.blocks is None:
        return whole if low == 0 else Parts(high - low + 1, whole.threads >> np.uint64(low), None, arg.epoch)
    _, below = terms.numbers(_low(arg, low))
    base, _ = terms.differences(whole.blocks, high + 1)
    threads = masked(terms.rows(whole) + base[:, None], high + 1)
    change = whole.blocks - base[terms.classes.of]
    change = change if below is None else change - below.view(np.uint64)
    return terms.made(high - low + 1, threads >> np.uint64(low), masked(change, high + 1) >> np.uint64(low))


def _extract(terms: Terms, term: Any, args: list[Parts]) -> Parts:
    high, low = term.params()
    return _bits(terms, args[0], high, low)


def _wide(terms: Terms, arg: Parts, width: int) -> Parts:
    """The same number in more bits."""
    if width > _WORD:
        raise UnsupportedTermError(f"a sum of {width} bits")
    threads, change = terms.numbers(arg)
    return terms.made(width, threads, None if change is None else masked(change.view(np.uint64), width))


def _zero_extended(terms: Terms, term: Any, args: list[Parts]) -> Parts:
    return _wide(terms, args[0], bits_of(term))


def _sign_extended(terms: Terms, term: Any, args: list[Parts]) -> Parts:
    half, width = 1 << (args[0].width - 1), bits_of(term)
    return _shifted(_wide(terms, _shifted(args[0], half, args[0].width), width), -half, width)


def _right(terms: Terms, term: Any, args: list[Parts]) -> Parts | None:
    by, width = _constant(args[1]), bits_of(term)
    return None if by is None or by >= width else _wide(terms, _bits(terms, args[0], width - 1, by), width)


def _concatenation(terms: Terms, term: Any, args: list[Parts]) -> Parts:
    if bits_of(term) > _WORD:
        raise UnsupportedTermError(f"a sum of {bits_of(term)} bits")
    total = args[0]
    for arg in args[1:]:
        width = total.width + arg.width
        threads, change = terms.numbers(arg)
        upper = terms.rows(total) << np.uint64(arg.width)
        blocks = _blocks(total) << np.uint64(arg.width)
        blocks = blocks if change is None else blocks + change.view(np.uint64)
        kept = total.blocks is not None or change is not None
        total = terms.made(width, masked(upper + threads, width), masked(blocks, width) if kept else None)
    return total


def _conjunction(terms: Terms, term: Any, args: list[Parts]) -> Parts | None:
    """Under a constant mask: its runs of ones, each where it is."""
    constants = [_constant(arg) for arg in args]
    if len(args) != 2 or (constants[0] is None) == (constants[1] is None):
        return None
    mask, arg = (constants[0], args[1]) if constants[0] is not None else (constants[1], args[0])
    assert mask is not None
    width = bits_of(term)
    total = Parts(width, np.zeros((1, 1), dtype=np.uint64), None, 0)
    low = 0
    while mask >> low:
        if mask >> low & 1:
            high = low
            while mask >> (high + 1) & 1:
                high += 1
            run = _times(_wide(terms, _bits(terms, arg, high, low), width), 1 << low)
            total = _sum(terms, term, [total, run])
            low = high
        low += 1
    return total


def _disjunction(terms: Terms, term: Any, args: list[Parts]) -> Parts | None:
    """Or and exclusive or, where no bit is set in two of them, are sums."""
    seen = 0
    for arg in args:
        mask = _possible(terms, arg)
        if mask & seen:
            return None
        seen |= mask
    return _sum(terms, term, args)


def _possible(terms: Terms, arg: Parts) -> int:
    """Bits that may be set for some thread and block."""
    if arg.blocks is None:
        return int(np.bitwise_or.reduce(terms.rows(arg), axis=None))
    below = int(np.bitwise_or.reduce(terms.rows(arg), axis=None) | np.bitwise_or.reduce(arg.blocks))
    full = (1 << arg.width) - 1
    return full & ~((below & -below) - 1) if below else 0


# --- truth values -------------------------------------------------------------------------------------------------


def _choice(terms: Terms, term: Any, args: list[Parts]) -> Parts:
    condition, yes, no = args
    width = bits_of(term)
    while True:
        holds = terms.rows(condition)
        holds = np.broadcast_to(holds, (len(terms.classes), holds.shape[1]))
        always, never = (np.asarray(np.all(side, axis=1)) for side in (holds, ~holds))
        gap = masked(_blocks(yes) - _blocks(no), width)
        gap = np.broadcast_to(gap, terms.classes.of.shape)
        base = gap[terms.classes.first]
        change = np.where((always | never)[terms.classes.of], np.uint64(0), gap - base[terms.classes.of])
        if not change.any():
            break
        terms.classes.split(change.view(np.int64))
    moved = np.where(always, np.uint64(0), base)[:, None]
    threads = masked(np.where(holds, terms.rows(yes) + moved, terms.rows(no)), width)
    blocks = np.where(always[terms.classes.of], _blocks(yes), _blocks(no))
    return terms.made(width, threads, blocks)


def _equality(terms: Terms, _term: Any, args: list[Parts]) -> Parts:
    return terms.equal(args[0], args[1])


def _distinction(terms: Terms, _term: Any, args: list[Parts]) -> Parts | None:
    if len(args) != 2:
        return None
    same = terms.equal(args[0], args[1])
    return terms.made(0, ~terms.rows(same), None)


def _order(*, signed: bool, strict: bool, turned: bool) -> Callable[[Terms, Any, list[Parts]], Parts]:
    def compare(terms: Terms, _term: Any, args: list[Parts]) -> Parts:
        x, y = args[::-1] if turned else args
        if signed:
            x, y = (_shifted(arg, 1 << (arg.width - 1), arg.width) for arg in (x, y))
        return terms.below(x, y, strict=strict)

    return compare


_OPERATIONS: Mapping[int, Callable[[Terms, Any, list[Parts]], Parts | None]] = {
    z3.Z3_OP_BADD: _sum,
    z3.Z3_OP_BSUB: _difference,
    z3.Z3_OP_BNEG: _negative,
    z3.Z3_OP_BNOT: _complement,
    z3.Z3_OP_BMUL: _product,
    z3.Z3_OP_BSHL: _left,
    z3.Z3_OP_BLSHR: _right,
    z3.Z3_OP_EXTRACT: _extract,
    z3.Z3_OP_ZERO_EXT: _zero_extended,
    z3.Z3_OP_SIGN_EXT: _sign_extended,
    z3.Z3_OP_CONCAT: _concatenation,
    z3.Z3_OP_BAND: _conjunction,
    z3.Z3_OP_BOR: _disjunction,
    z3.Z3_OP_BXOR: _disjunction,
    z3.Z3_OP_ITE: _choice,
    z3.Z3_OP_EQ: _equality,
    z3.Z3_OP_DISTINCT: _distinction,
    z3.Z3_OP_ULT: _order(signed=False, strict=True, turned=False),
    z3.Z3_OP_ULEQ: _order(signed=False, strict=False, turned=False),
    z3.Z3_OP_UGT: _order(signed=False, strict=True, turned=True),
    z3.Z3_OP_UGEQ: _order(signed=False, strict=False, turned=True),
    z3.Z3_OP_SLT: _order(signed=True, strict=True, turned=False),
    z3.Z3_OP_SLEQ: _order(signed=True, strict=False, turned=False),
    z3.Z3_OP_SGT: _order(signed=True, strict=True, turned=True),
    z3.Z3_OP_SGEQ: _order(signed=True, strict=False, turned=True),
}
