"""The bank rule for one access of one warp, exactly as silicon applies it.

A *word* is 4 bytes; word w lives in bank w mod 32.  The lanes of one instruction are served in groups, one group
after another: all 32 lanes together for 1, 2 and 4 bytes per lane, 16 lanes for 8 bytes, 8 lanes for 16 bytes, and
the 8 rows of one matrix for ``ldmatrix`` and ``stmatrix``.  One *wavefront* delivers one word of every bank, so

    wavefronts = sum over groups of  max over banks of  |distinct words that the group touches in the bank|
    ideal      = number of groups with an active lane
    excess     = wavefronts - ideal        (what a profiler reports as bank conflicts)

An 8- or 16-byte *load* whose active lanes l all have lane l^1 (or all have lane l^2) inactive or at the same address
is served in groups of twice the size.  Stores never are.  An aligned access of 8 or 16 bytes covers 2 or 4
neighbouring banks alike, so the code counts units of that size over 16 or 8 bank groups and gets the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import index, or_

from layoutalg.errors import RangeError
from layoutalg.hardware.machine import DEFAULT_MACHINE, Machine
from layoutalg.hardware.machine import machine as machine_of

__all__ = ["AccessReport", "Collision", "Group", "WarpAccess", "global_sectors", "simulate"]

FULL_MASK = 0xFFFFFFFF
SHARED_OPS = ("ld.shared", "st.shared")
MATRIX_OPS = ("ldmatrix", "stmatrix")
GLOBAL_OPS = ("ld.global", "st.global")
WIDTHS = (1, 2, 4, 8, 16)
# The sector rule is measured for loads of up to 8 bytes.
MEASURED_GLOBAL = frozenset(("ld.global", width) for width in (1, 2, 4, 8))
_SHIFT = {1: 2, 2: 2, 4: 2, 8: 3, 16: 4}
_UNMEASURED = ("atom", "red", "cp.async", "ld.shared::cluster", "st.shared::cluster", "cp.reduce")


@dataclass(frozen=True, slots=True)
class WarpAccess:
    """One memory instruction of one warp: what every lane asks for.

    Args:
        op: ``ld.shared``, ``st.shared``, ``ldmatrix``, ``stmatrix``, ``ld.global`` or ``st.global``.
        width: bytes per lane, 1, 2, 4, 8 or 16; per row for the matrix operations, where it is 16.
        addresses: 32 byte addresses, one per lane; 8, 16 or 32 row addresses for the matrix operations.
        mask: bit l says that lane l is active; addresses of inactive lanes are ignored.

    Raises:
        RangeError: unknown or unmeasured operation, wrong width or count, or an active lane whose address is
            negative or not a multiple of the width; names the lanes.

    >>> WarpAccess(op="ld.shared", width=8, addresses=range(0, 132 * 32, 132))
    Traceback (most recent call last):
        ...
    layoutalg.errors.RangeError: ld.shared of 8 bytes: lanes 1, 3, 5, 7, 9, 11, 13, 15 and 8 more are misaligned \
