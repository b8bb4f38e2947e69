"""Reads Triton's encodings: texts of TTGIR such as ``#ttg.blocked<{...}>``, and the layout objects of Gluon."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from layoutalg.errors import LayoutError, NotationError, NotExpressibleError
from layoutalg.interop.encodings import (
    Blocked,
    DotOperand,
    Encoding,
    Linear,
    NvidiaMma,
    NvmmaShared,
    Slice,
    SwizzledShared,
)

__all__ = ["read_encoding", "write_encoding"]

_TOKEN = re.compile(
    r"\s*(?P<kind>#ttg\.\w+)|\s*(?P<int>-?\d+)(?:\s*:\s*i\d+)?|\s*(?P<word>\w+)|\s*(?P<sign>[<>{}\[\],=])"
)
_FIELDS = {
    "BlockedLayout": ("blocked", ("size_per_thread", "threads_per_warp", "warps_per_cta", "order")),
    "SliceLayout": ("slice", ("dim", "parent")),
    "NVMMADistributedLayout": ("nvidia_mma", ("version", "warps_per_cta", "instr_shape")),
    "DotOperandLayout": ("dot_op", ("operand_index", "parent", "k_width")),
    "SwizzledSharedLayout": ("swizzled_shared", ("vec", "per_phase", "max_phase", "order")),
    "NVMMASharedLayout": ("nvmma_shared", ("swizzle_byte_width", "element_bitwidth", "transposed")),
    "DistributedLinearLayout": ("linear", ("reg_bases", "lane_bases", "warp_bases", "block_bases")),
    "SharedLinearLayout": ("shared_linear", ("offset_bases", "block_bases")),
}
_KINDS: Mapping[str, tuple[str, ...]] = {
    "blocked": ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order"),
    "slice": ("dim", "parent"),
    "nvidia_mma": ("versionMajor", "warpsPerCTA", "instrShape"),
    "dot_op": ("opIdx", "parent", "kWidth"),
    "swizzled_shared": ("vec", "perPhase", "maxPhase", "order"),
    "nvmma_shared": ("swizzlingByteWidth", "elementBitWidth", "transposed"),
    "linear": ("register", "lane", "warp", "block"),
    "shared_linear": ("offset", "block"),
}
# Fields that say nothing about where elements live as long as one block holds the tensor.
_IGNORED = ("versionMinor", "alignment", "rank")


def read_encoding(encoding: Any) -> Encoding:
    """Return an encoding from a text of TTGIR, a layout object of Gluon, or itself.

    Raises:
        NotationError: a malformed text.
        LayoutError: an unknown kind, or missing fields.
        NotExpressibleError: a layout over several blocks, or one with padding.

    >>> read_encoding("#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>")
    SwizzledShared(vec=8, per_phase=1, max_phase=8, order=(1, 0))
    """
    if isinstance(encoding, _ENCODINGS):
        return encoding
    if isinstance(encoding, str):
        reader = _Reader(encoding)
        value = reader.value(0)
        if encoding[reader.at :].strip() or not isinstance(value, _ENCODINGS):
            reader.fail("expected one encoding, such as #ttg.blocked<{...}>")
        return value
    name = type(encoding).__name__
    if name not in _FIELDS:
        known = ", ".join(_FIELDS)
        raise LayoutError(f"{name} is no encoding that is known; known: {known}; others: pass bases to from_linear")
    if any(any(basis) for basis in getattr(encoding, "cga_layout", None) or ()):
        raise NotExpressibleError(f"{encoding} spans several blocks; take the layout of one block")
    if getattr(encoding, "fp4_padded", False):
        raise NotExpressibleError(f"{encoding} pads its elements")
    kind, fields = _FIELDS[name]
    values = [_frozen(getattr(encoding, field)) for field in fields]
    if kind == "nvidia_mma":
        values[0] = values[0][0]
    return _made(kind, values)


_ENCODINGS = (Blocked, Slice, NvidiaMma, DotOperand, SwizzledShared, NvmmaShared, Linear)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _made(kind: str, values: list[Any]) -> Encoding:
    if kind in ("linear", "shared_linear"):
        named = zip(_KINDS[kind], values, strict=True)
        return Linear(tuple((name, rows) for name, rows in named if rows))
    if kind in ("slice", "dot_op"):
        values[1] = read_encoding(values[1])
    make: dict[str, Callable[..., Encoding]] = {
        "blocked": Blocked, "slice": Slice, "nvidia_mma": NvidiaMma, "dot_op": DotOperand,
        "swizzled_shared": SwizzledShared, "nvmma_shared": NvmmaShared,
    }  # fmt: skip
    return make[kind](*values)


class _Reader:
    """Values of a text: numbers, lists, words, encodings."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, reason: str) -> NoReturn:
        raise NotationError(reason, text=self.text, position=self.at)

    def next(self) -> re.Match[str]:
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            self.fail("expected a part of an encoding")
        self.at = found.end()
        return found

    def take(self, sign: str) -> bool:
        found = _TOKEN.match(self.text, self.at)
        if found is None or found["sign"] != sign:
            return False
        self.at = found.end()
        return True

    def need(self, sign: str) -> None:
        if not self.take(sign):
            self.fail(f"expected {sign!r} in an encoding")

    def value(self, depth: int) -> Any:
        if depth > 20:
            self.fail("an encoding nested over 20 deep")
        found = self.next()
        if found["kind"]:
            return self.encoding(found["kind"].removeprefix("#ttg."), depth)
        if found["int"]:
            return int(found["int"])
        if found["word"] in ("true", "false"):
            return found["word"] == "true"
        if found["sign"] != "[":
            self.fail("expected a number, a list, or an encoding")
        items: list[Any] = []
        while not self.take("]"):
            if items:
                self.need(",")
            items.append(self.value(depth + 1))
        return tuple(items)

    def encoding(self, kind: str, depth: int) -> Encoding:
        if kind not in _KINDS:
            self.fail(f"unknown encoding {kind}; known: {', '.join(_KINDS)}")
        self.need("<")
        self.need("{")
        fields: dict[str, Any] = {}
        while not self.take("}"):
            if fields:
                self.need(",")
            name = self.next()["word"] or self.fail("expected the name of a field")
            self.need("=")
            fields[name] = self.value(depth + 1)
        self.need(">")
        if fields.pop("fp4Padded", False) or any(any(b) for b in fields.pop("CGALayout", ())):
            raise NotExpressibleError(f"#ttg.{kind} with padding or over several blocks is no layout of one block")
        defaults: dict[str, Any] = {"kWidth": 2} if not kind.endswith("linear") else dict.fromkeys(_KINDS[kind], ())
        missing = [name for name in _KINDS[kind] if name not in fields and name not in defaults]
        unknown = [name for name in fields if name not in (*_KINDS[kind], *_IGNORED)]
        if missing or unknown:
            raise LayoutError(
                f"#ttg.{kind}: missing {', '.join(missing) or 'nothing'}, unknown {', '.join(unknown) or 'nothing'}"
            )
        return _made(kind, [fields.get(name, defaults.get(name)) for name in _KINDS[kind]])


