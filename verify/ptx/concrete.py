"""Run a compiled kernel on the CPU, every block and every thread, and watch what it does.

The run is exact for the operations of the table, and it is a check: bounds, alignment, reads of what was never
written, races, barriers that not everybody reaches, writes to read-only memory.  Blocks are run in groups, all
threads of a group at once as numpy arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.ptx.accesses import Accesses
from verify.ptx.errors import Finding, FindingError, PtxError
from verify.ptx.launch import Dim, Lanes, Launch
from verify.ptx.machine import Machine, Observer
from verify.ptx.memory import Buffer, Memory, Region
from verify.ptx.ops_base import AsyncCopy, Load, Store, TmemAlloc
from verify.ptx.parse import WIDTHS
from verify.ptx.program import Program
from verify.ptx.resolve import load
from verify.ptx.statistics import InstructionCount, Phase, Statistics
from verify.ptx.tmem import TensorMemory
from verify.ptx.tree import Module, Param
from verify.ptx.warp import AsyncCopies, BarrierObjects, WarpInstructions

__all__ = ["Buffer", "Result", "run"]

_LANES_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 26
_TMEM_BLOCKS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a run did.

    Attributes:
        buffers: final contents of the caller's buffers, in their dtype and shape.
        written: per buffer, which bytes the kernel wrote.
        findings: defects, at most one: a run stops at the first.
        warnings: doubtful points that are no defects, with their lines.
        instructions: counts per instruction.
        phases: bank costs per warp between barriers, when the run was traced.
        threads: threads that were run.
        writers: per buffer and byte, the number of the thread that wrote it last, or -1.
        launch: the shape of the launch.
    """

    buffers: tuple[NDArray[Any], ...]
    written: tuple[NDArray[np.bool_], ...]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    instructions: tuple[InstructionCount, ...]
    phases: tuple[Phase, ...]
    threads: int
    writers: tuple[NDArray[np.int64], ...]
    launch: Launch

    def writer(self, buffer: int, byte: int) -> tuple[Dim, Dim] | None:
        """Block and thread that wrote a byte of a buffer last, or ``None``."""
        who = int(self.writers[buffer][byte])
        if who < 0:
            return None
        padded = self.launch.padded
        return self.launch.block_index(who // padded), self.launch.thread_index(who % padded)

    def total(self, count: str, *, opcode: str = "") -> int:
        """Sum of one count (``wavefronts``, ``excess`` ...) over the instructions whose opcode contains a text."""
        return sum(getattr(row, count) for row in self.instructions if opcode in row.opcode)


def run(
    module: Module | Program,
    entry: str | None = None,
    *,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    params: Sequence[Buffer | int | bytes],
    dynamic_shared: int = 0,
    relative_lanes: bool = False,
    skew: int = 1,
    elect_last: bool = False,
    tmem_column: int = 0,
    max_steps: int = 10_000_000,
    trace: bool = False,
    check: bool = True,
    observer: Observer | None = None,
) -> Result:
    """Run a kernel of a module over a whole grid.

    Args:
        module: a parsed module, or one of its kernels, already looked up.
        entry: the kernel's name; not needed when there is one only.
        grid, block: launch shape.
        params: one per kernel parameter: a buffer for a pointer, an integer, or the bytes of a structure.
        dynamic_shared: bytes of dynamic shared memory.
        relative_lanes: tensor-memory addresses count lanes from the slab of the warp.
        skew: shared variables are placed at odd multiples of their alignment by default; this is the multiple.
        elect_last: ``elect.sync`` chooses the last lane, not the first; the ISA leaves it open.
        tmem_column: first column that tensor-memory allocation may give out.
        max_steps: bound on the steps of any group of blocks.
        trace: keep bank costs per warp and barrier interval (``Result.phases``).
        check: raise a finding instead of returning it.
        observer: told of every access to memory: the step, and per thread its stamp (thread in the grid and barriers
            passed, see :mod:`verify.ptx.shadow`), the places and the values of its elements.

    Raises:
        PtxError: the launch does not fit the kernel, or something is not supported.
        FindingError: a defect, unless ``check`` is off.

    >>> from verify.ptx.parse import parse
    >>> module = parse('''
    ... .version 9.0
    ... .target sm_90a
    ... .address_size 64
    ... .visible .entry double(.param .u64 p) {
    ...   .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ...   ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
    ...   ld.global.u32 %r2, [%rd3]; add.s32 %r2, %r2, %r2; st.global.u32 [%rd3], %r2; ret; }''')
    >>> memory = Buffer(np.arange(4, dtype=np.uint32), mode="rw")
    >>> run(module, grid=1, block=4, params=[memory]).buffers[0].tolist()
    [0, 2, 4, 6]
    >>> run(module, grid=2, block=4, params=[memory], check=False).findings[0].kind
    'race'
    """
    program = module if isinstance(module, Program) else load(module, entry)
    launch = Launch.of(grid, block)
    launch.check(program)
    memory = Memory(program, launch, dynamic_shared=dynamic_shared, skew=skew)
    memory.granules = _granules(program)
    words, regions = _bind(program, params, memory)
    statistics = Statistics(program, trace=trace)
    findings: list[Finding] = []
    warnings: dict[str, None] = {}
    tensor = any(step.operation.name.startswith("tcgen05") for step in program.steps)
    count = _blocks_at_once(launch, memory, tensor=tensor)
    try:
        for first in range(0, launch.blocks, count):
            lanes = Lanes(launch, first, min(count, launch.blocks - first))
            memory.renew(lanes.count, lanes.size)
            machine = Machine(program, lanes, memory, words, statistics)
            machine.observers += [observer] if observer else []
            accesses = Accesses(machine)
            WarpInstructions(machine, elect_last=elect_last)
            AsyncCopies(machine, accesses)
            BarrierObjects(machine, accesses)
            if tensor:
                TensorMemory(machine, accesses, relative_lanes=relative_lanes, first_column=tmem_column)
            machine.run(max_steps)
            warnings.update(machine.warnings)
    except FindingError as error:
        if check:
            raise
        findings.append(error.finding)
    return Result(
        tuple(_contents(region, buffer) for region, buffer in regions),
        tuple(_writers(region) >= 0 for region, _ in regions),
        tuple(findings),
        tuple(warnings),
        statistics.report(),
        statistics.phases(),
        launch.blocks * launch.threads,
        tuple(_writers(region) for region, _ in regions),
        launch,
    )


def _granules(program: Program) -> dict[str, int]:
    """The smallest element that the kernel accesses in each space: records need no finer cells."""
    sizes = {"global": 32, "shared": 16}
    for step in program.steps:
        effect = step.operation.effect
        if isinstance(effect, Load | Store) and effect.space in ("", "global", "shared"):
            for space in (effect.space,) if effect.space else ("global", "shared"):
                sizes[space] = min(sizes[space], effect.width // 8)
        elif isinstance(effect, AsyncCopy) or "mbarrier" in step.operation.name or isinstance(effect, TmemAlloc):
            sizes["shared"] = min(sizes["shared"], 4)
    return sizes


def _blocks_at_once(launch: Launch, memory: Memory, *, tensor: bool) -> int:
    count = _LANES_AT_ONCE // launch.padded
    if memory.shared_bytes:
        count = min(count, _BYTES_AT_ONCE // (5 * memory.shared_bytes))
    if tensor:
        count = min(count, _TMEM_BLOCKS_AT_ONCE)
    return max(count, 1)


def _bind(
    program: Program, params: Sequence[Buffer | int | bytes], memory: Memory
) -> tuple[tuple[bytes, ...], list[tuple[Region, Buffer]]]:
    """Parameter bytes, and the regions of the buffers among them."""
    if len(params) != len(program.params):
        raise PtxError(f"{program.name} has {len(program.params)} parameters, not {len(params)}", file=program.file)
    words: list[bytes] = []
    regions: list[tuple[Region, Buffer]] = []
    for number, (declared, given) in enumerate(zip(program.params, params, strict=True)):
        size = declared.count or WIDTHS[declared.type] // 8
        if isinstance(given, Buffer):
            region = memory.add_buffer(given, number)
            regions.append((region, given))
            words.append(_word(region.base, size, declared, program))
        elif isinstance(given, bytes):
            if len(given) != size:
                raise PtxError(f"parameter {declared.name} has {size} bytes, not {len(given)}", file=program.file)
            words.append(given)
        else:
            words.append(_word(int(given), size, declared, program))
    return tuple(words), regions


def _word(value: int, size: int, declared: Param, program: Program) -> bytes:
    width = 8 * size
    if declared.count is not None or not -(1 << (width - 1)) <= value < 1 << width:
        raise PtxError(f"{value} does not fit parameter {declared.name} of {size} bytes", file=program.file)
    return (value % (1 << width)).to_bytes(size, "little")


def _contents(region: Region, buffer: Buffer) -> NDArray[Any]:
    data = np.ascontiguousarray(buffer.data)
    return region.bytes[: region.size].copy().view(data.dtype).reshape(data.shape)


def _writers(region: Region) -> NDArray[np.int64]:
    if region.shadow is None:
        return np.full(region.size, -1, dtype=np.int64)
    stamps = region.shadow.writes
    who = np.where(stamps >= 0, stamps & ((1 << 32) - 1), -1)
    return np.repeat(who, region.granule)[: region.size]
