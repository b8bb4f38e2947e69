"""Terms in a thread's and a block's part against z3's own evaluation, and whole tensors with one thing wrong."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
import z3
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ptx_kernels import module

from codegen_cuda.tensor import permute_tensor
from layoutalg.claim import Buffer, Claim, Move, Side
from layoutalg.errors import LayoutError
from verify.ptx.arrays import UnsupportedTermError, Valuation
from verify.ptx.blocks.apart import Written, first_clash
from verify.ptx.blocks.nest import Loop, nest_of
from verify.ptx.blocks.operations import Terms
from verify.ptx.blocks.partition import MOST_CLASSES, Partition, TooManyClassesError
from verify.ptx.check import check_executed
from verify.ptx.mutate import mutants
from verify.ptx.parse import parse
from verify.ptx.symbolic import check_symbolically
from verify.verdict import Refuted, Unknown

THREAD, BLOCK = z3.BitVec("tid.x", 2), z3.BitVec("ctaid.x", 3)
THREADS, BLOCKS = 4, 7
WIDTH = 12


def widened(term, width=WIDTH):
    return z3.ZeroExt(width - term.size(), term)


def constants(width):
    return st.integers(0, (1 << width) - 1).map(lambda value: z3.BitVecVal(value, width))


def combined(children):
    """Operations of one width that kernels compute addresses with."""
    pairs = st.tuples(children, children)
    small = st.integers(0, WIDTH - 1)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        pairs.map(lambda p: p[0] & p[1]),
        pairs.map(lambda p: p[0] | p[1]),
        pairs.map(lambda p: p[0] ^ p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        pairs.map(lambda p: z3.UDiv(p[0], p[1])),
        pairs.map(lambda p: z3.URem(p[0], p[1])),
        pairs.map(lambda p: p[0] / p[1]),
        pairs.map(lambda p: z3.SRem(p[0], p[1])),
        children.map(lambda x: -x),
        children.map(lambda x: ~x),
        st.tuples(children, constants(WIDTH)).map(lambda p: p[0] * p[1]),
        st.tuples(children, constants(WIDTH)).map(lambda p: p[0] & p[1]),
        st.tuples(children, small).map(lambda p: p[0] << p[1]),
        st.tuples(children, small).map(lambda p: z3.LShR(p[0], p[1])),
        st.tuples(children, small).map(lambda p: p[0] >> p[1]),
        st.tuples(children, small).map(lambda p: widened(z3.Extract(p[1], p[1] // 2, p[0]))),
        st.tuples(children, small).map(lambda p: z3.SignExt(WIDTH - 1 - p[1], z3.Extract(p[1], 0, p[0]))),
        pairs.map(lambda p: z3.Concat(z3.Extract(7, 0, p[0]), z3.Extract(6, 3, p[1]))),
        st.tuples(children, children, children, children).map(lambda p: z3.If(z3.ULT(p[0], p[1]), p[2], p[3])),
    )


NUMBERS = st.recursive(
    st.one_of(st.just(widened(THREAD)), st.just(widened(BLOCK)), constants(WIDTH)), combined, max_leaves=8
)
CONDITIONS = st.tuples(
    st.sampled_from([z3.ULT, z3.ULE, z3.UGT, z3.UGE, lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a == b]),
    NUMBERS,
    NUMBERS,
).map(lambda c: c[0](c[1], c[2]))


def terms_of(threads=THREADS, blocks=BLOCKS):
    return Terms(
        {"tid.x": np.arange(threads, dtype=np.uint64)}, {"ctaid.x": np.arange(blocks, dtype=np.uint64)}, blocks
    )


def by_solver(term):
    """The term at every block and thread, as z3 simplifies it: nothing of the library is used."""
    rows = []
    for block in range(BLOCKS):
        values = []
        for thread in range(THREADS):
            value = z3.simplify(z3.substitute(term, (THREAD, z3.BitVecVal(thread, 2)), (BLOCK, z3.BitVecVal(block, 3))))
            values.append(z3.is_true(value) if z3.is_bool(term) else value.as_long())
        rows.append(values)
    return rows


def by_parts(term):
    terms = terms_of()
    parts = terms.parts(term)
    rows = terms.rows(parts)
    found = np.zeros((BLOCKS, THREADS), dtype=rows.dtype)
    for block in range(BLOCKS):
        found[block] = rows[terms.classes.of[block] if len(rows) > 1 else 0]
        if parts.blocks is not None:
            found[block] = found[block] + np.broadcast_to(parts.blocks, BLOCKS)[block] & np.uint64((1 << WIDTH) - 1)
    return found.tolist()


@settings(max_examples=20, deadline=None)
@given(NUMBERS)
@example(widened(z3.Extract(3, 2, widened(THREAD) + widened(BLOCK))))
@example(z3.SignExt(4, z3.Extract(7, 0, widened(THREAD) * 16 + widened(BLOCK) * 9)))
@example(widened(BLOCK) * 64 | widened(THREAD))
@example(z3.If(widened(THREAD) < 3, widened(BLOCK) * 5 + widened(THREAD), widened(BLOCK) * 5))
def test_numbers_in_two_parts_are_those_that_the_solver_finds(term):
    assert by_parts(term) == by_solver(term)


@settings(max_examples=12, deadline=None)
@given(CONDITIONS)
@example(z3.ULE(widened(THREAD) * 3 + widened(BLOCK) * 8 - 20, 50))
@example(widened(THREAD) + widened(BLOCK) * 8 == 44)
def test_conditions_in_classes_are_those_that_the_solver_finds(term):
    assert by_parts(term) == by_solver(term)


@settings(max_examples=12, deadline=None)
@given(st.one_of(NUMBERS, CONDITIONS))
def test_terms_on_arrays_are_those_that_the_solver_finds(term):
    blocks, threads = (x.reshape(-1).astype(np.uint64) for x in np.indices((BLOCKS, THREADS)))
    found = Valuation({"tid.x": threads, "ctaid.x": blocks}).value(term)
    assert np.broadcast_to(found, BLOCKS * THREADS).reshape(BLOCKS, THREADS).tolist() == by_solver(term)


@pytest.mark.parametrize("width", [65, 96, 128])
def test_products_wider_than_a_word_are_exact_for_numbers_of_blocks(width):
    block = z3.ZeroExt(width - 3, BLOCK)
    term = z3.Extract(width - 1, width - 8, block * z3.BitVecVal((1 << width) // 7, width))
    terms = terms_of()
    assert terms.parts(term).blocks.tolist() == [
        b * ((1 << width) // 7) % (1 << width) >> width - 8 for b in range(BLOCKS)
    ]


def test_numbers_without_wrapping_are_the_values_themselves():
    terms = terms_of()
    x = z3.Extract(5, 0, widened(THREAD) * 5 + widened(BLOCK) * 7)
    threads, change = terms.numbers(terms.parts(x))
    for block in range(BLOCKS):
        found = threads[terms.classes.of[block]].astype(np.int64) + (0 if change is None else change[block])
        assert found.tolist() == [(5 * t + 7 * block) % 64 for t in range(THREADS)]


def test_an_unknown_of_which_nothing_is_known_is_refused():
    with pytest.raises(UnsupportedTermError, match="elsewhere"):
        terms_of().parts(z3.BitVec("elsewhere", 8) + 1)


def test_blocks_with_nothing_in_common_are_given_up():
    with pytest.raises(TooManyClassesError, match=str(MOST_CLASSES)):
        Partition(MOST_CLASSES + 1).split(np.arange(MOST_CLASSES + 1))


# --- layouts --------------------------------------------------------------------------------------------------------


def claim_of(source, destination, shape, *, count, region=None):
    whole = ",".join(f"0:{e}" for e in shape)
    buffers = tuple(Buffer(n, r, "u8", 0, count, 16) for n, r in (("a", "input"), ("b", "output")))
    move = Move("a", Side(source, shape, region or whole), "b", Side(destination, shape, region or whole))
    return Claim("k", "u8", (1, 1, 1), (32, 1, 1), 0, buffers, (move,), "untouched")


@pytest.mark.parametrize(
    ("source", "destination", "shape"),
    [
        ("S[(4,3,5):(15,5,1)]", "S[(4,3,5):(1,20,4)]", (4, 3, 5)),
        ("S[(12,5):(5,1)]", "S[(4,3,5):(3,1,12)]", (12, 5)),
        ("S[(4,6):(8,1)] + 3", "S[(4,6):(1,5)] + 2", (4, 6)),
        ("S[(2,3):(3,1)]", "S[(2,3):(-1,2)] + 1", (2, 3)),
        ("S[(6,4):(0,1)]", "S[(6,4):(4,1)]", (24,)),
    ],
)
def test_a_nest_names_for_each_place_of_the_output_what_the_layouts_name(source, destination, shape):
    claim = claim_of(source, destination, shape, count=64)
    read, written = claim.moves[0].coordinates({})
    found = nest_of(claim, claim.moves[0]).sources(np.arange(64))
    expected = np.full(64, -1)
    expected[written] = read
    assert found.tolist() == expected.tolist()


def test_runs_of_both_layouts_are_one_loop():
    claim = claim_of("S[(8,4,2):(8,2,1)]", "S[(8,4,2):(8,2,1)]", (8, 4, 2), count=64)
    assert nest_of(claim, claim.moves[0]).loops == (Loop(64, 1, 1),)


@pytest.mark.parametrize(
    ("source", "shape", "region"),
    [("S[(4,6):(6,1)]", (4, 6), "0:4,1:5"), ("S[(4,6):(6@laneid,1)]", (4, 6), None), ("S[(3,8):(9,1)]", (24,), None)],
)
def test_moves_of_another_form_are_refused(source, shape, region):
    claim = claim_of(source, "S[(4,6):(1,4)]", shape, count=24, region=region)
    with pytest.raises(LayoutError):
        nest_of(claim, claim.moves[0])


def written(blocks, shifts, places):
    """Blocks of one digit."""
    places = np.array(places)
    shifts = np.array(shifts)
    return Written(np.array(blocks), shifts[None, :], places, (places[:1], places[-1:]), shifts)


def test_blocks_that_interlock_are_told_from_blocks_that_overlap():
    even, odd = written([0, 1], [0, 16], [0, 2, 4, 6]), written([2], [1], [0, 2, 4, 6])
    assert first_clash([even, odd]) is None
    assert first_clash([even, odd, written([3], [17], [0, 1])]) == (1, 3, 18)


@pytest.mark.parametrize(("name", "obligations"), [("a", 4), ("c", 3)])
def test_what_is_read_from_a_buffer_that_the_move_does_not_name_is_never_taken_for_its_input(name, obligations):
    text = module("ld.global.u32 %r6, [%rd4]; st.global.u32 [%rd5], %r6;").replace("64 b", "64 b, .param .u64 c")
    count = 32 * 4096
    side = Side(f"S[{count}:1]", (count,), f"0:{count}")
    roles = (("a", "input"), ("b", "output"), ("c", "input"))
    buffers = tuple(Buffer(n, role, "u32", 0, count, 16) for n, role in roles)
    claim = Claim("k", "u32", (4096, 1, 1), (32, 1, 1), 0, buffers, (Move(name, side, "b", side),), "untouched")
    assert [str(o.verdict) for o in check_symbolically(parse(text), claim)] == ["Proved"] * obligations


# --- whole tensors with one thing wrong -----------------------------------------------------------------------------


def check(kernel, claim=None):
    return check_symbolically(parse(kernel.compile(arch="sm_90").ptx.text), claim or kernel.claim)


def refuted(obligations):
    return next((o.verdict.counterexample for o in obligations if isinstance(o.verdict, Refuted)), None)


KERNELS = {
    "tiles": ((3000, 2056), "uint16", "tiles"),
    "odd tiles": ((517, 1031), "float64", "tiles"),
    "rows": ((300, 200, 64), "float32", "rows"),
    "thin": ((100_000, 3), "float32", "thin"),
    "boxes": ((256, 3, 96), "uint16", "boxes"),
    "huge": ((1 << 17, 1 << 16), "uint16", "tiles"),
}


SLOW = pytest.mark.slow
QUICK = ("rows", "thin")


def kernel_named(name):
    shape, kind, strategy = KERNELS[name]
    perm = (1, 0, 2) if name == "rows" else tuple(reversed(range(len(shape))))
    return permute_tensor(shape, perm, kind, strategy=strategy)


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in KERNELS])
def test_kernels_of_every_strategy_are_proved_at_any_size(name):
    verdicts = [str(o.verdict) for o in check(kernel_named(name))]
    assert verdicts == ["Proved"] * 4


MUTANTS = {
    "a block begins too late": ("tiles", r"t0 \* (\d+)u;", lambda m: f"t0 * {int(m[1]) + 8}u;"),
    "digits of the block are swapped": ("rows", r"% (\d+)u;\n(.*)/ (\d+)u", r"/ \1u;\n\2% \3u"),
    "a tail guard admits one row less": ("tiles", r"< 3000u", "< 2999u"),
    "a tail guard admits one row more": ("tiles", r"< 3000u", "< 3001u"),
    "a group of rows is read further on": ("tiles", r"\(src_base \+ \(", "(src_base + 16ull + ("),
    "one block alone is elsewhere": (
        "tiles",
        r"(const u64 src_base = )(.*);",
        r"\1(\2) + (blockIdx.x == 77u ? 16ull : 0ull);",
    ),
    "a base wraps at 32 bits": ("huge", r"\(u64\)o0 \* (\d+)ull", r"(u64)(o0 * \1u)"),
    "a barrier is dropped": ("tiles", r"__syncthreads\(\);", ""),
    "bytes are taken from another row": ("tiles", r"__byte_perm\(r0, r1", "__byte_perm(r1, r0"),
    "two threads store one vector": ("rows", r"threadIdx\.x \+ n", "(threadIdx.x & ~1u) + n"),
    "the last block of a row is left out": ("rows", r"if \(", "if (blockIdx.x % 7u != 6u && "),
    "a thread stores a constant": ("rows", r"= held\[n\];", "= uint4{1u, 2u, 3u, 4u};"),
    "blocks of one residue read elsewhere": (
        "thin",
        r"(const u64 src_base = )(.*);",
        r"\1(\2) + (blockIdx.x % 5u == 4u ? 16ull : 0ull);",
    ),
}


@pytest.mark.parametrize(
    "name", [name if MUTANTS[name][0] in QUICK else pytest.param(name, marks=SLOW) for name in MUTANTS]
)
def test_a_whole_tensor_with_one_thing_wrong_is_refuted(name):
    which, pattern, replacement = MUTANTS[name]
    kernel = kernel_named(which)
    source, count = re.subn(pattern, replacement, kernel.source)
    assert count, kernel.source
    assert refuted(check(replace(kernel, source=source))) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "perm", "kind", "every"),
    [((67, 9, 64), (1, 0, 2), "float32", 6), ((1104, 3), (1, 0), "uint16", 16), ((67, 65), (1, 0), "float64", 200)],
)
def test_mutants_of_the_compiled_kernel_are_proved_only_where_execution_finds_nothing(shape, perm, kind, every):
    kernel = permute_tensor(shape, perm, kind).compile()
    counts = {True: 0, False: 0}
    for mutant in itertools.islice(mutants(parse(kernel.ptx.text)), 3, None, every):
        found = check_symbolically(mutant.module, kernel.claim)
        if any(isinstance(o.verdict, Unknown) and "refuted" not in o.verdict.reason for o in found):
            continue  # not followed, such as a loop that never ends
        good = all(o.verdict.ok for o in found)
        executed = refuted(check_executed(mutant.module, kernel.claim))
        if good and executed is not None:
            # Execution also refuses an undefined register that goes to shared memory and from there nowhere.
            assert executed["finding"] == "uninitialised-register", f"{mutant.operator}: {mutant.change}"
        else:
            assert good == (executed is None), f"{mutant.operator}: {mutant.change}"
        counts[good] += 1
    assert counts[False] > 5