(lane 1 at byte 132); every address must be a multiple of 8
    """

    op: str
    width: int
    addresses: Sequence[int]
    mask: int = FULL_MASK

    def __post_init__(self) -> None:
        check_instruction(self.op, self.width)
        addresses = self.addresses if type(self.addresses) is tuple else tuple(self.addresses)
        if set(map(type, addresses)) != {int}:
            addresses = tuple(_as_int(address, lane) for lane, address in enumerate(addresses))
        object.__setattr__(self, "addresses", addresses)
        check_count(self.op, len(addresses))
        mask = self.mask
        if type(mask) is not int:
            object.__setattr__(self, "mask", mask := index(mask))
        if mask != FULL_MASK:
            check_mask(self.op, mask)
        active = addresses if mask == FULL_MASK else [a for lane, a in enumerate(addresses) if mask >> lane & 1]
        # One OR over all addresses answers for every lane: its low bits and its sign.
        union = reduce(or_, active, 0)
        if union < 0 or union & (self.width - 1) or union >> 63:
            _refuse_addresses(self)

    @property
    def lanes(self) -> tuple[int, ...]:
        """The active lanes; for the matrix operations, the lanes that supply row addresses.

        >>> WarpAccess(op="st.shared", width=4, addresses=range(0, 128, 4), mask=0b1010).lanes
        (1, 3)
        """
        return tuple(lane for lane in range(len(self.addresses)) if self.mask >> lane & 1)


def _as_int(value: object, lane: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise RangeError(f"address of lane {lane} is {value!r}, which is no integer", lane=lane)
    return index(value)


def check_instruction(op: str, width: int) -> None:
    """Refuse an operation and width that the model does not know.

    Raises:
        RangeError: says what is known instead.

    >>> check_instruction("ld.shared", 16)
    """
    if op in SHARED_OPS or op in GLOBAL_OPS:
        if width not in WIDTHS or isinstance(width, bool):
            raise RangeError(f"{op} moves 1, 2, 4, 8 or 16 bytes per lane, not {width!r}", op=op, width=width)
        return
    if op in MATRIX_OPS:
        if width != 16:
            raise RangeError(f"{op} reads rows of 16 bytes, so width is 16, not {width!r}", op=op, width=width)
        return
    known = ", ".join((*SHARED_OPS, *MATRIX_OPS, *GLOBAL_OPS))
    if str(op).startswith(_UNMEASURED):
        raise RangeError(
            f"{op} was never measured, so its cost would be a guess; the simulator knows {known}", op=op, width=width
        )
    raise RangeError(f"unknown operation {op!r}; the simulator knows {known}", op=op, width=width)


def check_count(op: str, count: int) -> None:
    """Refuse a number of addresses that the operation does not take.

    Raises:
        RangeError: says how many it takes.

    >>> check_count("ldmatrix", 8)
    """
    if op in MATRIX_OPS:
        if count not in (8, 16, 32):
            raise RangeError(
                f"{op} takes 8, 16 or 32 row addresses (1, 2 or 4 matrices), not {count}", op=op, count=count
            )
    elif count != 32:
        raise RangeError(
            f"{op} takes 32 addresses, one per lane (mask switches lanes off), not {count}", op=op, count=count
        )


def check_mask(op: str, mask: int) -> None:
    """Refuse a lane mask that the operation does not allow.

    Raises:
        RangeError: not a 32-bit mask, or a partial one for a matrix operation.

    >>> check_mask("st.shared", 0xFF)
    """
    if not 0 <= mask <= FULL_MASK:
        raise RangeError(f"mask {mask:#x} is no 32-bit lane mask", mask=mask)
    if op in MATRIX_OPS and mask not in (0, FULL_MASK):
        raise RangeError(f"{op} is executed by the whole warp: its mask is 0xffffffff, not {mask:#x}", op=op, mask=mask)


def name_lanes(lanes: Sequence[int]) -> str:
    """Spell a list of lanes for a message, at most eight by name.

    >>> name_lanes([3]), name_lanes([1, 2, 5])
    ('lane 3', 'lanes 1, 2, 5')
    """
    text = ", ".join(map(str, lanes[:8])) + (f" and {len(lanes) - 8} more" if len(lanes) > 8 else "")
    return f"lane {text}" if len(lanes) == 1 else f"lanes {text}"


def _refuse_addresses(access: WarpAccess) -> None:
    what = f"{access.op} of {access.width} bytes"
    by_lane = [(lane, access.addresses[lane]) for lane in access.lanes]
    for fault, low, high in (("at a negative address", None, 0), ("beyond 63 bits", 1 << 63, None)):
        lanes = [lane for lane, a in by_lane if (low is None or a >= low) and (high is None or a < high)]
        if lanes:
            verb = "is" if len(lanes) == 1 else "are"
            raise RangeError(f"{what}: {name_lanes(lanes)} {verb} {fault}", lanes=tuple(lanes), op=access.op)
    lanes = [lane for lane, address in by_lane if address % access.width]
    raise RangeError(
        f"{what}: {name_lanes(lanes)} {'is' if len(lanes) == 1 else 'are'} misaligned "
        f"(lane {lanes[0]} at byte {access.addresses[lanes[0]]}); every address must be a multiple of {access.width}",
        lanes=tuple(lanes),
        op=access.op,
        width=access.width,
    )


@dataclass(frozen=True, slots=True)
class Collision:
    """One bank that must serve several words of one group: the lanes that make each other wait.

    Args:
        group: which group of the instruction, from 0.
        bank: the bank.
        words: the distinct words (byte address // 4), ascending; each costs a wavefront.
        lanes: for each word, the lanes that touch it.
    """

    group: int
    bank: int
    words: tuple[int, ...]
    lanes: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        parts = (
            f"word {word} (byte {4 * word}) {name_lanes(lanes)}"
            for word, lanes in zip(self.words, self.lanes, strict=True)
        )
        return f"group {self.group}, bank {self.bank}: {'; '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Group:
    """Lanes that are served together, and the words they touch in each bank.

    Args:
        lanes: the active lanes of the group (rows, for the matrix operations).
        banks: (bank, distinct words) for every bank touched, both ascending.
    """

    lanes: tuple[int, ...]
    banks: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def wavefronts(self) -> int:
        """The most words that one bank serves for this group."""
        return max(len(words) for _, words in self.banks)

    def words(self, bank: int) -> tuple[int, ...]:
        """The distinct words that the group touches in a bank; empty for a bank left alone."""
        return dict(self.banks).get(bank, ())


@dataclass(frozen=True, slots=True)
class AccessReport:
    """What one access costs, in the profiler's units.

    Args:
        access: the access.
        machine: the machine whose constants were used.
        cost: wavefronts for shared memory, 32-byte sectors for global memory.
        ideal: the least cost with these active lanes: groups that have an active lane, or the sectors that would
            hold the distinct bytes.
        degree: the most words that one bank serves in one group ("n-way"); 0 for global memory.
        measured: whether profiler counters confirmed the rule for this operation on this machine.
    """

    access: WarpAccess
    machine: Machine
    cost: int
    ideal: int
    degree: int
    measured: bool

    @property
    def wavefronts(self) -> int:
        """Wavefronts of a shared-memory access.

        Raises:
            RangeError: a global access, whose wavefronts were not measured; ask for ``sectors``.
        """
        if self.access.op in GLOBAL_OPS:
            raise RangeError(f"{self.access.op} is counted in sectors; its wavefronts were not measured")
        return self.cost

    @property
    def sectors(self) -> int:
        """Distinct 32-byte sectors of a global access.

        Raises:
            RangeError: a shared-memory access, which has no sectors.
        """
        if self.access.op not in GLOBAL_OPS:
            raise RangeError(f"{self.access.op} is counted in wavefronts; shared memory has no sectors")
        return self.cost

    @property
    def excess(self) -> int:
        """Cost beyond the ideal; for ``ld.shared`` and ``st.shared``, exactly the bank conflicts of a profiler."""
        return self.cost - self.ideal

    @property
    def conflict_free(self) -> bool:
        """Whether the access costs nothing beyond the ideal."""
        return self.cost == self.ideal

    @property
    def efficiency(self) -> float:
        """Bytes asked for, as a fraction of the bytes of the sectors moved (above 1 when lanes share them).

        Raises:
            RangeError: a shared-memory access.

        >>> simulate(WarpAccess(op="ld.global", width=4, addresses=range(0, 1024, 32))).efficiency
        0.125
        """
        moved = self.sectors * self.machine.sector_bytes
        return len(self.access.lanes) * self.access.width / moved if moved else 1.0

    @property
    def counters(self) -> dict[str, int]:
        """The profiler counters that a launch of this one instruction shows, by name; empty where none was measured.

        >>> quads = WarpAccess(op="ld.shared", width=16, addresses=range(0, 512, 16))
        >>> for name, value in simulate(quads).counters.items():
        ...     print(name, value)
        l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld 4
        l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld 0
        """
        if self.access.op not in SHARED_OPS:
            return {}
        kind = self.access.op[:2]
        return {
            f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{kind}": self.cost,
            f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{kind}": self.excess,
        }

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups that have an active lane, in order, each with its words per bank.

        >>> pairs = WarpAccess(op="ld.shared", width=8, addresses=range(0, 256, 8))
        >>> [(group.lanes[0], group.words(2)) for group in simulate(pairs).groups]
        [(0, (2,)), (16, (34,))]
        """
        if self.access.op in GLOBAL_OPS:
            raise RangeError(f"{self.access.op}: global memory has no banks")
        size = group_size(self.access, self.machine)
        chunks = (range(start, start + size) for start in range(0, len(self.access.addresses), size))
        active = (tuple(lane for lane in chunk if self.access.mask >> lane & 1) for chunk in chunks)
        return tuple(Group(lanes, self._words_per_bank(lanes)) for lanes in active if lanes)

    def _words_per_bank(self, lanes: tuple[int, ...]) -> tuple[tuple[int, tuple[int, ...]], ...]:
        words = {word for lane in lanes for word in self._words_of(lane)}
        banks: dict[int, list[int]] = {}
        for word in sorted(words):
            banks.setdefault(word % self.machine.banks, []).append(word)
        return tuple((bank, tuple(banks[bank])) for bank in sorted(banks))

    def _words_of(self, lane: int) -> range:
        first = self.access.addresses[lane]
        size = self.machine.bank_bytes
        return range(first // size, (first + self.access.width - 1) // size + 1)

    @property
    def collisions(self) -> tuple[Collision, ...]:
        """Every bank that serves more than one word of a group, with the words and the lanes that touch them.

        >>> stride2 = WarpAccess(op="ld.shared", width=4, addresses=range(0, 256, 8))
        >>> print(simulate(stride2).collisions[0])
        group 0, bank 0: word 0 (byte 0) lane 0; word 32 (byte 128) lane 16
        """
        return tuple(
            Collision(
                number,
                bank,
                words,
                tuple(tuple(lane for lane in group.lanes if word in self._words_of(lane)) for word in words),
            )
            for number, group in enumerate(self.groups)
            for bank, words in group.banks
            if len(words) > 1
        )

    def __str__(self) -> str:
        """One line in the profiler's units, then the first collision, if any."""
        head = f"{self.access.op} {self.access.width} B: "
        note = "" if self.measured else " (modelled, not measured)"
        if self.access.op in GLOBAL_OPS:
            return f"{head}{self.cost} sectors, ideal {self.ideal}, efficiency {self.efficiency:.0%}{note}"
        line = f"{head}{_count(self.cost)}, ideal {self.ideal}, excess {self.excess} (bank conflicts){note}"
        collisions = self.collisions
        if not collisions:
            return line
        worst = max(collisions, key=lambda collision: len(collision.words))
        return f"{line}\n  {worst}"

    def _repr_svg_(self) -> str | None:
        """The picture that notebooks show; none for global memory."""
        if self.access.op in GLOBAL_OPS:
            return None
        from layoutalg.draw.banks import bank_map

        return bank_map(self)


def _count(wavefronts: int) -> str:
    return f"{wavefronts} wavefront" if wavefronts == 1 else f"{wavefronts} wavefronts"


def group_size(access: WarpAccess, machine: Machine = DEFAULT_MACHINE) -> int:
    """Lanes that are served together, after merging.

    >>> group_size(WarpAccess(op="ld.shared", width=16, addresses=[0] * 32))
    16
    """
    if access.width <= machine.bank_bytes:
        return machine.lanes
    size = machine.lanes * machine.bank_bytes // access.width
    return 2 * size if access.op == "ld.shared" and _merges(access) else size


def _merges(access: WarpAccess) -> bool:
    lanes = access.addresses
    if access.mask == FULL_MASK:
        pairs = lanes[0] == lanes[1] and lanes[::2] == lanes[1::2]
        return pairs or (lanes[0] == lanes[2] and lanes[::4] == lanes[2::4] and lanes[1::4] == lanes[3::4])
    active = access.lanes
    return any(
        all(not access.mask >> (lane ^ step) & 1 or lanes[lane] == lanes[lane ^ step] for lane in active)
        for step in (1, 2)
    )


def simulate(access: WarpAccess, *, machine: Machine | str = DEFAULT_MACHINE) -> AccessReport:
    """Cost of one access: wavefronts and excess in shared memory, sectors in global memory.

    Law: wavefronts = sum over groups of the most distinct words in one bank; ideal = groups with an active lane;
    sectors = distinct 32-byte sectors touched by active lanes.

    Args:
        access: the instruction, with byte addresses.
        machine: whose constants to use; only compute capability 9.0 was measured, others give ``measured=False``.

    Raises:
        RangeError: the machine is not in the table.

    A column of a 32-column float tile is 32 wavefronts, 31 of them conflicts; a pitch of 33 frees it:

    >>> print(simulate(WarpAccess(op="ld.shared", width=4, addresses=range(0, 33 * 4 * 32, 33 * 4))))
    ld.shared 4 B: 1 wavefront, ideal 1, excess 0 (bank conflicts)
    """
    target = machine if isinstance(machine, Machine) else machine_of(machine)
    if access.op in GLOBAL_OPS:
        return _simulate_global(access, target)
    shift = _SHIFT[access.width]
    units = (target.banks * target.bank_bytes >> shift) - 1
    size = group_size(access, target)
    addresses, mask = access.addresses, access.mask
    cost = ideal = degree = 0
    for start in range(0, len(addresses), size):
        if mask == FULL_MASK:
            touched = {address >> shift for address in addresses[start : start + size]}
        else:
            lanes = range(start, start + size)
            touched = {addresses[lane] >> shift for lane in lanes if mask >> lane & 1}
            if not touched:
                continue
        counts = [0] * (units + 1)
        for unit in touched:
            counts[unit & units] += 1
        most = max(counts)
        cost += most
        ideal += 1
        degree = max(degree, most)
    return AccessReport(access, target, cost, ideal, degree, target.measured)


def _simulate_global(access: WarpAccess, machine: Machine) -> AccessReport:
    size = machine.sector_bytes
    distinct = {access.addresses[lane] for lane in access.lanes}
    # Alignment keeps an access of at most 16 bytes inside one sector.
    cost = len({address // size for address in distinct})
    ideal = -(-len(distinct) * access.width // size)
    measured = machine.measured and (access.op, access.width) in MEASURED_GLOBAL
    return AccessReport(access, machine, cost, ideal, 0, measured)


def global_sectors(access: WarpAccess, *, machine: Machine | str = DEFAULT_MACHINE) -> int:
    """Distinct 32-byte sectors that a global access touches: the profiler's sectors per request.

    Args:
        access: an ``ld.global`` or ``st.global`` access.
        machine: whose sector size to use.

    Raises:
        RangeError: the access is not to global memory.

    >>> global_sectors(WarpAccess(op="ld.global", width=4, addresses=range(16, 144, 4)))
    5
    """
    return simulate(access, machine=machine).sectors
