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

import numpy as np

from codegen_cuda.errors import PlanError
from codegen_cuda.kernel import Kernel
from codegen_cuda.tmem.emit import allocate, barrier, deallocate, device_function, statement, wait
from codegen_cuda.tmem.moves import Access, Bools, emit_reads, emit_writes
from codegen_cuda.tmem.plan import RoundTrip, TmemPlan, Transfer
from codegen_cuda.tmem.problem import LANE, Ints, TmemProblem, tabulate
from codegen_cuda.tmem.solve import decompose
from layoutalg.claim import Buffer, Claim, Move, Side
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
    function = f"{entry}_device"
    if problem.direction == "st":
        body = [
            *_fill_with_zeros(plan, used),
            *_phase(plan, function, _reads(plan, elements)),
            *barrier(),
            *_dump(plan, used),
        ]
    else:
        body = [*_fill_from_source(used), *barrier(), *_phase(plan, function, _writes(plan, elements))]
    source = _source(entry, problem, threads, [device_function(plan, function)], columns, body, [plan])
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
    body = [
        *_phase(store, f"{entry}_store", _reads(store, given)),
        *barrier(),
        *_phase(load, f"{entry}_load", _writes(load, wanted)),
    ]
    functions = [device_function(store, f"{entry}_store"), device_function(load, f"{entry}_load")]
    text = _source(entry, problem, threads, functions, columns, body, [store, load])
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
        Buffer(name, role, problem.dtype.name, low, high - low, ALIGN)
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


def _reads(plan: TmemPlan, elements: TileLayout) -> tuple[str, list[str]]:
    held, address = _addresses(plan, elements)
    accesses = [Access(word, address[:, :, word], held[:, :, word] >= 0) for word in _used(plan)]
    return "before", emit_reads(accesses, plan.warps, plan.problem.bits, "src", "r")


def _writes(plan: TmemPlan, elements: TileLayout) -> tuple[str, list[str]]:
    """Every element is written once: by the first thread and register that holds it."""
    held, address = _addresses(plan, elements)
    flat = held.reshape(-1)
    first = np.zeros(flat.size, dtype=bool)
    first[np.unique(flat, return_index=True)[1]] = True
    active = first.reshape(held.shape) & (held >= 0)
    accesses = [Access(word, address[:, :, word], active[:, :, word]) for word in _used(plan)]
    accesses = [access for access in accesses if access.active.any()]
    return "after", emit_writes(accesses, plan.warps, plan.problem.bits, "dst", "r")


def _phase(plan: TmemPlan, function: str, moves: tuple[str, list[str]]) -> list[str]:
    """The plan's instructions with the global accesses before or after them, by the warps that take part."""
    when, lines = moves
    call = [f"{function}(r, base, warp);"]
    body = [f"unsigned r[{plan.registers}];", *(lines + call if when == "before" else call + lines)]
    tests = " || ".join(f"warp == {w}" for w in plan.warps)
    everyone = plan.warps == tuple(range(len(plan.warps))) and len(plan.warps) >= 4
    return [f"if ({tests}) {{" if not everyone else f"if (warp < {len(plan.warps)}) {{", *_indent(body), "}"]


def _chunks(columns: int) -> list[tuple[int, int]]:
    """(first column, repeat) of the 32x32b instructions that cover all columns."""
    found, at = [], 0
    for repeat in decompose(columns, _CHUNK):
        found.append((at, repeat))
        at += repeat
    return found


def _physical(direction: str, column: int, repeat: int, *, packed: bool = False) -> str:
    instruction = TmemInstruction("32x32b", repeat, packed)
    transfer = Transfer(0, instruction, 0, column, tuple(range(repeat)))
    offset = f" + {column:#x}u" if column else ""
    return statement(transfer, direction, "r", f"base + ((unsigned)warp << 21){offset}")


def _fill_from_source(columns: int) -> list[str]:
    lines: list[str] = []
    for column, repeat in _chunks(columns):
        body = [
            f"unsigned r[{repeat}];",
            "const unsigned* in = reinterpret_cast<const unsigned*>(src);",
            *(f"r[{i}] = in[thread * {columns} + {column + i}];" for i in range(repeat)),
            _physical("st", column, repeat),
        ]
        lines += ["if (warp < 4) {", *_indent(body), "}"]
    return [*lines, wait("st")]


def _fill_with_zeros(plan: TmemPlan, columns: int) -> list[str]:
    """Define the cells that the plan leaves alone, so that the picture can be read; none are left in most layouts."""
    image, _, _ = _image(plan, columns)
    if image.all():
        return []
    lines: list[str] = []
    for column, repeat in _chunks(columns):
        body = [f"unsigned r[{repeat}] = {{}};", _physical("st", column, repeat)]
        lines += ["if (warp < 4) {", *_indent(body), "}"]
    return [*lines, wait("st"), *barrier()]


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


def _dump(plan: TmemPlan, columns: int) -> list[str]:
    image, packed, bits = _image(plan, columns)
    per = image.shape[-1]
    lines: list[str] = []
    for word, repeat in _chunks(image.shape[1]):
        accesses = []
        for i in range(repeat):
            # Units of bits within a lane: packed halves are two apart, since each is the low half of its cell.
            unit = (per * (word + i) + np.arange(per)) * (2 if packed else 1)
            address = np.arange(LANES)[:, None] * (columns * 32 // bits) + unit
            accesses.append(Access(i, address.reshape(4, 32, per), image[:, word + i].reshape(4, 32, per)))
        accesses = [access for access in accesses if access.active.any()]
        body = [
            f"unsigned r[{repeat}];",
            _physical("ld", word * (2 if packed else 1), repeat, packed=packed),
            wait("ld"),
            *emit_writes(accesses, (0, 1, 2, 3), bits, "dst", "r"),
        ]
        if accesses:
            lines += ["if (warp < 4) {", *_indent(body), "}"]
    return lines


def _indent(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


def _source(
    entry: str,
    problem: TmemProblem,
    threads: int,
    functions: Sequence[str],
    columns: int,
    body: Sequence[str],
    plans: Sequence[TmemPlan],
) -> str:
    kind = problem.dtype.c_type
    header = [
        *(f"tensor memory  {tmem}" for tmem, _ in problem.parts),
        *(f"registers      {registers}" for plan in plans for _, registers in plan.problem.parts),
        f"{problem.size} elements of {problem.dtype.name}, shape {problem.shape}, scope {problem.scope}",
        *(line for plan in plans for line in plan.describe().splitlines()),
        "Needs a target with tensor memory: sm_100a, sm_103a, sm_100f, sm_110a.",
    ]
    lines = [
        *("// " + line for line in header),
        "",
        *functions,
        f'extern "C" __global__ void __block_size__(({threads}, 1, 1))',
        f"{entry}(const {kind}* __restrict__ src, {kind}* __restrict__ dst) {{",
        "    const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;",
        "    (void)lane;",
        *_indent(allocate(columns)),
        *_indent(body),
        *_indent(deallocate(columns)),
        "}",
    ]
    return "\n".join(lines) + "\n"
