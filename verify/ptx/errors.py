"""The one error of the PTX checker, and the findings of a run.

``PtxError`` is for text that cannot be read or is not understood: an unknown instruction is never guessed at.
``Finding`` is a defect of a program that *was* understood: an access out of bounds, a race, a lost barrier.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding", "FindingError", "PtxError"]


class PtxError(ValueError):
    """PTX that the checker does not accept, with the place where it stops.

    Attributes:
        reason: what is wrong, without the place.
        file: the name given to the text.
        line: 1-based line of the PTX text, 0 where no line is to blame.

    >>> print(PtxError("no operation 'frob.b32' in the table", file="k.ptx", line=12))
    k.ptx:12: no operation 'frob.b32' in the table
    """

    def __init__(self, reason: str, *, file: str = "<ptx>", line: int = 0) -> None:
        self.reason, self.file, self.line = reason, file, line
        super().__init__(f"{file}:{line}: {reason}" if line else f"{file}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.reason, self.file, self.line))


def _rebuild(cls: type[PtxError], reason: str, file: str, line: int) -> PtxError:
    return cls(reason, file=file, line=line)


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect of a program, with a witness.

    Attributes:
        kind: one of :data:`KINDS`, stable and meant for programs.
        message: the defect in words, for people.
        line: 1-based line of the PTX instruction.
        source: ``(file, line)`` of the CUDA text, where the PTX carries ``.loc``.
        block: block index ``(x, y, z)``; ``None`` where no single block is to blame.
        thread: thread index ``(x, y, z)`` in the block.
        address: the byte address (or TMEM address) concerned.
        other: the second party of a race: its thread, with its line when known.
    """

    kind: str
    message: str
    line: int
    source: tuple[str, int] | None = None
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    address: int | None = None
    other: str = ""

    def __str__(self) -> str:
        where = f"PTX line {self.line}"
        if self.source is not None:
            where += f" ({self.source[0]}:{self.source[1]})"
        if self.block is not None:
            where += f", block {self.block}"
        if self.thread is not None:
            where += f", thread {self.thread}"
        if self.address is not None:
            where += f", address {self.address:#x}"
        return f"{self.kind}: {self.message} [{where}]" + (f"; other party: {self.other}" if self.other else "")


class FindingError(PtxError):
    """A finding, raised: the caller asked for a clean run and did not get one."""

    def __init__(self, finding: Finding, *, file: str = "<ptx>") -> None:
        self.finding = finding
        super().__init__(str(finding), file=file, line=finding.line)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_finding, (self.finding, self.file))


def _rebuild_finding(finding: Finding, file: str) -> FindingError:
    return FindingError(finding, file=file)
