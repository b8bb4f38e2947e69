"""The notation of layouts, as Python expressions and as text.

Both spell the same thing, so a printed layout can be pasted into Python:

    S[(8,2,4,2):(4@laneid,1@warpid,1@laneid,1)] + R[2:4@warpid] + 5@warpid

``S[extents : strides]`` is the shard, outermost first; ``R[...]`` the replica; the rest are offsets.  A stride without
``@`` is on the memory axis ``m``.  ``S[4,8]`` alone is row-major, ``S[8:1]`` one digit, ``S[4:8, 8:1]`` digit by
digit, ``S[()]`` the empty shard.  An offset may hold parameters with their range, ``128*s[0:2]``, and a stride may be
an expression in positive integer symbols, ``32*q``.

>>> TEXT = "S[(2,4):(4@laneid,1)] + R[2:1@warpid] + 128*s[0:2]"
>>> format_parts(*parse_parts(TEXT)) == TEXT
True
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NoReturn

from layoutalg.axis import Axis, Placed, m
from layoutalg.decide import Number, as_number
from layoutalg.errors import AxisError, LayoutError, NotationError, RangeError
from layoutalg.index import Param
from layoutalg.iters import Iter, Iters, make_iter

__all__ = ["R", "S", "Spec", "format_parts", "parse_parts", "parse_region", "parse_shape", "row_major"]

Offset = tuple[tuple[Axis, Number], ...]


class Spec:
    """A layout being written: what ``S[...] + R[...] + 5@warpid`` evaluates to; ``TileLayout(spec)`` closes it."""

    __slots__ = ("offset", "replica", "shard")

    def __init__(self, shard: Iters | None, replica: Iters = (), offset: Offset = ()) -> None:
        self.shard, self.replica, self.offset = shard, replica, offset

    def __add__(self, other: object) -> Spec:
        if isinstance(other, Spec):
            if self.shard is not None and other.shard is not None:
                raise LayoutError("a layout has one shard: two S[...] cannot be added (see TileLayout.direct_sum)")
            shard = self.shard if self.shard is not None else other.shard
            return Spec(shard, self.replica + other.replica, _join(self.offset, other.offset))
        if isinstance(other, Placed):
            return Spec(self.shard, self.replica, _join(self.offset, ((other.axis, as_number(other.value, "offset")),)))
        return Spec(self.shard, self.replica, _join(self.offset, ((m, as_number(other, "offset")),)))

    def __radd__(self, other: object) -> Spec:
        return self + other

    def __repr__(self) -> str:
        return format_parts(self.shard or (), self.replica, self.offset)


def _join(a: Offset, b: Offset) -> Offset:
    for axis, _ in b:
        if any(axis is known for known, _ in a):
            raise LayoutError(f"the offset on {axis.name} is given twice", axis=axis.name)
    return a + b


class _Builder:
    """``S`` and ``R``: subscription writes a list of iters."""

    __slots__ = ("letter",)

    def __init__(self, letter: str) -> None:
        self.letter = letter

    def __getitem__(self, key: Any) -> Spec:
        iters = self._iters(key)
        return Spec(iters) if self.letter == "S" else Spec(None, iters)

    def _iters(self, key: Any) -> Iters:
        if type(key) is slice:
            return self._zip(key)
        entries = key if type(key) is tuple else tuple(key) if isinstance(key, list) else (key,)
        if any(type(entry) is slice for entry in entries):
            if not all(type(entry) is slice for entry in entries):
                raise LayoutError(f"{self.letter}[...] mixes extent:stride pairs with bare extents")
            return tuple(it for entry in entries for it in self._zip(entry))
        return row_major(entries)

    def _zip(self, key: slice) -> Iters:
        if key.step is not None or key.start is None or key.stop is None:
            raise LayoutError(f"{self.letter}[extents : strides] needs both sides and no step")
        extents, strides = _listed(key.start), _listed(key.stop)
        if len(extents) != len(strides):
            raise LayoutError(f"{self.letter}[...] has {len(extents)} extents but {len(strides)} strides")
        return tuple(map(_pair, extents, strides))

    def __repr__(self) -> str:
        return self.letter


def _listed(side: Any) -> Any:
    # A Placed stride is a tuple too, but one entry.
    return side if isinstance(side, (tuple, list)) and type(side) is not Placed else (side,)


def _pair(extent: Any, stride: Any) -> Iter:
    if type(stride) is int:
        return make_iter(extent, stride, m)
    if type(stride) is Placed:
        return make_iter(extent, stride.value, stride.axis)
    return make_iter(extent, stride, m)


def row_major(extents: Iterable[Any]) -> Iters:
    """Return row-major iters on ``m`` for a shape.

    >>> row_major((4, 8))
    (4:8, 8:1)
    """
    iters: list[Iter] = []
    pitch: Number = 1
    for extent in reversed(tuple(extents)):
        iters.append(make_iter(extent, pitch, m))
        pitch = pitch * iters[-1].extent
    return tuple(reversed(iters))


S = _Builder("S")
R = _Builder("R")


def format_parts(shard: Iters, replica: Iters, offset: Iterable[tuple[Axis, Number]]) -> str:
    """Print shard, replica and offset in the notation; :func:`parse_parts` reads it back.

    >>> format_parts(row_major((4, 8)), (), [(m, 3)])
    'S[(4,8):(8,1)] + 3'
    """
    parts = [f"S[{_format_iters(shard)}]"]
    if replica:
        parts.append(f"R[{_format_iters(replica)}]")
    parts.extend(_format_placed(value, axis) for axis, value in offset)
    return " + ".join(parts)


def _format_iters(iters: Iters) -> str:
    if not iters:
        return "()"
    extents = [str(it.extent) for it in iters]
    strides = [_format_placed(it.stride, it.axis) for it in iters]
    if len(iters) == 1:
        return f"{extents[0]}:{strides[0]}"
    return f"({','.join(extents)}):({','.join(strides)})"


def _format_placed(value: Number, axis: Axis) -> str:
    text = str(value)
    if type(value) is not int and ("+" in text or "-" in text[1:]):
        text = f"({text})"
    return text if axis is m else f"{text}@{axis.name}"


def parse_parts(text: str) -> tuple[Iters, Iters, Offset]:
    """Read the notation: shard, replica, offset.

    Raises:
        NotationError: malformed; the message puts a caret under the position.
        AxisError: an axis that does not exist (raised as NotationError with the nearest names and the caret).

    >>> parse_parts("S[4,8] + R[2:1@warpid] + 3")
    ((4:8, 8:1), (2:1@warpid,), ((m, 3),))
    """
    if not isinstance(text, str):
        raise LayoutError(f"a layout's notation is a str, not {text!r}")
    if re.match(r"\s*(?:Sw|Swizzle|F2)\s*<", text):
        raise NotationError("a swizzled layout; layoutalg.parse_layout reads it", text=text, position=0)
    return _Parser(text).layout()


_TOKEN = re.compile(r"\s*(?:(?P<int>[0-9]+)|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign>\*\*|[-+*@:,()\[\]]))")


class _Parser:
    """Recursive descent over tokens; every error knows its column."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        position = 0
        while position < len(text.rstrip()):
            found = _TOKEN.match(text, position)
            if found is None:
                start = position + len(text[position:]) - len(text[position:].lstrip())
                raise NotationError(f"unexpected character {text[start]!r}", text=text, position=start)
            kind = str(found.lastgroup)
            self.tokens.append((kind, found[kind], found.start(kind)))
            position = found.end()
        self.tokens.append(("end", "the end", len(text.rstrip())))
        self.at = self.depth = 0

    def fail(self, reason: str, *, at: int | None = None) -> NoReturn:
        raise NotationError(reason, text=self.text, position=self.tokens[self.at if at is None else at][2])

    def peek(self, sign: str) -> bool:
        return self.tokens[self.at][1] == sign and self.tokens[self.at][0] != "end"

    def take(self, sign: str) -> bool:
        found = self.peek(sign)
        self.at += found
        return found

    def expect(self, sign: str, where: str) -> None:
        if not self.take(sign):
            self.fail(f"expected {sign!r} {where}, found {self.tokens[self.at][1]!r}")

    def layout(self) -> tuple[Iters, Iters, Offset]:
        if not self.peek("S"):
            self.fail("a layout starts with its shard, S[extents:strides]")
        shard: Iters | None = None
        replica: Iters = ()
        offset: Offset = ()
        while True:
            start = self.at
            if (self.peek("S") or self.peek("R")) and self.tokens[self.at + 1][1] == "[":
                letter = self.tokens[self.at][1]
                self.at += 1
                iters = self.iters(letter)
                if letter == "R":
                    replica += iters
                elif shard is None:
                    shard = iters
                else:
                    self.fail("a layout has one shard; this is the second S[...]", at=start)
            else:
                axis, value = self.placed(self.product(), start)
                if any(axis is known for known, _ in offset):
                    self.fail(f"the offset on {axis.name} is given twice", at=start)
                offset += ((axis, value),)
            if not self.take("+"):
                break
        if self.tokens[self.at][0] != "end":
            self.fail(f"expected '+' or the end, found {self.tokens[self.at][1]!r}")
        return shard or (), replica, offset

    def iters(self, letter: str) -> Iters:
        opening = self.at
        self.expect("[", f"after {letter}")
        first = self.entries(strides=False)
        if not self.take(":"):
            self.expect("]", f"or ':' in {letter}[...]")
            whole: Iters = self.checked(row_major, first, at=opening)
            return whole
        second = self.entries(strides=True)
        if len(first) != len(second):
            self.fail(f"{letter}[...] has {len(first)} extents but {len(second)} strides", at=opening)
        pairs = list(zip(first, second, strict=True))
        while self.take(","):
            extent = self.sum()
            self.expect(":", "between extent and stride")
            start = self.at
            axis, stride = self.placed(self.sum(), start)
            pairs.append((extent, Placed(stride, axis)))
        self.expect("]", f"to close {letter}[...]")
        return tuple(self.checked(_pair, extent, stride, at=opening) for extent, stride in pairs)

    def region_entry(self, extent: Number) -> tuple[Number, Number] | Number:
        """Read ``name``, ``index`` or ``begin:end``; in a region ``*`` keeps its meaning and a name is a parameter."""
        kind, text, _ = self.tokens[self.at]
        if kind == "name" and self.tokens[self.at + 1][1] in (",", "the end"):
            self.at += 1
            bare: Number = self.checked(Param, text, 0, extent, at=self.at - 1)
            return bare
        begin = self.sum()
        return (begin, self.sum()) if self.take(":") else begin

    def entries(self, *, strides: bool) -> list[Any]:
        """Read one entry, ``(a,b,...)``, or, before ``]``, ``a,b,...``."""
        if self.peek("(") and self.tokens[self.at + 1][1] == ")":
            self.at += 2
            return []
        mark = self.at
        if self.take("("):
            items = [self.entry(strides)]
            if self.peek(","):
                while self.take(",") and not self.peek(")"):
                    items.append(self.entry(strides))
                self.expect(")", "to close the list")
                return items
            self.at = mark
        items = [self.entry(strides)]
        while not strides and self.take(","):
            items.append(self.entry(strides))
        return items

    def entry(self, strides: bool) -> Any:
        start = self.at
        value = self.sum()
        if not strides:
            return value
        axis, value = self.placed(value, start)
        return Placed(value, axis)

    def placed(self, value: Number, start: int) -> tuple[Axis, Number]:
        if not self.take("@"):
            return m, value
        kind, name, _ = self.tokens[self.at]
        if kind != "name":
            self.fail(f"expected an axis name after '@', found {name!r}")
        axis: Axis = self.checked(Axis.get, name, at=self.at)
        self.at += 1
        return axis, self.checked(as_number, value, "value", at=start)

    def sum(self) -> Number:
        value = self.product()
        while self.peek("+") or self.peek("-"):
            sign = 1 if self.tokens[self.at][1] == "+" else -1
            self.at += 1
            value = value + sign * self.product()
        return value

    def product(self) -> Number:
        start = self.at
        value = self.atom()
        while self.take("*"):
            factor = self.atom()
            value = self.checked(_multiply, value, factor, at=start)
        return value

    def atom(self) -> Number:
        kind, text, _ = self.tokens[self.at]
        if self.peek("-") or self.peek("("):
            self.depth += 1
            if self.depth > 50:
                self.fail("signs and parentheses nested over 50 deep")
            self.at += 1
            value = -self.atom() if text == "-" else self.sum()
            if text == "(":
                self.expect(")", "to close the expression")
            self.depth -= 1
            return value
        if kind == "int":
            self.at += 1
            if len(text) > 4000:
                self.fail("a number of over 4000 digits", at=self.at - 1)
            return self.power(int(text))
        if kind != "name":
            self.fail(f"expected a number, found {text!r}")
        self.at += 1
        if self.take("["):
            start = self.at - 2
            begin, end = self.signed(":"), self.signed("]")
            return self.checked(Param, text, begin, end, at=start)
        return self.power(_symbol(text))

    def power(self, base: Number) -> Number:
        if not self.take("**"):
            return base
        kind, text, _ = self.tokens[self.at]
        if kind != "int" or len(text) > 3:
            self.fail("expected a small integer exponent after '**'")
        self.at += 1
        return base ** int(text)

    def signed(self, closing: str) -> int:
        sign = -1 if self.take("-") else 1
        kind, text, _ = self.tokens[self.at]
        if kind != "int":
            self.fail(f"expected an integer in the range of a parameter, found {text!r}")
        self.at += 1
        self.expect(closing, "in the range of a parameter")
        return sign * int(text)

    def checked(self, function: Any, *args: Any, at: int) -> Any:
        try:
            return function(*args)
        except NotationError:
            raise
        except (AxisError, LayoutError) as error:
            self.fail(str(error), at=at)


