"""What moving a fragment to or from a tile costs: one access per warp and instruction.

The tile's layout says where element n is stored; the fragment's layout says which lane holds it in which slot.  The
two together are a list of warp instructions, and each is priced by the bank rule, in the profiler's units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from layoutalg.banks.access import GLOBAL_OPS, SHARED_OPS, AccessReport, Collision, simulate
from layoutalg.banks.instructions import Instruction, instructions_of
from layoutalg.errors import RangeError
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.machine import DEFAULT_MACHINE, Machine
from layoutalg.swizzled import SwizzledLayout
from layoutalg.tile import TileLayout

__all__ = ["FragmentReport", "InstructionReport", "global_report", "shared_report"]


@dataclass(frozen=True, slots=True)
class InstructionReport:
    """One instruction of one warp, and its cost.

    Args:
        warp: number of the warp.
        registers: the fragment's element slots that the instruction fills or empties, in memory order.
        report: cost of the access, with groups, words and colliding lanes.
    """

    warp: int
    registers: tuple[int, ...]
    report: AccessReport

    @property
    def cost(self) -> int:
        """Wavefronts, or sectors of a global access."""
        return self.report.cost

    @property
    def wavefronts(self) -> int:
        """Wavefronts of a shared-memory access."""
        return self.report.wavefronts

    @property
    def sectors(self) -> int:
        """Sectors of a global access."""
        return self.report.sectors

    @property
    def ideal(self) -> int:
        """The least cost with the same active lanes."""
        return self.report.ideal

    @property
    def excess(self) -> int:
        """Cost beyond the ideal."""
        return self.report.excess

    @property
    def degree(self) -> int:
        """The most words that one bank serves in one group."""
        return self.report.degree

    @property
    def collisions(self) -> tuple[Collision, ...]:
        """Banks that serve several words of a group, with words and lanes."""
        return self.report.collisions

    def __str__(self) -> str:
        slots = ",".join(map(str, self.registers[:8])) + (",..." if len(self.registers) > 8 else "")
        return f"warp {self.warp}, registers {slots}: {self.report}"


@dataclass(frozen=True, slots=True)
class FragmentReport:
    """The instructions that move a fragment, in order (warp by warp), and their sum.

    Args:
        dtype: element type.
        op: the operation.
        vector: elements that one address covers (a lane's access, or a matrix row).
        instructions: one report per warp and instruction.
    """

    dtype: Dtype
    op: str
    vector: int
    instructions: tuple[InstructionReport, ...]

    @property
    def cost(self) -> int:
        """All wavefronts, or all sectors of a global transfer."""
        return sum(one.report.cost for one in self.instructions)

    @property
    def wavefronts(self) -> int:
        """All wavefronts of a shared-memory transfer."""
        return sum(one.wavefronts for one in self.instructions)

    @property
    def sectors(self) -> int:
        """All sectors of a global transfer."""
        return sum(one.sectors for one in self.instructions)

    @property
    def ideal(self) -> int:
        """The sum of the instructions' ideals."""
        return sum(one.ideal for one in self.instructions)

    @property
    def excess(self) -> int:
        """All cost beyond the ideal: the bank conflicts that a profiler counts."""
        return self.cost - self.ideal

    @property
    def conflict_free(self) -> bool:
        """Whether no instruction costs more than its ideal."""
        return self.excess == 0

    @property
    def degree(self) -> int:
        """The worst degree of all instructions."""
        return max((one.degree for one in self.instructions), default=0)

    @property
    def measured(self) -> bool:
        """Whether profiler counters confirmed the rule for these instructions on this machine."""
        return all(one.report.measured for one in self.instructions)

    @property
    def counters(self) -> dict[str, int]:
        """The profiler counters of all instructions together, by name; empty where none was measured."""
        total: dict[str, int] = {}
        for one in self.instructions:
            for name, value in one.report.counters.items():
                total[name] = total.get(name, 0) + value
        return total

    @property
    def collisions(self) -> tuple[tuple[int, Collision], ...]:
        """Every collision of every instruction, with the number of the instruction."""
        return tuple((at, hit) for at, one in enumerate(self.instructions) for hit in one.collisions)

    def __iter__(self) -> Iterator[InstructionReport]:
        return iter(self.instructions)

    def __len__(self) -> int:
        return len(self.instructions)

    def __getitem__(self, index: int) -> InstructionReport:
        return self.instructions[index]

    def __str__(self) -> str:
        """A total in the profiler's units, then the worst instruction."""
        unit = "sectors" if self.op in GLOBAL_OPS else "wavefronts"
        plural = "" if len(self) == 1 else "s"
        line = (
            f"{self.op} of {self.dtype}, {self.vector} per access: {len(self)} instruction{plural}, "
            f"{self.cost} {unit}, ideal {self.ideal}, excess {self.excess}"
        )
        if self.op in SHARED_OPS:
            line += " (a profiler's bank conflicts)"
        if not self.measured:
            line += ", modelled, not measured"
        if not self.excess:
            return line
        return f"{line}\n  worst: {max(self.instructions, key=lambda one: one.excess)}"

    def _repr_svg_(self) -> str | None:
        """The picture that notebooks show; none for global memory or very many instructions."""
        if self.op in GLOBAL_OPS or len(self) > 256:
            return None
        from layoutalg.draw.banks import instruction_map

        return instruction_map(self)


def shared_report(
    smem_layout: TileLayout | SwizzledLayout,
    fragment_layout: TileLayout,
    dtype: Dtype | str,
    *,
    op: str = "ld.shared",
    vector: int | None = None,
    matrices: int | None = None,
    transpose: bool | None = None,
    base: int = 0,
    machine: Machine | str = DEFAULT_MACHINE,
) -> FragmentReport:
    """Price the transfer between a tile in shared memory and a fragment in registers.

    The widest legal access is inferred: elements that neighbour in memory, aligned, in one lane, the same slots in
    every lane.  ``ldmatrix`` and ``stmatrix`` find the matrix rows behind the fragment, transposed or not.

    Args:
        smem_layout: flat logical index -> element offset in shared memory, plain or swizzled.
        fragment_layout: flat logical index -> thread axes (``laneid``, ``warpid``, ...) and slot (``m``).
        dtype: element type; elements narrower than a byte must pack to whole bytes.
        op: ``ld.shared``, ``st.shared``, ``ldmatrix``, ``stmatrix``, ``ld.global`` or ``st.global``.
        vector: elements per lane and access, instead of the widest legal.
        matrices: 1, 2 or 4 per instruction, instead of as many as fit (matrix operations only).
        transpose: whether a matrix operation transposes; found out when left out.
        base: byte address of element offset 0.
        machine: whose constants to use.

    Raises:
        RegionError: the layouts differ in size.
        AxisError: an axis that is no memory of the tile, or no thread or slot of the fragment.
        RangeError: an access that the operation cannot make, naming lanes and registers.
        NotExpressibleError: the fragment is none that the matrix operation moves.
        UndecidedError: a layout has parameters; substitute them first.

    A column of a 64 x 64 half tile, rows 128 bytes apart, read by 32 lanes; then through the 128-byte swizzle:

    >>> column = TileLayout.parse("S[(2,32,64):(64,1@laneid,1)]")
    >>> print(shared_report(TileLayout.parse("S[64,64]"), column, "f16")[0].report)
    ld.shared 16 B: 32 wavefronts, ideal 4, excess 28 (bank conflicts)
      group 0, bank 0: word 0 (byte 0) lane 0; word 32 (byte 128) lane 1; word 64 (byte 256) lane 2; \
word 96 (byte 384) lane 3; word 128 (byte 512) lane 4; word 160 (byte 640) lane 5; word 192 (byte 768) lane 6; \
word 224 (byte 896) lane 7
    >>> shared_report(SwizzledLayout.parse("Sw<3,3,3> o S[64,64]"), column, "f16").excess
    0
    """
    vector_length, found = instructions_of(
        smem_layout,
        fragment_layout,
        dtype,
        op=op,
        vector=vector,
        matrices=matrices,
        transpose=transpose,
        base=base,
    )
    return FragmentReport(found.dtype, op, vector_length, tuple(_price(one, machine) for one in found))


def _price(one: Instruction, machine: Machine | str) -> InstructionReport:
    return InstructionReport(one.warp, one.registers, simulate(one.access(), machine=machine))


def global_report(
    layout: TileLayout | SwizzledLayout,
    fragment_layout: TileLayout,
    dtype: Dtype | str,
    *,
    op: str = "ld.global",
    vector: int | None = None,
    base: int = 0,
    machine: Machine | str = DEFAULT_MACHINE,
) -> FragmentReport:
    """Price the transfer between global memory and a fragment in 32-byte sectors: how well it coalesces.

    Args:
        layout: flat logical index -> element offset in global memory.
        fragment_layout: flat logical index -> thread axes and slot.
        dtype: element type.
        op: ``ld.global`` or ``st.global``.
        vector: elements per lane and access, instead of the widest legal.
        base: byte address of element offset 0.
        machine: whose constants to use.

    Raises:
        RangeError: another operation; otherwise as :func:`shared_report`.

    >>> rows = TileLayout.parse("S[(8,4,8):(1@laneid,8@laneid,1)]")
    >>> print(global_report(TileLayout.parse("S[8,32]"), rows, "f32", vector=4))
    ld.global of float32, 4 per access: 2 instructions, 64 sectors, ideal 32, excess 32, modelled, not measured
      worst: warp 0, registers 0,1,2,3: ld.global 16 B: 32 sectors, ideal 16, efficiency 50% (modelled, not measured)
    """
    if op not in GLOBAL_OPS:
        raise RangeError(f"global_report prices {' and '.join(GLOBAL_OPS)}, not {op}; see shared_report")
    return shared_report(layout, fragment_layout, dtype, op=op, vector=vector, base=base, machine=machine)
