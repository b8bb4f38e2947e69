"""Constants of the machines, each with its source, and whether the bank rule was measured there.

The rule of the simulator (groups of lanes, distinct words per bank) reproduces every access measured on compute
capability 9.0.  Elsewhere the same rule is a model: results carry ``measured=False`` and certificates list
:attr:`Machine.assumption`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from layoutalg.errors import RangeError

__all__ = ["DEFAULT_MACHINE", "MACHINES", "Machine", "machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """One compute capability: what the bank model and the planners need to know of it.

    Args:
        name: the compiler's name of the target, ``sm_90`` for compute capability 9.0.
        capability: compute capability, (major, minor).
        lanes: threads of a warp.
        banks: shared-memory banks.
        bank_bytes: bytes that one bank delivers in one wavefront.
        sector_bytes: bytes of one global-memory sector.
        shared_bytes_per_block: most shared memory of one block, opt-in dynamic allocation included.
        static_shared_bytes: most shared memory of one block without opting in.
        measured: whether profiler counters on this machine confirmed the bank rule.
        source: where the constants come from.

    >>> machine("sm_90").banks, machine("9.0").measured, machine("sm_80").measured
    (32, True, False)
    """

    name: str
    capability: tuple[int, int]
    lanes: int
    banks: int
    bank_bytes: int
    sector_bytes: int
    shared_bytes_per_block: int
    static_shared_bytes: int
    measured: bool
    source: str

    @property
    def assumption(self) -> str:
        """What a certificate for this machine takes for granted about banks; empty where it was measured.

        >>> machine("sm_80").assumption
        'sm_80 serves shared memory by the bank rule that was measured on sm_90'
        """
        if self.measured:
            return ""
        return f"{self.name} serves shared memory by the bank rule that was measured on {DEFAULT_MACHINE.name}"


_GUIDE = "CUDA C++ Programming Guide, technical specifications per compute capability"
_COUNTERS = f"{_GUIDE}; bank rule: profiler counters of 3,237 shared and 145 global warp accesses on an H200"


def _machine(major: int, minor: int, *, shared_kib: int, measured: bool = False) -> Machine:
    return Machine(
        name=f"sm_{major}{minor}",
        capability=(major, minor),
        lanes=32,
        banks=32,
        bank_bytes=4,
        sector_bytes=32,
        shared_bytes_per_block=shared_kib * 1024,
        static_shared_bytes=48 * 1024,
        measured=measured,
        source=_COUNTERS if measured else _GUIDE,
    )


_TABLE = (
    _machine(7, 0, shared_kib=96),
    _machine(7, 5, shared_kib=64),
    _machine(8, 0, shared_kib=163),
    _machine(8, 6, shared_kib=99),
    _machine(8, 9, shared_kib=99),
    _machine(9, 0, shared_kib=227, measured=True),
    _machine(10, 0, shared_kib=227),
    _machine(10, 3, shared_kib=227),
    _machine(12, 0, shared_kib=99),
)

MACHINES: Mapping[str, Machine] = MappingProxyType({entry.name: entry for entry in _TABLE})
"""Every machine by its compiler name."""

DEFAULT_MACHINE = MACHINES["sm_90"]
"""The machine on which the bank rule was measured."""


def machine(name: Machine | str) -> Machine:
    """Look up a machine by compiler name (``sm_90``, ``sm_90a``) or compute capability (``9.0``).

    Raises:
        RangeError: the table has no such machine; names those it has.

    >>> machine("sm_100a").capability
    (10, 0)
    """
    if isinstance(name, Machine):
        return name
    text = name.lower().rstrip("af") if name.lower().startswith("sm_") else "sm_" + name.replace(".", "")
    found = MACHINES.get(text)
    if found is None:
        raise RangeError(f"unknown machine {name!r}; known: {', '.join(MACHINES)}", machine=name)
    return found