def _multiply(a: Number, b: Number) -> Number:
    try:
        return a * b
    except TypeError:
        raise RangeError(f"{a} times {b} is not affine in the parameters") from None


def _symbol(name: str) -> Number:
    from layoutalg.symbolic import symbol

    return symbol(name)


def parse_region(text: str, shape: tuple[Number, ...]) -> list[tuple[Number, Number] | Number]:
    """Read a region: per dimension ``begin:end``, one index, or a bare name (a parameter over the whole extent).

    Raises:
        NotationError: malformed, or not one entry per dimension.

    >>> parse_region("s,0:1,0:4", (2, 1, 4))
    [s[0:2], (0, 1), (0, 4)]
    """
    parser = _Parser(text)
    entries: list[tuple[Number, Number] | Number] = []
    while True:
        if len(entries) == len(shape):
            parser.fail(f"the region has more entries than the {len(shape)} dimensions of the shape")
        entries.append(parser.region_entry(shape[len(entries)]))
        if not parser.take(","):
            break
    if parser.tokens[parser.at][0] != "end":
        parser.fail(f"expected ',' or the end, found {parser.tokens[parser.at][1]!r}")
    if len(entries) != len(shape):
        parser.fail(f"the region has {len(entries)} entries for {len(shape)} dimensions")
    return entries


def parse_shape(text: str) -> tuple[int, ...]:
    """Read logical extents: ``4x32``, ``4,32`` or ``(4, 32)``.

    Raises:
        NotationError: not a list of positive integers.

    >>> parse_shape("4x32"), parse_shape("(4, 32)")
    ((4, 32), (4, 32))
    """
    entries = re.split(r"[x,]", text.strip().removeprefix("(").removesuffix(")").removesuffix(","))
    position = text.find(entries[0]) if entries else 0
    for entry in entries:
        if not entry.strip().isdecimal() or int(entry) < 1:
            raise NotationError(f"expected a positive extent, found {entry.strip()!r}", text=text, position=position)
        position += len(entry) + 1
    return tuple(int(entry) for entry in entries)
