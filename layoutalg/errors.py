"""Every error that the library raises on purpose.

All of them are :class:`LayoutError`, hence ``ValueError``.  *Misuse* (a malformed text, an axis that does not
exist, a region that leaves its shape) and *impossibility* (no layout has the values that were asked for) are
different classes, because a compiler writer handles them differently.

A message says what was asked, which part of it fails, why, and what would work; the same facts are fields.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AxisError",
    "LayoutError",
    "NotExpressibleError",
    "NotationError",
    "RangeError",
    "RegionError",
    "UndecidedError",
]


class LayoutError(ValueError):
    """Base class of the library's errors; ``facts`` holds what the message says, by name.

    >>> try:
    ...     raise RegionError("region[0] = [3, 3) is empty", dim=0, begin=3, end=3)
    ... except LayoutError as error:
    ...     print(error, error.facts["dim"])
    region[0] = [3, 3) is empty 0
    """

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args[0], self.facts))


def _rebuild(cls: type[LayoutError], message: str, facts: dict[str, Any]) -> LayoutError:
    return cls(message, **facts)


class NotationError(LayoutError):
    """A text is not the notation of a layout; the message puts a caret under the position.

    Fields in ``facts``: ``text``, ``position`` (0-based column), ``reason``.
    """

    def __init__(self, reason: str, *, text: str, position: int) -> None:
        self.text, self.position, self.reason = text, position, reason
        super().__init__(f"{reason}\n  {text}\n  {' ' * position}^", text=text, position=position, reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_notation, (self.reason, self.text, self.position))


def _rebuild_notation(reason: str, text: str, position: int) -> NotationError:
    return NotationError(reason, text=text, position=position)


class AxisError(LayoutError):
    """An axis is unknown, registered twice with different meanings, or of the wrong kind for the request."""


class RegionError(LayoutError):
    """A shape, coordinate or region does not fit the layout: wrong rank, empty, or out of bounds."""


class RangeError(LayoutError):
    """A value leaves the range that its meaning allows (int64, an extent of at least 1, a permutation)."""


class NotExpressibleError(LayoutError):
    """The request is meaningful but no layout has these values; ``index`` is the first place that shows it.

    Attributes:
        index: the smallest index of the result at which every candidate fails, or ``None`` where the obstacle
            is not a single index (a boundary that no iter has, for example).
    """

    def __init__(self, message: str, *, index: Any = None, **facts: Any) -> None:
        super().__init__(message, index=index, **facts)
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args[0], self.facts))


class UndecidedError(LayoutError):
    """A fact that the answer depends on could not be decided; the message states the missing fact."""
