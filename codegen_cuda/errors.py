"""The two ways in which asking for a kernel can fail."""

from __future__ import annotations

from typing import Any

from layoutalg.errors import LayoutError

__all__ = ["BuildError", "PlanError"]


class PlanError(LayoutError):
    """No plan serves the request: widths, extents, registers or scope; the message says which and what would work.

    >>> try:
    ...     raise PlanError("V = 512 registers per lane exceed max_registers = 128", needed=512, limit=128)
    ... except LayoutError as error:
    ...     print(error.facts["needed"])
    512
    """


class BuildError(LayoutError):
    """A kernel could not be compiled, assembled or launched.

    Attributes:
        log: everything the tool said, ``""`` where no tool got to run.
        line: 1-based line of the text that the tool rejects, ``None`` where it names none.
        source_line: that line's text, ``""`` where there is none.

    >>> error = BuildError("nvrtc rejects kernel.cu", log="kernel.cu(3): error", line=3, source_line="a[0] = b;")
    >>> error.line, error.source_line
    (3, 'a[0] = b;')
    """

    def __init__(
        self, message: str, *, log: str = "", line: int | None = None, source_line: str = "", **facts: Any
    ) -> None:
        super().__init__(message, log=log, line=line, source_line=source_line, **facts)
        self.log, self.line, self.source_line = log, line, source_line
