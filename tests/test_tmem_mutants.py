"""Defects planted in compiled PTX: the interpreter or the claim must refuse each one, with a witness."""

from __future__ import annotations

import re

import pytest
from tmem_helpers import L, assert_runs, layout_b, ptx_of, refusal

from codegen_cuda.tmem import tmem_copy, tmem_roundtrip


def layout_b_kernel():
    return tmem_roundtrip(*layout_b(), (64, 128), "f32")


def split_kernel(direction="st"):
    tmem, registers = L("S[(2,16,4):(8@TCol,1@TLane,1@TCol)]"), L("S[(2,16,4):(16@laneid,1@laneid,1)]")
    return tmem_copy(tmem, registers, (2, 16, 4), "f32", direction=direction, scope="warp")


def once(pattern, replacement, text, *, which=0):
    """Replace one occurrence; a mutant that changes nothing proves nothing."""
    found = list(re.finditer(pattern, text))
    assert len(found) > which, pattern
    match = found[which]
    return text[: match.start()] + match.expand(replacement) + text[match.end() :]


def wrong_slab(text):
    """Warps 64 lanes apart."""
    return once(r"(shl\.b32\s+%r\d+, %r\d+, )21;", r"\g<1>22;", text)


def relative_lane(text):
    """Every warp at lane 0, as if the hardware added the slab."""
    return once(r"(shl\.b32\s+%r\d+, %r\d+, )21;", r"\g<1>31;", text)


def no_wait(which):
    return lambda text: once(rf"\s*tcgen05\.wait::{which}\.sync\.aligned;", "", text)


def no_dealloc(text):
    return once(r"\s*tcgen05\.dealloc[^;]*;", "", text)


def wrong_size_freed(text):
    return once(r"(tcgen05\.dealloc[^;]*, )(%r\d+);", r"\g<1>32;", text)


def early_dealloc(text):
    """Freed before the loads: the instruction moves up to the second barrier."""
    statement = re.search(r"tcgen05\.dealloc[^;]*;", text)
    assert statement is not None
    # Operands may be defined only where the instruction was, so they are spelt out: the base, and 64 columns.
    base = re.search(r"tcgen05\.dealloc\S*\s+(%r\d+)", text)
    assert base is not None
    without = text.replace(statement[0], "")
    opcode = statement[0].split()[0]
    barriers = [m.end() for m in re.finditer(r"bar\.sync\s+0;", without)]
    guard = "\n.reg .pred %early; .reg .u32 %who; mov.u32 %who, %tid.x; setp.lt.u32 %early, %who, 32;\n"
    body = f"@!%early bra $skip_early; {opcode} {base[1]}, 64;\n$skip_early:\n"
    return without[: barriers[1]] + guard + body + without[barriers[1] :]


def columns(count):
    def change(text):
        where = re.search(r"tcgen05\.alloc\S*\s+\[%r\d+\], (%r\d+);", text)
        assert where is not None
        return re.sub(rf"(mov\.b32\s+{re.escape(where[1])}, )\d+;", rf"\g<1>{count};", text, count=1)

    return change


def two_warps_allocate(text):
    """The allocating branch admits warps 0 and 1."""
    return once(r"setp\.ne\.\w+\s+(%p\d+, %r\d+), 0;", r"setp.gt.u32 \1, 1;", text)


def swapped_registers(text):
    """The first two registers of the load trade places."""
    return once(r"(tcgen05\.ld\S*\s+\{)(%r\d+), (%r\d+)", r"\1\3, \2", text)


def column_overrun(text):
    """The load starts one column late and ends beyond the allocation."""
    return once(r"(tcgen05\.ld\S*\s+\{[^}]*\}, \[%r\d+)\]", r"\1+1]", text)


def no_barrier(text):
    """The last barrier goes, so warp 0 frees what others still read."""
    count = len(re.findall(r"bar\.sync\s+0;", text))
    return once(r"bar\.sync\s+0;", "", text, which=count - 1)


def no_fence(text):
    return once(r"\s*tcgen05\.fence::after_thread_sync;", "", text, which=1)


