"""Pieces of CUDA C++ that every strategy writes: block origins, index digits, guards, byte rearrangement.

Offsets are in bytes and unsigned.  What a block adds is computed in 64 bits; what a thread adds, in 32 bits where its
largest value fits, which is known here, since extents and strides are constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from codegen_cuda.tensor.plan import TensorPlan
from codegen_cuda.tensor.problem import TensorProblem

__all__ = ["ELEMENT", "Permuter", "block_origin", "constant", "decode", "divided", "guard", "linear", "unrolled"]

_WORD = 1 << 32

#: C type that carries one element of so many bytes.
ELEMENT: Mapping[int, str] = {1: "unsigned char", 2: "unsigned short", 4: "u32", 8: "uint2", 16: "uint4"}

Term = tuple[str, int, int]  # variable, its largest value, its factor


def constant(value: int) -> str:
    """Spell an unsigned constant, 64 bits wide only where it must be.

    >>> constant(5), constant(1 << 40)
    ('5u', '1099511627776ull')
    """
    return f"{value}u" if value < _WORD else f"{value}ull"


def linear(terms: Iterable[Term], *, wide: bool = False) -> str:
    """Spell a sum of variables times constants so that it cannot wrap.

    Args:
        terms: each variable with its largest value and its factor.
        wide: spell it in 64 bits even where 32 suffice.

    >>> linear([("v", 7, 16), ("b", 63, 1000)])
    'v * 16u + b * 1000u'
    >>> linear([("b", 63, 1 << 30)])
    '(u64)b * 1073741824ull'
    """
    kept = [(name, most, factor) for name, most, factor in terms if most and factor]
    wide = wide or sum(most * factor for _, most, factor in kept) >= _WORD
    spelled = [_product(name, factor, wide=wide) for name, _, factor in kept]
    return " + ".join(spelled) or ("0ull" if wide else "0u")


def _product(name: str, factor: int, *, wide: bool) -> str:
    variable = f"(u64){name}" if wide else name
    return variable if factor == 1 else f"{variable} * {factor}{'ull' if wide else 'u'}"


def decode(index: str, digits: Sequence[tuple[str, int]]) -> list[str]:
    """Split an index into named digits, fastest first; a digit of extent 1 gets no variable.

    >>> decode("i", [("v", 8), ("b", 4)])
    ['const u32 v = i % 8u;', 'const u32 b = i / 8u;']
    """
    lines: list[str] = []
    kept = [(name, extent) for name, extent in digits if extent > 1]
    stride = 1
    for position, (name, extent) in enumerate(kept):
        text = index if stride == 1 else f"{index} / {stride}u"
        text = text if position == len(kept) - 1 else f"{text} % {extent}u"
        lines.append(f"const u32 {name} = {text};")
        stride *= extent
    return lines


def divided(text: str, factor: int) -> str:
    """Spell a quotient; a division by 1 is none.

    >>> divided("x", 4), divided("x", 1)
    ('x / 4u', 'x')
    """
    return text if factor == 1 else f"{text} / {factor}u"


def guard(conditions: Iterable[str]) -> str:
    """Join conditions; no condition is always true."""
    return " && ".join(conditions) or "true"


def unrolled(count: int, body: Sequence[str], *, variable: str = "n", whole: bool = True) -> list[str]:
    """Wrap lines in a loop of constantly many turns that the compiler unrolls wholly, or not at all."""
    return [
        "#pragma unroll" if whole else "#pragma unroll 1",
        f"for (u32 {variable} = 0u; {variable} < {count}u; ++{variable}) {{",
        *("    " + line for line in body),
        "}",
    ]


def block_origin(problem: TensorProblem, plan: TensorPlan, *, without: Sequence[int] = ()) -> list[str]:
    """Spell where the block's box starts: coordinates ``o<dim>``, byte offsets ``src_base`` and ``dst_base``.

    Args:
        problem: the request.
        plan: the box and the order of blocks.
        without: dimensions that a strategy adds itself; their box numbers are ``t<dim>``.
    """
    walked = [d for d in plan.order if plan.counts[d] > 1]
    digits = [(f"t{d}", plan.counts[d]) for d in walked]
    lines = decode("blockIdx.x", digits)
    for d in walked:
        most = plan.counts[d] * plan.box[d]
        kind = "u32" if most < _WORD else "u64"
        lines.append(f"const {kind} o{d} = {'' if kind == 'u32' else '(u64)'}t{d} * {constant(plan.box[d])};")
    for name, side in (("src_base", "src"), ("dst_base", "dst")):
        terms = [
            (f"o{d}", problem.dims[d].extent, getattr(problem.dims[d], side) * problem.width)
            for d in walked
            if d not in without
        ]
        lines.append(f"const u64 {name} = {linear(terms, wide=True)};")
    return lines


class Permuter:
    """Emits byte rearrangements between 32-bit words, sharing the intermediate words of transposes.

    A word is a C expression; a byte is ``(word, 0..3)``.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._pairs: dict[tuple[str, str, int], str] = {}

    def word(self, sources: Sequence[tuple[str, int]]) -> str:
        """Return an expression for the word of these four bytes, lowest first."""
        words = list(dict.fromkeys(name for name, _ in sources))
        if len(words) == 1 and [byte for _, byte in sources] == [0, 1, 2, 3]:
            return words[0]
        if len(words) <= 2:
            first, second = words[0], words[-1]
            return _prmt(first, second, [(0 if name == first else 4) + byte for name, byte in sources])
        (low, low_at), (high, high_at) = self._pair(sources[0], sources[1]), self._pair(sources[2], sources[3])
        return _prmt(low, high, [*low_at, *(4 + byte for byte in high_at)])

    def _pair(self, one: tuple[str, int], two: tuple[str, int]) -> tuple[str, tuple[int, int]]:
        """Return a word that holds two bytes, and where; equal bytes of two words share an interleaved word."""
        (first, p), (second, q) = one, two
        if first == second:
            return first, (p, q)
        if p != q:
            return self._named(first, second, [p, 4 + q, p, 4 + q]), (0, 1)
        half = p // 2 * 2
        name = self._named(first, second, [half, 4 + half, half + 1, 5 + half])
        return name, (2 * (p - half), 2 * (p - half) + 1)

    def _named(self, first: str, second: str, bytes_: Sequence[int]) -> str:
        selector = _selector(bytes_)
        key = (first, second, selector)
        if key not in self._pairs:
            name = self._pairs[key] = f"pair{len(self._pairs)}"
            self.lines.append(f"const u32 {name} = __byte_perm({first}, {second}, {selector:#06x});")
        return self._pairs[key]


def _selector(bytes_: Sequence[int]) -> int:
    return sum(byte << (4 * position) for position, byte in enumerate(bytes_))


def _prmt(first: str, second: str, bytes_: Sequence[int]) -> str:
    return f"__byte_perm({first}, {second}, {_selector(bytes_):#06x})"