def write_encoding(encoding: Encoding) -> str:
    """Return the text of TTGIR; :func:`read_encoding` reads it back.

    >>> write_encoding(Slice(1, Blocked((1, 4), (8, 4), (4, 1), (1, 0))))[:60]
    '#ttg.slice<{dim = 1, parent = #ttg.blocked<{sizePerThread = '
    """
    if isinstance(encoding, Linear):
        shared = any(name == "offset" for name, _ in encoding.bases)
        return _written("shared_linear" if shared else "linear", dict(encoding.bases))
    kinds = (Blocked, Slice, NvidiaMma, DotOperand, SwizzledShared, NvmmaShared)
    kind = tuple(_KINDS)[kinds.index(type(encoding))]
    fields = {name: getattr(encoding, slot) for name, slot in zip(_KINDS[kind], encoding.__slots__, strict=True)}
    if isinstance(encoding, NvidiaMma):
        fields = {"versionMajor": encoding.version, "versionMinor": 0, **fields}
    return _written(kind, fields)


def _written(kind: str, fields: Mapping[str, Any]) -> str:
    return f"#ttg.{kind}<{{{', '.join(f'{name} = {_value(value)}' for name, value in fields.items())}}}>"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return str(value).lower() if isinstance(value, bool | int) else write_encoding(value)
