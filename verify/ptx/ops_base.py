"""What the table of operations is made of: operand slots, effects and operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from verify.ptx.domain import Bits, Bool, Domain

__all__ = [
    "AsyncCopy",
    "AsyncCopyCommit",
    "AsyncCopyWait",
    "BarrierArrive",
    "BarrierInit",
    "BarrierTryWait",
    "BlockBarrier",
    "Branch",
    "Compute",
    "Effect",
    "Elect",
    "Exit",
    "Kind",
    "Load",
    "Operation",
    "Shuffle",
    "Slot",
    "Store",
    "TmemAlloc",
    "TmemDealloc",
    "TmemFence",
    "TmemLoad",
    "TmemRelinquish",
    "TmemStore",
    "TmemWait",
    "Trap",
    "WarpBarrier",
]


class Kind(Enum):
    """What may stand in an operand slot."""

    RESULT = "a result register"
    VALUE = "a register or a constant"
    CONSTANT = "a constant"
    PREDICATE_RESULT = "a predicate to be written"
    PREDICATE = "a predicate"
    RESULTS = "a vector of result registers"
    VALUES = "a vector of registers or constants"
    ADDRESS = "an address"
    PARAMETER = "a kernel parameter"
    LABEL = "a label"
    SPECIAL = "a special register"
    SYMBOL = "a variable"
    ELECTED = "_|p"
    SHUFFLED = "a register, or a register and a predicate"


@dataclass(frozen=True, slots=True)
class Slot:
    """One operand position.

    Attributes:
        kind: what may stand there.
        width: bits of the value; of each element of a vector.
        wider: a wider register is accepted (the ISA allows it for ld, st and cvt).
        count: elements of a vector.
    """

    kind: Kind
    width: int = 32
    wider: bool = False
    count: int = 1


@dataclass(frozen=True, slots=True)
class Compute:
    """A pure function of its operands.

    Attributes:
        meaning: ``meaning(domain, *operands)``; a tuple when there are several results.
        signed: how a narrow result fills a wider register.
        requires: a condition on the operands outside which the result is unspecified.
        hazard: that condition in words.
    """

    meaning: Callable[..., Bits | Bool]
    signed: bool = False
    requires: Callable[..., Bool] | None = None
    hazard: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """Read ``count`` elements of ``width`` bits; ``space`` is ````, for generic addresses, or a state space."""

    space: str
    width: int
    count: int
    signed: bool
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """Write ``count`` elements of ``width`` bits."""

    space: str
    width: int
    count: int


@dataclass(frozen=True, slots=True)
class Branch:
    """Go to a label."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The thread ends."""


@dataclass(frozen=True, slots=True)
class Trap:
    """The program aborts; reaching it is a finding."""


@dataclass(frozen=True, slots=True)
class BlockBarrier:
    """All threads of the block meet."""


@dataclass(frozen=True, slots=True)
class WarpBarrier:
    """The threads of the warp that the mask names meet."""


@dataclass(frozen=True, slots=True)
class AsyncCopy:
    """Start copying up to 16 bytes from global to shared memory."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AsyncCopyCommit:
    """Close the current group of copies."""


@dataclass(frozen=True, slots=True)
class AsyncCopyWait:
    """Wait until at most N groups (all, when ``everything``) are under way."""

    everything: bool


@dataclass(frozen=True, slots=True)
class BarrierInit:
    """Initialise an mbarrier object in shared memory."""


@dataclass(frozen=True, slots=True)
class BarrierArrive:
    """Arrive on an mbarrier."""


@dataclass(frozen=True, slots=True)
class BarrierTryWait:
    """Wait for the phase of an mbarrier with a given parity."""


@dataclass(frozen=True, slots=True)
class Elect:
    """Choose one thread of the warp."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Exchange a word within the warp; ``mode`` is ``up``, ``down``, ``bfly`` or ``idx``."""

    mode: str


@dataclass(frozen=True, slots=True)
class TmemAlloc:
    """Allocate columns of tensor memory."""


@dataclass(frozen=True, slots=True)
class TmemDealloc:
    """Free columns of tensor memory."""


@dataclass(frozen=True, slots=True)
class TmemRelinquish:
    """Give up the right to allocate."""


@dataclass(frozen=True, slots=True)
class TmemLoad:
    """Read tensor memory into registers; ``packed`` takes two 16-bit columns into one register."""

    shape: str
    repeat: int
    packed: bool


@dataclass(frozen=True, slots=True)
class TmemStore:
    """Write registers into tensor memory."""

    shape: str
    repeat: int
    packed: bool


@dataclass(frozen=True, slots=True)
class TmemWait:
    """Wait for this thread's tensor-memory loads, or stores."""

    stores: bool


@dataclass(frozen=True, slots=True)
class TmemFence:
    """Order tensor-memory operations with a thread barrier after (or before) it."""

    before: bool


Effect = (
    Compute
    | Load
    | Store
    | Branch
    | Exit
    | Trap
    | BlockBarrier
    | WarpBarrier
    | AsyncCopy
    | AsyncCopyCommit
    | AsyncCopyWait
    | BarrierInit
    | BarrierArrive
    | BarrierTryWait
    | Elect
    | Shuffle
    | TmemAlloc
    | TmemDealloc
    | TmemRelinquish
    | TmemLoad
    | TmemStore
    | TmemWait
    | TmemFence
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the table.

    Attributes:
        name: the opcode with all its modifiers.
        slots: operands in the order of the text, results first.
        effect: what it does.
        section: title of the PTX ISA section that defines it.
    """

    name: str
    slots: tuple[Slot, ...]
    effect: Effect
    section: str


def results(domain: Domain, operation: Operation, *operands: Bits) -> Bits:
    """Apply the meaning of a pure operation: the way every interpreter and every test does it."""
    if not isinstance(operation.effect, Compute):
        raise TypeError(f"{operation.name} is not a pure function")
    return operation.effect.meaning(domain, *operands)
