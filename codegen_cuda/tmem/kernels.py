"""Harness kernels around plans, with their claims: what can be compiled, executed and compared with the layouts.

* ``st``: global -> registers -> tensor memory by the plan; then every cell is read by 32x32b and written to the output
  as a picture of tensor memory, element (lane, TCol) at ``lane * pitch + TCol``.
* ``ld``: the input is such a picture; it is stored by 32x32b, loaded by the plan, and written out by elements.
* ``roundtrip``: global -> registers -> store plan -> load plan -> registers -> global.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen_cuda.body import Asm, Body, If, Statement, Store, let, let_pointer, thread_id
from codegen_cuda.buffers import Buffer, alloc, declare, match
from codegen_cuda.checks import names_in
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.kernel import Kernel
from codegen_cuda.pools import TmemPool
from codegen_cuda.tcgen05 import tcgen05_address, tcgen05_barrier, tcgen05_wait
from codegen_cuda.tmem.emit import device_function, move, on_warps, registers
from codegen_cuda.tmem.moves import Access, Bools, Group, emit_reads, emit_writes
from codegen_cuda.tmem.plan import RoundTrip, TmemPlan, Transfer
from codegen_cuda.tmem.problem import LANE, Ints, TmemProblem, tabulate
from codegen_cuda.tmem.solve import decompose
from codegen_cuda.values import Value
from layoutalg.claim import Buffer as Param
from layoutalg.claim import Claim, Move, Side
from layoutalg.hardware.dtypes import Dtype
from layoutalg.hardware.tcgen05 import LANES, TmemInstruction, allocated_columns
from layoutalg.tile import TileLayout

__all__ = ["copy_kernel", "picture_layouts", "roundtrip_kernel"]

ALIGN = 16
ARCH = "sm_100a"
_CHUNK = 64  # columns that fill and dump move at once: registers of one thread


def copy_kernel(plan: TmemPlan, global_layout: TileLayout | None, name: str | None) -> Kernel:
    """Return the kernel of one plan: ``st`` shows tensor memory as a picture, ``ld`` starts from one."""
    problem = plan.problem
    elements = _global(problem, global_layout)
    columns = allocated_columns(_columns(plan))
    used = _columns(plan)
    threads = max(32 * (max(plan.warps) + 1), LANES)
    entry = name or kernel_name(problem, plan, f"tmem_{problem.direction}")
    picture = TileLayout.from_iters(shard=[(LANES * used * 32 // problem.dtype.bits, 1, "m")])
    sides = (elements, picture) if problem.direction == "st" else (picture, elements)
    harness = _Harness.of(*sides, problem.dtype, threads=threads, columns=columns)
    phase = _phase(harness, plan, f"{entry}_device", elements)
    if problem.direction == "st":
        zeros = _fill_with_zeros(harness, plan, used)
        body = [*zeros, phase, *tcgen05_barrier(), *_dump(harness, plan, used)]
    else:
        body = [*_fill_from_source(harness, used), *tcgen05_barrier(), phase]
    source = harness.body(entry, body, _comment(problem, [plan])).source
    claim = _claim(entry, problem, threads, copy_moves(plan, elements, used), used)
    return Kernel(name=entry, source=source, claim=claim, plan=plan, arch=ARCH)


def roundtrip_kernel(
    plan: RoundTrip,
    source_layout: TileLayout | None,
    destination_layout: TileLayout | None,
    name: str | None,
) -> Kernel:
    """Return the kernel that stores by one plan and loads by another."""
    store, load = plan.store, plan.load
    problem = store.problem
    given, wanted = _global(problem, source_layout), _global(problem, destination_layout)
    columns = allocated_columns(max(_columns(store), _columns(load)))
    threads = 32 * (max(*store.warps, *load.warps) + 1)
    entry = name or kernel_name(problem, store, "tmem_roundtrip")
    harness = _Harness.of(given, wanted, problem.dtype, threads=threads, columns=columns)
    phases = (_phase(harness, store, f"{entry}_store", given), _phase(harness, load, f"{entry}_load", wanted))
    body = [phases[0], *tcgen05_barrier(), phases[1]]
    text = harness.body(entry, body, _comment(problem, [store, load])).source
    moves = tuple(
        Move("src", _side(problem, given, part), "dst", _side(problem, wanted, part))
        for part in range(len(problem.parts))
    )
    spans = (_span(given), _span(wanted))
    claim = _claim_of(entry, problem, threads, moves, spans)
    return Kernel(name=entry, source=text, claim=claim, plan=plan, arch=ARCH)


def kernel_name(problem: TmemProblem, plan: TmemPlan, stem: str) -> str:
    """Return a readable identifier."""
    extents = "x".join(map(str, problem.extents)) or "1"
    form = plan.transfers[0].instruction
    text = f"{stem}_{extents}_{problem.dtype.name}_{form.shape}{'_packed' if form.packed else ''}"
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


# --- what the kernel promises -------------------------------------------------------------------------------------


def picture_layouts(tmem: TileLayout, pitch: int) -> tuple[TileLayout, ...]:
    """Return tensor memory as a layout on axis m, one per replica: lane * pitch + TCol in elements.

    >>> print(*picture_layouts(TileLayout.parse("S[(32,4):(1@TLane,1@TCol)] + R[2:32@TLane]"), 4))
    S[(32,4):(4,1)] S[(32,4):(4,1)] + 128
    """
    step = {"TLane": pitch, "TCol": 1, "m": 0}
    shard = [(it.extent, it.stride * step[it.axis.name], "m") for it in tmem.shard]
    start = sum(int(str(value)) * step[axis] for axis, value in tmem.offset.items())
    found: dict[int, TileLayout] = {}
    for digits in itertools.product(*(range(int(it.extent)) for it in tmem.replica)):
        pairs = zip(digits, tmem.replica, strict=True)
        moved = start + sum(d * int(it.stride) * step[it.axis.name] for d, it in pairs)
        found[moved] = TileLayout.from_iters(shard=shard, offset={"m": moved} if moved else {})
    return tuple(found.values())


def copy_moves(plan: TmemPlan, elements: TileLayout, columns: int) -> tuple[Move, ...]:
    """Return the moves of a copy kernel, part by part."""
    problem = plan.problem
    pitch = columns * 32 // problem.dtype.bits
    moves = []
    for part, (tmem, _) in enumerate(problem.parts):
        side = _side(problem, elements, part)
        # The part's own layout has no axis for the part; an extent of 1 stands for it.
        shape = problem.shape if len(problem.parts) == 1 else (1, *problem.shape)
        pictures = [Side(str(layout), shape, _whole(shape)) for layout in picture_layouts(tmem, pitch)]
        if problem.direction == "st":
            moves += [Move("src", side, "dst", picture) for picture in pictures]
        else:
            moves.append(Move("src", pictures[0], "dst", side))
    return tuple(moves)


def _side(problem: TmemProblem, elements: TileLayout, part: int) -> Side:
    """The elements of one part in global memory."""
    if len(problem.parts) == 1:
        return Side(str(elements), problem.shape, _whole(problem.shape))
    return Side(str(elements), problem.extents, f"{part}:{part + 1},{_whole(problem.shape)}")


def _claim(entry: str, problem: TmemProblem, threads: int, moves: tuple[Move, ...], columns: int) -> Claim:
    picture = (0, LANES * columns * 32 // problem.dtype.bits)
    store = problem.direction == "st"
    side = moves[0].source if store else moves[0].destination
    elements = _span(TileLayout.parse(side.layout))
    return _claim_of(entry, problem, threads, moves, (elements, picture) if store else (picture, elements))


def _claim_of(
    entry: str,
    problem: TmemProblem,
    threads: int,
    moves: tuple[Move, ...],
    spans: tuple[tuple[int, int], tuple[int, int]],
) -> Claim:
    buffers = tuple(
        Param(name, role, problem.dtype.name, low, high - low, ALIGN)
        for (name, role), (low, high) in zip((("src", "input"), ("dst", "output")), spans, strict=True)
    )
    return Claim(
        entry=entry,
        dtype=problem.dtype.name,
        grid=(1, 1, 1),
        block=(threads, 1, 1),
        dynamic_shared_bytes=0,
        params=buffers,
        moves=moves,
        frame="untouched",
    )


def _whole(shape: tuple[int, ...]) -> str:
    return ",".join(f"0:{e}" for e in shape)


def _span(layout: TileLayout) -> tuple[int, int]:
    places = layout.table()["m"]
    return 0, int(places.max()) + 1


def _global(problem: TmemProblem, layout: TileLayout | None) -> TileLayout:
    """The layout of elements in global memory, row-major by default."""
    if layout is None:
        extents = problem.extents or (1,)
        strides = [int(np.prod(extents[d + 1 :], dtype=np.int64)) for d in range(len(extents))]
        return TileLayout.from_iters(shard=[(e, s, "m") for e, s in zip(extents, strides, strict=True)])
    if layout.size != problem.size or layout.replica or {axis.name for axis in layout.axes} - {"m"}:
        raise PlanError(
            f"tmem: the global layout {layout} must put {problem.size} elements on axis m, each once",
            rule="global",
        )
    places = layout.table()["m"]
    if int(places.min()) < 0 or len(np.unique(places)) != len(places):
        raise PlanError(f"tmem: the global layout {layout} is not injective from 0 on", rule="global")
    return layout


# --- how it does it -------------------------------------------------------------------------------------------------


def _columns(plan: TmemPlan) -> int:
    """Columns of the picture: those of the plan, and whole elements and pairs of packed cells."""
    step = max(plan.problem.dtype.bits // 32, 2 if any(t.instruction.packed for t in plan.transfers) else 1)
    return -(-plan.columns // step) * step


def _addresses(plan: TmemPlan, elements: TileLayout) -> tuple[Ints, Ints]:
    """Held pieces ``[warp, lane, word, part]`` of the plan's warps, and the address of each, in pieces."""
    problem = plan.problem
    words = tabulate(problem)
    index = [words.warps.index(warp) for warp in plan.warps]
    held = words.held[index]
    places = elements.table()["m"]
    address = places[np.maximum(held, 0) // problem.pieces] * problem.pieces + np.maximum(held, 0) % problem.pieces
    return held, address


def _used(plan: TmemPlan) -> list[int]:
    return sorted({r for t in plan.transfers for r in t.registers})


@dataclass(frozen=True, slots=True)
class _Harness:
    """What the statements of a harness share: the two buffers, the thread's names, tensor memory."""

    source: Buffer
    target: Buffer
    threads: int
    cells: Buffer
    pool: TmemPool

    @classmethod
    def of(cls, given: TileLayout, wanted: TileLayout, kind: Dtype, *, threads: int, columns: int) -> _Harness:
        source, target = (
            match(name, (int(layout.size),), kind, layout=layout, align=ALIGN, pointer=name)
            for name, layout in (("src", given), ("dst", wanted))
        )
        slot = alloc("slot", (1,), "uint32", scope="shared", pointer="slot")
        warp = Expr.var("warp", 0, threads // 32 - 1)
        pool = TmemPool(None, warp=warp, total_cols=columns, tmem_addr=slot)
        return cls(source, target, threads, pool.alloc("cells", (LANES, columns), "uint32"), pool)

    def group(self, warps: Sequence[int]) -> Group:
        """Name the threads of some warps."""
        thread, lane = Expr.var("thread", 0, self.threads - 1), Expr.var("lane", 0, 31)
        return Group(tuple(warps), thread, lane, self.pool.warp)

    def address(self, warp: Expr, column: int) -> Value:
        """Return the address of a column in a warp's slab."""
        return tcgen05_address(self.pool.base, warp, column=(self.cells.allocated_addr or 0) + column)

    def body(self, entry: str, statements: Sequence[Statement], comment: Sequence[str]) -> Body:
        """Return the kernel: names, allocation, statements, deallocation."""
        thread = thread_id("thread", self.threads)
        inner = [self.pool.slot, *self.pool.commit(), *statements, *self.pool.dealloc()]
        lane = [let("lane", thread.var % 32)] if "lane" in names_in(inner) else []
        return Body(
            entry,
            (self.source, self.target),
            [thread, *lane, let("warp", thread.var // 32), *inner],
            threads=self.threads,
            comment=comment,
        )


def _reads(harness: _Harness, plan: TmemPlan, elements: TileLayout, array: Buffer) -> list[Statement]:
    held, address = _addresses(plan, elements)
    accesses = [Access(word, address[:, :, word], held[:, :, word] >= 0) for word in _used(plan)]
    return emit_reads(accesses, harness.group(plan.warps), plan.problem.bits, harness.source, array)


def _writes(harness: _Harness, plan: TmemPlan, elements: TileLayout, array: Buffer) -> list[Statement]:
    """Every element is written once: by the first thread and register that holds it."""
    held, address = _addresses(plan, elements)
    flat = held.reshape(-1)
    first = np.zeros(flat.size, dtype=bool)
    first[np.unique(flat, return_index=True)[1]] = True
    active = first.reshape(held.shape) & (held >= 0)
    accesses = [Access(word, address[:, :, word], active[:, :, word]) for word in _used(plan)]
    accesses = [access for access in accesses if access.active.any()]
    return emit_writes(accesses, harness.group(plan.warps), plan.problem.bits, harness.target, array)


def _phase(harness: _Harness, plan: TmemPlan, function: str, elements: TileLayout) -> If:
    """The plan's instructions with the global accesses before or after them, by the warps that take part."""
    array, warp = registers(plan.registers), harness.pool.warp
    call = device_function(plan, function).call(array, harness.pool.base, warp.within(0, max(plan.warps)))
    if plan.problem.direction == "st":
        return on_warps(warp, plan.warps, [array, *_reads(harness, plan, elements, array), call])
    return on_warps(warp, plan.warps, [array, call, *_writes(harness, plan, elements, array)])


def _chunks(columns: int) -> list[tuple[int, int]]:
    """(first column, repeat) of the 32x32b instructions that cover all columns."""
    found, at = [], 0
    for repeat in decompose(columns, _CHUNK):
        found.append((at, repeat))
        at += repeat
    return found


def _physical(harness: _Harness, direction: str, column: int, array: Buffer, *, packed: bool = False) -> Asm:
    """All rows of some columns, a lane per thread of the first four warps."""
    repeat = array.shape[0]
    transfer = Transfer(0, TmemInstruction("32x32b", repeat, packed), 0, column, tuple(range(repeat)))
    return move(transfer, direction, array, harness.address(harness.pool.warp.within(0, 3), column))


def _fill_from_source(harness: _Harness, columns: int) -> list[Statement]:
    thread = harness.group(range(4)).thread.within(0, LANES - 1)
    words = let_pointer("in", "uint32", harness.source.data)
    given = declare("in", (LANES, columns), "uint32", data=words.pointer)
    statements: list[Statement] = []
    for column, repeat in _chunks(columns):
        array = registers(repeat)
        loads = [Store(array[i], given[thread, column + i]) for i in range(repeat)]
        body: list[Statement] = [array, words, *loads, _physical(harness, "st", column, array)]
        statements.append(on_warps(harness.pool.warp, range(4), body))
    return [*statements, tcgen05_wait("st")]


def _fill_with_zeros(harness: _Harness, plan: TmemPlan, columns: int) -> list[Statement]:
    """Define the cells that the plan leaves alone, so that the picture can be read; none are left in most layouts."""
    image, _, _ = _image(plan, columns)
    if image.all():
        return []
    statements: list[Statement] = []
    for column, repeat in _chunks(columns):
        array = registers(repeat)
        body: list[Statement] = [
            array,
            *(Store(array[i], 0) for i in range(repeat)),
            _physical(harness, "st", column, array),
        ]
        statements.append(on_warps(harness.pool.warp, range(4), body))
    return [*statements, tcgen05_wait("st"), *tcgen05_barrier()]


def _image(plan: TmemPlan, columns: int) -> tuple[Bools, bool, int]:
    """Which parts ``[lane, word, part]`` the picture shows, whether the words are packed, and bits of a part.

    A picture of low halves only is read packed: the upper halves are not defined.
    """
    problem = plan.problem
    places = np.unique(tabulate(problem).places)
    per = problem.per_word
    lane, column = places // 32 // LANE, places // 32 % LANE
    image = np.zeros((LANES, columns, per), dtype=bool)
    image[lane, column, places % 32 // problem.bits] = True
    if problem.bits == 16 and not image[..., 1].any():
        return image[..., 0].reshape(LANES, columns // 2, 2), True, problem.bits
    return image, False, problem.bits


def _dump(harness: _Harness, plan: TmemPlan, columns: int) -> list[Statement]:
    image, packed, bits = _image(plan, columns)
    per = image.shape[-1]
    statements: list[Statement] = []
    for word, repeat in _chunks(image.shape[1]):
        accesses = []
        for i in range(repeat):
            # Units of bits within a lane: packed halves are two apart, since each is the low half of its cell.
            unit = (per * (word + i) + np.arange(per)) * (2 if packed else 1)
            address = np.arange(LANES)[:, None] * (columns * 32 // bits) + unit
            accesses.append(Access(i, address.reshape(4, 32, per), image[:, word + i].reshape(4, 32, per)))
        accesses = [access for access in accesses if access.active.any()]
        array = registers(repeat)
        body = [
            array,
            _physical(harness, "ld", word * (2 if packed else 1), array, packed=packed),
            tcgen05_wait("ld"),
            *emit_writes(accesses, harness.group(range(4)), bits, harness.target, array),
        ]
        if accesses:
            statements.append(on_warps(harness.pool.warp, range(4), body))
    return statements


def _comment(problem: TmemProblem, plans: Sequence[TmemPlan]) -> list[str]:
    return [
        *(f"tensor memory  {tmem}" for tmem, _ in problem.parts),
        *(f"registers      {registers}" for plan in plans for _, registers in plan.problem.parts),
        f"{problem.size} elements of {problem.dtype.name}, shape {problem.shape}, scope {problem.scope}",
        *(line for plan in plans for line in plan.describe().splitlines()),
        "Needs a target with tensor memory: sm_100a, sm_103a, sm_100f, sm_110a.",
    ]
