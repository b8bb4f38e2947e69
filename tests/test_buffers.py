"""Buffers: the address that is printed is the address that the layout says, whatever the metadata."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_cuda.addresses import address_of, swizzled
from codegen_cuda.body import Body, ScalarParam, Store, compare, let, let_pointer, local_scalar, thread_id
from codegen_cuda.buffers import alloc, alloc_local, alloc_shared, declare, match
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.values import Index, as_index
from layoutalg import S, TileLayout
from layoutalg.errors import LayoutError, RangeError, RegionError
from layoutalg.hardware.tmem import tmem_datapath_layout
from layoutalg.swizzle import Swizzle
from layoutalg.swizzled import SwizzledLayout

I4, J8 = Expr.var("i", 0, 3), Expr.var("j", 0, 7)
TX = Expr.var("tx", 0, 127)
ROW_MAJOR = TileLayout(S[4, 8])


@pytest.mark.parametrize(
    ("metadata", "index"),
    [
        ({}, "i * 8 + j"),
        ({"layout": TileLayout(S[(4, 8) : (1, 4)])}, "j * 4 + i"),
        ({"elem_offset": 64}, "i * 8 + j + 64"),
        ({"byte_offset": 256}, "i * 8 + j + 64"),
        ({"layout": TileLayout(S[(4, 8) : (16, 1)])}, "i * 16 + j"),
    ],
)
def test_one_access_compiles_to_the_arithmetic_of_its_metadata(metadata, index):
    assert str(match("B", (4, 8), "float32", **metadata)[I4, J8]) == f"B_ptr[{index}]"


@st.composite
def shaped_layouts(draw):
    """A shape and a layout of its size whose iters need not follow the shape."""
    extents = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(extents))))
    stride, strides = 1, [0] * len(extents)
    for d in order:
        strides[d] = stride
        stride *= extents[d] + draw(st.integers(0, 1))
    layout = TileLayout.from_iters(
        shard=[(e, s, "m") for e, s in zip(extents, strides, strict=True)], offset={"m": draw(st.integers(0, 5))}
    )
    size = int(np.prod(extents))
    cut = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
    return (cut, size // cut), layout


@given(shaped_layouts())
def test_an_address_is_what_the_layout_says_at_every_coordinate(case):
    shape, layout = case
    i, j = Expr.var("i", 0, shape[0] - 1), Expr.var("j", 0, shape[1] - 1)
    buffer = match("A", shape, "f32", layout=layout, elem_offset=7)
    address = buffer.address(i, j)
    table = layout.table(shape)["m"]
    for x, y in itertools.product(range(shape[0]), range(shape[1])):
        assert address.evaluate({"i": x, "j": y}.__getitem__) == table[x, y] + 7
        assert buffer.address(x, y).const == table[x, y] + 7


@given(st.integers(0, 3), st.integers(0, 3), st.integers(-3, 3).filter(bool))
def test_a_swizzle_on_expressions_is_the_swizzle_on_numbers(bits, base, shift):
    swizzle = Swizzle(bits, base, shift)
    x = Expr.var("x", 0, 1023)
    expr = swizzled(swizzle, x)
    assert [expr.evaluate(lambda _, v=v: v) for v in range(1024)] == [swizzle.apply(v) for v in range(1024)]


def test_a_swizzled_buffer_has_the_addresses_of_its_layout():
    layout = SwizzledLayout.parse("Sw<3,3,3> o S[64,64]")
    address = address_of(layout, (64, 64), [Expr.var("i", 0, 63), Expr.var("j", 0, 63)])
    table = layout.table((64, 64))["m"]
    for i, j in itertools.product(range(0, 64, 5), range(64)):
        assert address.evaluate({"i": i, "j": j}.__getitem__) == table[i, j]
    with pytest.raises(PlanError, match="starts at multiples of 1024 bytes"):
        declare("T", (64, 64), "f16", data=alloc_shared("s", (8192,), "f16").data, layout=layout, elem_offset=8)


def test_views_and_permutations_have_the_index_forms_of_the_guide():
    A, tx = match("A", (256,), "f32"), Expr.var("tx", 0, 63)
    assert [str(A.view(64, 4)[tx, k]) for k in (0, 3)] == ["A_ptr[tx * 4]", "A_ptr[tx * 4 + 3]"]
    i, j = Expr.var("i", 0, 3), Expr.var("j", 0, 63)
    assert str(match("A", (64, 4), "f32").permute(1, 0)[i, j]) == "A_ptr[j * 4 + i]"
    with pytest.raises(RegionError, match="has 100 elements"):
        A.view(10, 10)
    with pytest.raises(RegionError, match="spans 512"):
        A.view(64, 4, layout=TileLayout(S[(64, 4) : (8, 2)]) + 1)
    assert A.view(64, 4, layout=TileLayout(S[(64, 4) : (1, 64)]))[tx, 3].text() == "A_ptr[tx + 192]"


def test_a_buffer_says_what_it_is():
    assert str(match("A", (4, 8), "f32")) == "A: (4, 8) float32 in global, S[(4,8):(8,1)]"
    layout = tmem_datapath_layout("D", 128, 8)
    acc = declare("c", (128, 8), "f32", data=None, scope="tmem", allocated_addr=8, layout=layout)
    assert str(acc).startswith("c: (128, 8) float32 in tmem at column 8")


def test_a_buffer_and_its_pointer_are_immutable():
    A = match("A", (4,), "f32")
    for value, field in ((A, "data"), (A, "elem_offset"), (A.data, "name"), (A.data, "align")):
        with pytest.raises(AttributeError):
            setattr(value, field, None)
    assert match("A", (4,), "f32") == A
    assert hash(A) == hash(match("A", (4,), "f32"))


def test_pointers_print_as_in_the_guide():
    A = match("A", (4, 8), "f32")
    assert (str(A.data), str(A.ptr_to([I4, J8])), str(A.access_ptr("r", offset=8, extent=8))) == (
        "A_ptr",
        "&A_ptr[i * 8 + j]",
        "&A_ptr[8]",
    )
    with pytest.raises(RegionError, match="leave"):
        A.access_ptr("r", offset=8, extent=25)
    with pytest.raises(RangeError, match="access mask"):
        A.access_ptr("x")


def test_wide_accesses_need_consecutive_elements_and_an_aligned_address():
    A = match("A", (512,), "f32", align=16)
    assert str(A.vload([TX * 4], dtype="float32x4")) == "*(float4*)(A_ptr + tx * 4)"
    assert str(match("H", (1024,), "bf16", align=16).vload([TX * 8], dtype="bfloat16x8")) == "*(uint4*)(H_ptr + tx * 8)"
    assert (
        str(match("H", (1024,), "i8", align=16).vload([TX * 2], dtype="int8x2")) == "*(unsigned short*)(H_ptr + tx * 2)"
    )
    with pytest.raises(PlanError, match="aligned to 4"):
        match("A", (512,), "f32").vload([TX * 4], dtype="float32x4")
    with pytest.raises(PlanError, match="aligned to 8"):
        A.vload([TX * 2], dtype="float32x4")
    with pytest.raises(PlanError, match="aligned to 4"):
        A.vload([TX * 4], dtype="float32x4") and match("A", (512,), "f32", align=16, elem_offset=1).vload(
            [TX * 4], dtype="float32x4"
        )
    with pytest.raises(PlanError, match=r"element 1 of the vector lies 4"):
        match("A", (4, 8), "f32", layout=TileLayout(S[(4, 8) : (1, 4)]), align=16).vload([0, 0], dtype="float32x4")
    with pytest.raises(RegionError, match="leaves"):
        A.vload([TX * 4 + 1], dtype="float32x4")
    with pytest.raises(RangeError, match="256 bits wide"):
        A.vload([0], dtype="float32x8")
    with pytest.raises(RangeError, match="holds float32"):
        A.vload([0], dtype="int32x4")


def test_elements_narrower_than_a_byte_are_addressed_in_bits():
    A = match("A", (16, 8), "float4_e2m1fn", align=16)
    i = Expr.var("i", 0, 15)
    assert str(A[i, J8]) == "(A_ptr[i * 4 + (j >> 1)] >> ((j & 1) * 4) & 15)"
    assert str(A[i, 3]) == "(A_ptr[i * 4 + 1] >> 4 & 15)"
    assert str(A.bit_address(i, J8)) == "i * 32 + j * 4"
    assert str(A.ptr_to([i, 2])) == "&A_ptr[i * 4 + 1]"
    assert str(A.vload([i, 0], dtype="e2m1x8")) == "*(unsigned int*)(A_ptr + i * 4)"
    with pytest.raises(PlanError, match="may lie inside a byte"):
        A.ptr_to([i, J8])
    with pytest.raises(PlanError, match="overwrite its neighbours"):
        Store(A[i, J8], A[i, J8])
    with pytest.raises(PlanError, match="no whole number"):
        match("B", (8,), "f32", byte_offset=6)
    with pytest.raises(PlanError, match="may straddle"):
        str(match("C", (8,), "float6_e2m3fn")[J8])


DTYPES = [
    "fp32",
    "fp16",
    "bf16",
    "e4m3",
    "e5m2",
    "e2m1",
    "i8",
    "u8",
    "i16",
    "u16",
    "i32",
    "u32",
    "i64",
    "u64",
    "c128",
    "uint32x4",
]


@pytest.mark.parametrize("kind", DTYPES)
def test_every_type_has_a_pointer_an_element_and_a_vector(kind):
    A = match("A", (64,), kind, align=16)
    bits = A.dtype.bits
    assert str(A[8]).startswith(("A_ptr[8]", "(A_ptr[4]"))
    if bits < 128:
        assert "A_ptr" in str(A.vload([0], dtype=f"{A.dtype.name}x{128 // bits}"))
    assert A.data.align == 16
    assert alloc_local("r", (4,), kind).align == max(bits // 8, 1)


def test_elements_of_128_bits_move_whole():
    A = match("A", (16,), "uint32x4")
    assert (A.dtype.bits, A.align, str(A[J8])) == (128, 16, "A_ptr[j]")
    assert str(Store(A[0], A[J8]).value) == "A_ptr[j]"
    assert str(match("C", (16,), "c128")[J8]) == "C_ptr[j]"
    assert str(declare("V", (8,), "uint32x2", data=A.data)[1]) == "((uint2*)A_ptr)[1]"
    with pytest.raises(LayoutError):
        _ = A[0] + A[1]


def test_a_layout_over_threads_gives_each_thread_its_registers():
    R = alloc("R", (32, 8), "f32", scope="local", layout=TileLayout.parse("S[(32,8):(1@laneid,1)]"))
    assert R.data.size == 32
    assert [str(R.local(8)[k]) for k in (0, 7)] == ["R_ptr[0]", "R_ptr[7]"]
    assert str(R.local(2, 4)[1, 2]) == "R_ptr[6]"
    frag = alloc(
        "F", (16, 16), "f32", scope="local", layout=TileLayout.parse("S[(2,8,2,4,2):(4,4@laneid,2,1@laneid,1)]")
    )
    assert frag.local().shape == (2, 2, 2)
    assert frag.data.size == 8 * 4
    with pytest.raises(PlanError, match=r"lives on laneid.*local\(\)"):
        str(R[0, 0])
    with pytest.raises(PlanError, match="only registers"):
        match("A", (4,), "f32").local(4)


def test_a_region_is_a_box_and_its_view_is_indexed_from_zero():
    m0 = Expr.var("m0", 0, 112)
    A = match("A", (128, 64), "f16")
    box = A[m0 : m0 + 16, 8:40]
    assert (box.extents, str(box)) == ((16, 32), "A[m0:m0 + 16, 8:40]")
    view = box.view()
    i, k = Expr.var("i", 0, 15), Expr.var("k", 0, 31)
    for values in ({"m0": 5, "i": 3, "k": 30}, {"m0": 112, "i": 15, "k": 31}):
        want = (values["m0"] + values["i"]) * 64 + 8 + values["k"]
        assert view.address(i, k).evaluate(values.__getitem__) == want
    assert A[3, 0:8].extents == (1, 8)
    for wrong in (slice(0, 129), slice(4, 4), slice(0, 8, 2)):
        with pytest.raises(RegionError):
            A[wrong, 0:8]
    with pytest.raises(RegionError, match="may leave"):
        A[m0 : m0 + 17, 0:8]
    with pytest.raises(RegionError, match="give one per dimension"):
        A[0:8]


def test_coordinates_that_may_leave_their_extent_are_refused():
    A = match("A", (4, 8), "f32")
    for coord in ((4, 0), (-1, 0), (Expr.var("x", 0, 4), 0), (0, J8 + 1)):
        with pytest.raises(RegionError, match="leaves"):
            str(A[coord])
    with pytest.raises(RegionError, match="give one per dimension"):
        str(A[0])
    assert str(A[Expr.var("x", 0, 9).within(0, 3), 0]) == "A_ptr[x * 8]"
    assert str(A[I4, local_scalar("phase", "int32")]) == "A_ptr[i * 8 + phase_ptr[0]]"
    with pytest.raises(PlanError, match="beyond int"):
        str(match("B", (1 << 16, 1 << 17), "f32")[Expr.var("x", 0, (1 << 16) - 1), 0])


def test_views_stay_inside_their_storage_and_their_space():
    arena = alloc("smem", (128,), "f32", scope="shared.dyn")
    with pytest.raises(RegionError, match="leave the 512 bytes"):
        declare("As", (64,), "f32", data=arena.data, elem_offset=65)
    with pytest.raises(PlanError, match=r"points to shared\.dyn"):
        declare("As", (64,), "f32", data=arena.data, scope="shared")
    with pytest.raises(PlanError, match="bind an expression with let_pointer"):
        declare("As", (64,), "f32", data="smem_ptr + 4")
    assert declare("As", (64,), "f32", data=None, scope="shared") == alloc_shared("As", (64,), "f32")
    bytes_view = declare("Ab", (256,), "u8", data=arena.data)
    assert str(bytes_view[TX]) == "((unsigned char*)smem_ptr)[tx]"


def test_a_pointer_expression_is_bound_before_buffers_lie_over_it():
    arena = alloc("smem", (128,), "f32", scope="shared.dyn")
    half = let_pointer("half", "f16", arena.data, byte_offset=256)
    assert (half.pointer.align, half.pointer.size) == (16, 256)
    assert str(declare("H", (128,), "f16", data=half.pointer)[TX]) == "half[tx]"
    with pytest.raises(RegionError, match="leave the 256 bytes"):
        declare("H", (129,), "f16", data=half.pointer)
    with pytest.raises(PlanError, match="aligned to 1"):
        let_pointer("odd", "f16", arena.data, byte_offset=1)
    with pytest.raises(PlanError, match="leaves the 512 bytes"):
        let_pointer("far", "f16", arena.data, byte_offset=512)


def test_tensor_memory_is_never_indexed_and_needs_its_column():
    layout = tmem_datapath_layout("D", 128, 64)
    acc = declare("acc", (128, 64), "f32", data=None, scope="tmem", allocated_addr=0, layout=layout)
    with pytest.raises(PlanError, match="no addresses to load from"):
        str(acc[0, 0])
    with pytest.raises(PlanError, match="needs allocated_addr"):
        declare("acc", (128, 64), "f32", data=None, scope="tmem", layout=layout)
    with pytest.raises(PlanError, match="reserved by"):
        alloc("acc", (128, 64), "f32", scope="tmem", layout=layout)


def test_tensor_memory_is_refused_wherever_it_would_be_addressed():
    layout = tmem_datapath_layout("D", 128, 8)
    acc = declare("acc", (128, 8), "f32", data=None, scope="tmem", allocated_addr=8, layout=layout)
    for use in (
        lambda: acc[0, 0],
        lambda: acc.ptr_to([0, 0]),
        lambda: acc.vload([0, 0], dtype="float32x4"),
        lambda: acc.access_ptr("r"),
        lambda: acc.at(0),
        lambda: acc.address(0, 0),
    ):
        with pytest.raises(PlanError, match="no addresses to load from"):
            use()
    assert acc[0:128, 0:4].extents == (128, 4)


@pytest.mark.parametrize(
    ("kind", "column", "layout", "message"),
    [
        ("f32", 505, "S[(128,8):(1@TLane,1@TCol)]", "columns up to 513"),
        ("f32", -1, "S[(128,8):(1@TLane,1@TCol)]", "from column -1"),
        ("f32", 0, "S[(128,8):(1@TLane,1@TCol)] + 1@TLane", "needs 129 lanes"),
        ("f16", 511, "S[(128,3):(1@TLane,1@TCol)]", "columns up to 513"),
        ("f32", 0, "S[(128,8):(8,1)]", "no layout of tensor memory"),
        ("f32", 0, "S[(128,8):(1@TLane,1)]", "no layout of tensor memory"),
    ],
)
def test_tensor_memory_ends_somewhere(kind, column, layout, message):
    parsed = TileLayout.parse(layout)
    with pytest.raises(PlanError, match=message):
        declare("c", (parsed.size,), kind, data=None, scope="tmem", allocated_addr=column, layout=parsed)
    inside = TileLayout.parse("S[(128,2):(1@TLane,1@TCol)]")
    assert declare("c", (128, 2), "f16", data=None, scope="tmem", allocated_addr=511, layout=inside).span
    with pytest.raises(PlanError, match="lies in shared"):
        declare("c", (8,), "f32", data=alloc_shared("s", (8,), "f32").data, allocated_addr=0)


def test_an_element_may_be_named_by_its_place_in_storage():
    A = match("A", (4, 8), "f32", layout=TileLayout(S[(4, 8) : (16, 1)]), elem_offset=64)
    assert (str(A.at(16)), str(A.at(TX * 2 - 3))) == ("A_ptr[80]", "A_ptr[tx * 2 + 61]")
    assert str(A.at(16)) == str(A[1, 0])
    assert str(Store(A.at(I4), A.at(0)).target) == "A_ptr[i + 64]"


def test_views_may_ask_for_an_alignment_and_allocations_get_it():
    A = match("A", (64,), "f32", align=8)
    assert declare("v", (16,), "f32", data=A.data, align=8).align == 8
    with pytest.raises(PlanError, match="aligned to 8 bytes, not to 16"):
        declare("v", (16,), "f32", data=A.data, align=16)
    assert declare("s", (16,), "f32", data=None, scope="shared", align=128).align == 128
    assert (alloc_shared("s", (4,), "f32", align=64).align, alloc_local("r", (8,), "f32", align=16).align) == (64, 16)
    r = alloc_local("r", (8,), "f32", align=16)
    assert str(r.vload([4], dtype="float32x4")) == "*(float4*)(r_ptr + 4)"
    with pytest.raises(PlanError, match="only known to be aligned to 4"):
        alloc_local("r", (8,), "f32").vload([4], dtype="float32x4")
    with pytest.raises(PlanError, match="only known to be aligned to 4 bits"):
        match("P", (64,), "e2m1", align=16, elem_offset=1).vload([0], dtype="e2m1x8")


def test_pointers_may_have_names_of_their_own():
    assert str(match("A", (4,), "f32", pointer="src")[1]) == "src[1]"
    assert str(alloc("r", (4,), "f32", scope="local", pointer="regs")[3]) == "regs[3]"


def test_indices_are_multiplied_by_ints_and_by_each_other():
    m, k = ScalarParam("m", 1, 9).var, ScalarParam("k", 1, 9).var
    assert str(m * Expr.of(3)) == str(Expr.of(3) * m) == "m * 3"
    with pytest.raises(RangeError, match="multiplies by ints and expressions"):
        m * 2.5
    with pytest.raises(RangeError, match="may be negative"):
        (m - 2) * k
    bound = let("n", m * 8 * k)
    assert (bound.value.bare(), bound.var.bounds(), bound.var.congruence()) == ("(m * 8) * k", (8, 648), (8, 0))
    assert str((bound.var * 4 + 3) // 32) == "(n >> 3)"
    bound = let("n", Index(m) * k)  # a plain value, of which nothing is known
    assert (bound.value.text(), str(as_index(bound.var).within(1, 81) * 4)) == ("m * k", "n * 4")


def test_natural_alignment_for_registers_and_vectors_for_shared_memory():
    assert [alloc_local("r", (4,), kind).align for kind in ("u8", "f16", "f32", "f64")] == [1, 2, 4, 8]
    assert alloc_shared("s", (4,), "u8").align == 16
    with pytest.raises(RangeError, match="power of two"):
        alloc("s", (4,), "f32", scope="shared", align=2)


def test_a_scalar_is_its_one_element_buffer():
    def body(phase, element):
        tx, B = thread_id("tx", 32), match("B", (32,), "int32")
        return Body("k", [B], [tx, phase, Store(element, 0), Store(B[tx.var], element + 1)], threads=32)

    scalar, buffer = local_scalar("phase", "int32"), alloc_local("phase", (1,), "int32")
    assert body(scalar, scalar.element) == body(buffer, buffer[0])
    assert scalar.set(scalar + 1) == Store(buffer[0], buffer[0] + 1)
    assert body(scalar, scalar.element).source == body(buffer, buffer[0]).source


def test_what_a_let_knows_decides_a_guard_that_a_scalar_leaves_open():
    m = ScalarParam("m", 0, 127)
    base = let("base", m.var * 4)
    assert base.var.congruence() == (4, 0)
    assert compare(base.var + 3, "<", 512).decide() is True
    assert compare(base.var % 4, "==", 0).decide() is True
    assert compare(base.var, "==", 3).decide() is False
    assert compare(base.var, "<", 508).decide() is None
    scalar = local_scalar("base", "int32")
    assert compare(as_index(scalar) + 3, "<", 512).decide() is None
    assert match("A", (512,), "f32", align=16).vload([base.var], dtype="float32x4").lanes == 4


def test_values_of_types_without_arithmetic_only_move():
    A = match("A", (8,), "bf16")
    assert Store(A[0], A[1]).value == A[1]
    for operation in (lambda: A[0] + A[1], lambda: -A[0], lambda: A[0] * 2):
        with pytest.raises(LayoutError):
            operation()
    with pytest.raises(PlanError, match="converted silently"):
        Store(A[0], match("B", (8,), "f32")[0])
    with pytest.raises(PlanError, match="no value of"):
        Store(match("B", (8,), "u8")[0], 256)
