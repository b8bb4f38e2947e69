"""Generated index code of the library's own kernels: no division or remainder that ranges decide is left in it."""

from __future__ import annotations

import re

import pytest

from codegen_cuda import permute_layout, register_layout_for, tmem_roundtrip
from codegen_cuda.addresses import address_of
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
    assert address.count("/") + address.count("%") <= most
    assert len(divisions(str(address))) == address.count("/") + address.count("%")


def test_the_count_sees_a_division_that_is_there():
    assert divisions("a[x / 3] = b[(x + 1) % 5]; // 7 / 2\n#pragma a / b") == ["/", "%"]
    assert divisions('asm("%0, %1" : "=r"(r[0]));') == []