def permit_first(text):
    """No allocation is granted after the permit was given up."""
    moved = once(r"\s*tcgen05\.relinquish_alloc_permit[^;]*;", "", text)
    return once(r"(tcgen05\.alloc)", r"tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n\t\1", moved)


MUTANTS = {
    "wrong slab": (wrong_slab, "kind", "tmem-slab"),
    "relative lanes": (relative_lane, "kind", "tmem-slab"),
    "store not waited for": (no_wait("st"), "kind", "tmem-pending"),
    "load not waited for": (no_wait("ld"), "kind", "tmem-pending"),
    "never freed": (no_dealloc, "kind", "tmem-leak"),
    "another size freed": (wrong_size_freed, "kind", "tmem-dealloc"),
    "freed early": (early_dealloc, "kind", ("tmem-unallocated", "race", "tmem-pending")),
    "48 columns": (columns(48), "kind", "tmem-alloc"),
    "16 columns": (columns(16), "kind", "tmem-alloc"),
    "1024 columns": (columns(1024), "kind", "tmem-alloc"),
    "too few columns": (columns(32), "kind", "tmem-unallocated"),
    "two warps allocate": (two_warps_allocate, "kind", "tmem-alloc"),
    "registers swapped": (swapped_registers, "output", None),
    "column overrun": (column_overrun, "kind", "tmem-unallocated"),
    "no last barrier": (no_barrier, "kind", "race"),
    "no fence": (no_fence, "warning", None),
    "permit given up first": (permit_first, "kind", "tmem-alloc"),
}


def test_the_kernel_without_a_defect_passes():
    assert_runs(layout_b_kernel())
    for direction in ("st", "ld"):
        assert_runs(split_kernel(direction))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_defect_is_refused_with_a_witness(name):
    mutate, fact, expected = MUTANTS[name]
    kernel = layout_b_kernel()
    text = ptx_of(kernel)
    changed = mutate(text)
    assert changed != text
    witness = refusal(kernel, changed)
    assert fact in witness, witness
    if expected is not None:
        assert witness[fact] in (expected if isinstance(expected, tuple) else (expected,)), witness
        assert "PTX line" in witness["finding"]


def test_a_swapped_register_is_refused_by_an_element_that_differs():
    kernel = layout_b_kernel()
    witness = refusal(kernel, swapped_registers(ptx_of(kernel)))
    # Thread 0 holds elements 0 to 63: the first is now the second, and tags count from 1.
    assert (witness["output"], witness["should"], witness["found"]) == (0, 1, 2)


@pytest.mark.parametrize("direction", ["st", "ld"])
@pytest.mark.parametrize("split", [7, 9, 0, (16 << 16) + 8])
def test_a_wrong_split_offset_is_refused(direction, split):
    kernel = split_kernel(direction)
    text = ptx_of(kernel)
    pattern = r"(tcgen05\.st\S*16x32bx2\S*\s+\[%r\d+\], )8" if direction == "st" else r"(16x32bx2[^;]*\], )8;"
    changed = once(pattern, rf"\g<1>{split}" + (";" if direction == "ld" else ""), text)
    witness = refusal(kernel, changed)
    assert set(witness) & {"kind", "output"}, witness


def test_bases_beyond_the_lowest_show_what_the_lowest_hides():
    """Without the allocated base in the address the kernel works at column 0 and nowhere else."""
    kernel = layout_b_kernel()
    text = ptx_of(kernel)
    slot = re.search(r"ld\.shared\.[bu]32\s+(%r\d+), \[[^\]]+\];", text)
    assert slot is not None
    changed = text.replace(slot[0], slot[0] + f"\n\tand.b32 {slot[1]}, {slot[1]}, 31;")
    assert_runs(kernel, ptx=changed, columns=(0,))
    assert refusal(kernel, changed, columns=(0, 64))["column"] == 64


def test_warning_only_mutants_still_move_the_data():
    """The missing fence is found as a fence, not as an accident of the data."""
    kernel = layout_b_kernel()
    assert refusal(kernel, no_fence(ptx_of(kernel)))["warning"].count("fence::after_thread_sync") == 1
