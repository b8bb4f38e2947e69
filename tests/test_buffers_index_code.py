"""Generated index code of the library's own kernels: no division or remainder that ranges decide is left in it."""

from __future__ import annotations

import ast
import re

import pytest
from index_code import IndexCode
from tensor_oracle import DTYPES
from test_permute_kernels import ALL, make
from test_tensor_kernels import CASES, WIDTHS
from test_tmem_execution import KERNELS, L

from codegen_cuda import permute_layout, permute_tensor, register_layout_for, tmem_copy, tmem_roundtrip
from codegen_cuda.addresses import address_of
from codegen_cuda.examples import examples
from codegen_cuda.expr import Expr
from layoutalg import TileLayout
from layoutalg.hardware.tmem import tmem_datapath_layout

PERMUTES = [
    ("S[(4,32):(32,1)]", "S[(4,32):(1,4)]", "f32"),
    ("S[(2,4,32):(128,32,1)]", "S[(2,4,32):(128,1,4)]", "u32"),
    ("S[(8,32):(32,1)]", "S[(8,32):(1,8)]", "f32"),
    ("S[(32,32):(32,1)]", "S[(32,32):(1,32)]", "u8"),
    ("S[(16,8):(8,1)]", "S[(16,8):(1,16)]", "u64"),
]


def divisions(source: str) -> list[str]:
    """Operators ``/`` and ``%`` outside comments, strings and preprocessor lines; shifts and masks are none."""
    lines = [line.partition("//")[0] for line in source.splitlines() if not line.lstrip().startswith("#")]
    return re.findall(r"[\w)\]]\s*([/%])\s*[\w(]", re.sub(r'"[^"]*"', '""', "\n".join(lines)))


@pytest.mark.parametrize(("source", "destination", "dtype"), PERMUTES)
def test_a_permute_of_powers_of_two_divides_nothing(source, destination, dtype):
    kernel = permute_layout(TileLayout.parse(source), TileLayout.parse(destination), dtype=dtype)
    assert len(divisions(kernel.source)) == 0


@pytest.mark.parametrize(("letter", "rows", "cols", "atom"), [("D", 128, 64, "32x32b"), ("F", 64, 32, "16x64b")])
def test_a_tensor_memory_copy_divides_nothing(letter, rows, cols, atom):
    layout = tmem_datapath_layout(letter, rows, cols)
    registers = register_layout_for(layout, (rows, cols), "f32", atom)
    kernel = tmem_roundtrip(layout, registers, (rows, cols), "f32")
    assert len(divisions(kernel.source)) == 0


@pytest.mark.parametrize(
    ("layout", "shape", "most"),
    [
        ("S[(4,8):(8,1)]", (4, 8), 0),
        ("S[(3,5,7):(35,7,1)]", (3, 5, 7), 0),
        ("S[(3,5,7):(1,21,3)]", (15, 7), 2),  # a dimension of two digits that meet nowhere: one quotient, one remainder
        ("S[(3,5,7):(35,7,1)]", (105,), 0),  # one progression in the end: digits recombine
        ("S[(4,8,16):(8,1,32)]", (32, 16), 0),  # powers of two: a shift and a mask
    ],
)
def test_an_address_divides_as_often_as_its_layout_has_digits_and_no_more(layout, shape, most):
    coord = [Expr.var(f"x{d}", 0, extent - 1) for d, extent in enumerate(shape)]
    address = address_of(TileLayout.parse(layout), shape, coord)
    assert len(divisions(str(address))) <= most


def test_the_count_sees_a_division_that_is_there():
    assert divisions("a[x / 3] = b[(x + 1) % 5]; // 7 / 2\n#pragma a / b") == ["/", "%"]
    assert divisions('asm("%0, %1" : "=r"(r[0]));') == []


#: Remainders and quotients by powers of two are masks and shifts.
DIVIDING = (ast.FloorDiv, ast.Mod, ast.BitAnd, ast.RShift)


def index_code(kernel, **known):
    return IndexCode(kernel.source, kernel.claim.block[0], kernel.claim.grid[0], **known)


def test_no_permute_kernel_divides_in_vain():
    """But for one mask of the xor form, kept as the reference spells it."""
    seen = 0
    widest = dict(ALL)  # one width of each: widths differ in strides alone
    for name, width in widest.items():
        kernel = make(name, width)
        stages = {p.name: (p.begin, p.end) for p in kernel.problem.params}
        code = index_code(kernel, lane=(0, 32), warp=(0, kernel.problem.warps), **stages)
        kept = set()
        if kernel.plan.form == "xor":
            shift, mask = kernel.plan.details["shift"], kernel.plan.details["mask"]
            kept = {f"lane >> {shift} & {mask}" if shift else f"lane & {mask}"}
        assert set(code.redundant(*DIVIDING)) <= kept, (name, width)
        seen += len(code.operations)
    assert seen > len(widest)


@pytest.mark.parametrize("name", KERNELS)
def test_no_tensor_memory_kernel_divides_in_vain(name):
    tmem, registers, shape, kind, options = KERNELS[name]
    kernels = [tmem_roundtrip(L(tmem), L(registers), shape, kind, **options)]
    kernels += [tmem_copy(L(tmem), L(registers), shape, kind, direction=d, **options) for d in ("st", "ld")]
    for kernel in kernels:
        code = index_code(kernel)
        assert code.redundant(*DIVIDING) == []
        assert code.operations


def test_no_whole_tensor_kernel_divides_in_vain():
    seen = 0
    for shape, perm, strategies in CASES.values():
        for place, width in enumerate(WIDTHS):
            strategy = strategies.split()[place] if strategies else "auto"
            code = index_code(permute_tensor(shape, perm, DTYPES[width], strategy=strategy))
            assert code.redundant() == [], (shape, perm, width)
            seen += len(code.operations)
    assert seen > len(CASES)


def test_no_example_divides_in_vain():
    for example in examples().values():
        code = IndexCode(example.body.source, example.body.threads, example.body.blocks, n=(4, 512))
        assert code.redundant(*DIVIDING) == []


@pytest.mark.parametrize(
    ("line", "redundant"),
    [
        ("const int a = threadIdx.x % 64;", ["threadIdx_x % 64"]),
        ("const u32 a = threadIdx.x / 32u;", ["threadIdx_x // 32"]),
        ("out[(threadIdx.x * 4) % 4] = 0;", ["threadIdx_x * 4 % 4"]),
        ("const u32 a = (u32)(threadIdx.x / 1u);", ["threadIdx_x // 1"]),
        ("const int a = threadIdx.x % 31;", []),
        ("for (int k = 1; k < 9; ++k) x[k % 9] = y[k / 8];", ["k % 9"]),
        ("const int a = threadIdx.x % 8;\nx[a / 8] = y[a / 4];", ["a // 8"]),
    ],
)
def test_what_divides_in_vain_is_seen(line, redundant):
    assert IndexCode(line, 32).redundant() == redundant
