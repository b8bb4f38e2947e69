"""Permute kernels of every form and width: compiled without a GPU, run in the interpreter, some certified."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from permute_oracle import DTYPES, bit_permutation, dense, smooth_shapes, strided

from codegen_cuda import Kernel, permute_layout
from codegen_cuda.errors import PlanError
from codegen_cuda.permute import FORMS, Operand
from codegen_cuda.pipeline import prove
from layoutalg import Param, Swizzle, SwizzledLayout, TileLayout
from layoutalg.f2 import F2Map

SWIZZLED = SwizzledLayout(Swizzle(3, 2, 3), dense((16, 32), (0, 1)))
MIXED = SwizzledLayout(F2Map((1, 2, 4 | 1, 8, 16, 32 | 2, 64, 128)), dense((8, 32), (0, 1)))

#: name -> source, destination, region, widths, form
CASES: dict[str, tuple[Any, Any, Any, tuple[int, ...], str]] = {
    "xor": (dense((4, 32), (0, 1)), dense((4, 32), (1, 0)), None, (2, 4), "xor"),
    "xor of wide elements": (dense((32, 32), (0, 1)), dense((32, 32), (1, 0)), None, (8, 16), "xor"),
    "xor of a swizzled side": (SWIZZLED, dense((16, 32), (0, 1)), None, (4, 16), "xor"),
    "xor for four warps": (dense((32, 32), (0, 1)), dense((32, 32), (1, 0)), None, (4,), "xor 4 warps"),
    "rotation": (dense((15, 32), (0, 1)), dense((15, 32), (1, 0)), None, (4, 8, 16), "rotation"),
    "rotation with a tail": (dense((7, 11), (0, 1)), dense((7, 11), (0, 1)), None, (1, 2, 4, 8, 16), "rotation"),
    "rotation for two warps": (dense((5, 33), (0, 1)), dense((5, 33), (0, 1)), None, (4,), "rotation 2 warps"),
    "gf2": (dense((8, 4, 8), (0, 1, 2)), dense((8, 4, 8), (2, 1, 0)), None, (1, 2, 4, 8, 16), "gf2"),
    "gf2 with idle lanes": (dense((2, 4), (0, 1)), dense((2, 4), (1, 0)), None, (1, 2, 4, 8, 16), "gf2"),
    "gf2 with unequal banks": (dense((8, 16), (0, 1)), strided((8, 16), (1, 32)), None, (4, 8), "gf2"),
    "gf2 downwards": (dense((8, 16), (0, 1)), strided((8, 16), (-1, -8)), None, (4,), "gf2"),
    "gf2 of a linear map": (MIXED, dense((8, 32), (1, 0)), None, (4, 8), "gf2"),
    "gf2 for four warps": (dense((32, 32), (0, 1)), dense((32, 32), (1, 0)), None, (4, 8), "gf2 4 warps"),
    "vector downwards": (dense((8, 16), (0, 1)), strided((8, 16), (16, -1)) + -3, None, (4,), "vector"),
    "words downwards": (strided((8, 16), (-16, 1)) + 16, dense((8, 16), (1, 0)), None, (1, 2), "words"),
    "below the base": (dense((8, 16), (0, 1)) + -37, strided((8, 16), (-1, -8)) + -5, None, (1, 2, 4, 8), "auto"),
    "table": (dense((9, 15), (0, 1)), dense((9, 15), (1, 0)), None, (1, 2, 4, 8, 16), "table"),
    "table of one slot": (dense((3, 5), (0, 1)), dense((3, 5), (1, 0)), None, (4, 8), "table"),
    "table of padded rows": (strided((9, 15), (17, 1)), strided((9, 15), (1, 11)), None, (4, 8), "table"),
    "table far apart": (strided((3, 5), (30000, 1)), dense((3, 5), (1, 0)), None, (1,), "table"),
    "table for three warps": (dense((9, 31), (0, 1)), dense((9, 31), (1, 0)), None, (4,), "table 4 warps"),
    "vector": (dense((16, 16), (0, 1)), dense((16, 16), (1, 0)), None, (1, 2, 4, 8), "vector"),
    "vector to rows": (dense((4, 32), (0, 1)), dense((4, 32), (1, 0)), None, (1, 2, 4), "vector"),
    "vector in company": (dense((9, 5, 4), (0, 1, 2)), dense((9, 5, 4), (1, 0, 2)), None, (2, 4), "vector"),
    "vector for four warps": (dense((64, 32), (0, 1)), dense((64, 32), (1, 0)), None, (4,), "vector 4 warps"),
    "words": (dense((16, 32), (0, 1)), dense((16, 32), (1, 0)), None, (1, 2), "words"),
    "words of a swizzled side": (SWIZZLED, dense((16, 32), (1, 0)), None, (1, 2), "words"),
    "words with turning bytes": (dense((16, 16, 2), (0, 1, 2)), dense((16, 16, 2), (1, 0, 2)), None, (1,), "words"),
    "words below the threshold": (dense((4, 16), (0, 1)), dense((4, 16), (1, 0)), None, (1, 2), "words"),
    "words in company": (dense((9, 5, 4), (0, 1, 2)), dense((9, 5, 4), (1, 0, 2)), None, (1,), "words"),
    "words of closed blocks": (dense((12, 16), (0, 1)), dense((12, 16), (1, 0)), None, (1, 2), "words"),
    "words torn apart": (dense((9, 15), (0, 1)), dense((9, 15), (1, 0)), None, (1, 2), "words"),
    "words of a part": (dense((5, 13), (0, 1)), strided((5, 13), (1, 6)), None, (1, 2), "words"),
    "words for two warps": (dense((32, 32), (0, 1)), dense((32, 32), (1, 0)), None, (1,), "words 2 warps"),
    "one element": (strided((1,), (1,)), strided((1,), (1,)) + 3, None, (1, 4, 16), "auto"),
    "company for four warps": (dense((3, 5, 4), (0, 1, 2)), dense((3, 5, 4), (1, 0, 2)), None, (1, 2), "words 4 warps"),
    "a block's table with a tail": (
        dense((21, 13), (0, 1)),
        dense((21, 13), (1, 0)),
        None,
        (1, 4, 8, 16),
        "table 4 warps",
    ),
    "a block's linear pair": (dense((16, 32), (0, 1)), dense((16, 32), (1, 0)), None, (2, 16), "gf2 2 warps"),
    "a block's rotation": (dense((5, 13), (0, 1)), dense((5, 13), (0, 1)), None, (2, 16), "rotation 2 warps"),
    "a block's own choice": (dense((24, 9), (0, 1)), dense((24, 9), (1, 0)), None, (1, 8), "auto 2 warps"),
    "a stage of one value": (
        strided((3, 4, 5), (27, 5, 1)),
        strided((3, 4, 5), (-21, 1, 5)) + 42,
        (Param("s", 2, 3), (0, 4), (0, 5)),
        (1, 2),
        "words",
    ),
    "stages": (
        dense((3, 8, 16), (0, 1, 2)),
        strided((3, 8, 16), (128, 1, 8)),
        (Param("s", 0, 3), (0, 8), (0, 16)),
        (1, 2, 4, 8),
        "auto",
    ),
    "stages from the second on": (
        dense((4, 9, 5), (0, 1, 2)),
        strided((4, 9, 5), (45, 1, 9)),
        (Param("s", 1, 4), (0, 9), (0, 5)),
        (1, 2, 4),
        "auto",
    ),
    "stages of a swizzled side": (
        SwizzledLayout(Swizzle(2, 2, 3), dense((2, 8, 16), (0, 1, 2))),
        dense((2, 8, 16), (0, 2, 1)),
        (Param("s", 0, 2), (0, 8), (0, 16)),
        (2, 4),
        "auto",
    ),
}


def make(name: str, width: int) -> Kernel:
    source, destination, region, _, form = CASES[name]
    plan, _, shared = form.partition(" ")
    options: dict[str, Any] = {"scope": "cta", "warps": int(shared.split()[0])} if shared else {}
    return permute_layout(
        Operand(source, None, region), Operand(destination, None, region), dtype=DTYPES[width], plan=plan, **options
    )


def expected(kernel: Kernel, data: np.ndarray) -> np.ndarray:
    """What must come out, element by element from the layouts' ``apply``."""
    out = data.copy()
    problem = kernel.problem
    first = kernel.claim.buffer("src").first
    stages = [{}] if not problem.params else [{"s": s} for s in range(problem.params[0].begin, problem.params[0].end)]
    for stage in stages:
        sides = [side.substitute(**stage) if stage else side for side in (problem.source, problem.destination)]
        for element in range(problem.size):
            source, destination = (side.apply(element).get("m", 0) - first for side in sides)
            out[destination] = data[source]
    return out


def run_in_the_interpreter(kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
    width = kernel.claim.width
    data = np.random.default_rng(0).integers(0, 256, kernel.claim.buffer("src").count * width, dtype=np.uint8)
    data = data.view(f"V{width}")
    ready = kernel if kernel.ptx is not None else kernel.compile()
    return data, ready.run(data, device="cpu", uncertified=True)


ALL = [(name, width) for name, case in CASES.items() for width in case[3]]
#: One width of each case, another one from case to case.
SOME = [(name, case[3][number % len(case[3])]) for number, (name, case) in enumerate(CASES.items())]


@pytest.mark.parametrize(("name", "width"), [case for case in SOME if case[0] != "table far apart"])
def test_a_kernel_of_every_form_permutes_in_the_interpreter(name, width):
    kernel = make(name, width)
    data, got = run_in_the_interpreter(kernel)
    assert (got == expected(kernel, data)).all()


@pytest.mark.parametrize("name", ["one element", "a stage of one value"])
def test_plans_of_a_single_element_or_stage_are_proved(name):
    """One element has no axis; a parameter of one value moves nothing, whatever its stride."""
    statements = prove(make(name, 1))
    assert statements
    assert all(o.verdict.ok for o in statements), [str(o) for o in statements if not o.verdict.ok]


def test_the_cases_cover_every_form_at_every_width_it_serves():
    served = {(case[4].split()[0], width) for case in CASES.values() for width in case[3]}
    assert {form for form, _ in served} >= set(FORMS)
    for form, widths in {
        "rotation": (1, 2, 4, 8, 16),
        "gf2": (1, 2, 4, 8, 16),
        "table": (1, 2, 4, 8, 16),
        "vector": (1, 2, 4, 8),
        "words": (1, 2),
        "xor": (2, 4, 8, 16),
    }.items():
        assert {(form, width) for width in widths} <= served


#: Staging 60,000 bytes takes the symbolic checker minutes and says nothing about the permute.
CERTIFIED = [(name, width) for name, width in ALL if name != "table far apart"]


@pytest.mark.parametrize(("name", "width"), ALL)
@pytest.mark.slow
def test_kernels_of_every_form_and_width_are_proved_from_plan_to_ptx_and_permute(name, width):
    kernel = make(name, width)
    kernel = kernel.certify() if (name, width) in CERTIFIED else kernel.compile()
    failed = [row for row in (kernel.certificate or {}).get("obligations", ()) if row["verdict"] != "Proved"]
    assert not failed
    data, got = run_in_the_interpreter(kernel)
    assert (got == expected(kernel, data)).all()


@pytest.mark.parametrize(
    ("source", "destination", "width", "form", "promised"),
    [
        (dense((4, 32), (0, 1)), dense((4, 32), (1, 0)), 1, "xor", {"read"}),
        (dense((4, 32), (0, 1)), dense((4, 32), (1, 0)), 1, "rotation", {"read"}),
        (dense((4, 8, 8), (0, 1, 2)), dense((4, 8, 8), (2, 1, 0)), 2, "gf2", None),
        (dense((4, 32), (0, 1)), dense((4, 32), (1, 0)), 4, "xor", {"read", "write"}),
    ],
)
def test_accesses_that_a_compiler_joins_are_promised_no_count_and_proved(source, destination, width, form, promised):
    """Found on kernels of one byte: four stores to one word became one, and the certificate refused the plan's four."""
    kernel = permute_layout(source, destination, dtype=DTYPES[width], plan=form)
    assert promised is None or {bank.phase for bank in kernel.claim.banks} == promised
    assert kernel.certify().certificate["proved"]


def test_a_hundred_kernels_are_proved():
    assert len(CERTIFIED) >= 100


@pytest.mark.parametrize(("name", "width"), [("gf2 with idle lanes", 4), ("words torn apart", 1)])
def test_a_small_kernel_is_proved_from_plan_to_ptx(name, width):
    kernel = make(name, width).certify()
    assert kernel.certificate["proved"], kernel.certificate["obligations"]


@pytest.mark.slow
def test_narrow_elements_share_registers_where_there_would_be_too_many():
    rows, columns = dense((96, 60), (0, 1)), dense((96, 60), (1, 0))
    kernel = permute_layout(rows, columns, dtype="u8", plan="table")
    assert kernel.plan.registers == 45
    assert "unsigned int regs[45]" in kernel.source
    data, got = run_in_the_interpreter(kernel)
    assert (got == data.reshape(96, 60).T.reshape(-1)).all()


def test_stages_that_overlap_between_two_memories_are_kept_apart():
    source, destination = dense((3, 64), (0, 1)), strided((3, 64), (64, 1)) + 64
    region = (Param("s", 0, 3), (0, 64))
    sides = Operand(source, None, region), Operand(destination, None, region)
    with pytest.raises(PlanError) as caught:
        permute_layout(*sides, dtype="f32")
    assert caught.value.facts["rule"] == "stages"
    kernel = permute_layout(*sides, dtype="f32", in_place=False)
    data, got = run_in_the_interpreter(kernel)
    assert (got == expected(kernel, data)).all()
    assert kernel.certify().certificate["proved"]


def test_bools_move_as_bits():
    kernel = permute_layout(dense((4, 32), (0, 1)), dense((4, 32), (1, 0)), dtype="bool", plan="gf2")
    data, got = run_in_the_interpreter(kernel)
    assert "unsigned char" in kernel.source
    assert (got == data.reshape(4, 32).T.reshape(-1)).all()


def test_the_source_is_header_free_and_its_comment_states_layouts_form_bounds_costs_and_proofs():
    source = permute_layout(dense((9, 15), (0, 1)), dense((9, 15), (1, 0)), dtype="f32").source
    comment = source[: source.index("__device__")]
    for word in ("S[135:1]", "S[(9,15):(1,9)]", "table", "lower bound 5", "5 wavefronts", "registers", "proves"):
        assert word in comment
    assert "considered   gf2:" in comment
    assert "#include" not in source
    assert "__constant__" not in source


def test_names_are_readable_and_carry_no_hashes():
    kernel = permute_layout(dense((9, 15), (0, 1)), dense((9, 15), (1, 0)), dtype="f32")
    assert kernel.name == "permute_9x15_float32_table"
    shared = permute_layout(dense((9, 15), (0, 1)), dense((9, 15), (1, 0)), dtype="f32", scope="cta")
    assert shared.name == "permute_9x15_float32_table_4warps"


def test_a_table_is_read_in_whole_vectors_from_global_memory():
    kernel = permute_layout(dense((33, 31), (0, 1)), dense((33, 31), (1, 0)), dtype="f32", plan="table").compile()
    assert len(re.findall(r"ld\.global\.nc\.v4", kernel.ptx.text)) == 8
    assert ".const" not in kernel.ptx.text


@pytest.mark.parametrize("name", ["lane", "src", "int", "regs", "_x", "t0"])
def test_a_stage_name_that_would_clash_with_the_code_is_refused(name):
    layout = dense((2, 32), (0, 1))
    region = (Param(name, 0, 2), (0, 32))
    with pytest.raises(PlanError, match="choose another name") as caught:
        permute_layout(Operand(layout, None, region), Operand(layout, None, region), dtype="f32")
    assert caught.value.facts["rule"] == "names"


@pytest.mark.slow
def test_stages_whose_words_start_anywhere_are_costed_at_the_worst_and_still_proved():
    layout = dense((3, 3, 31), (0, 1, 2))
    turned = strided((3, 3, 31), (93, 1, 3))
    region = (Param("s", 0, 3), (0, 3), (0, 31))
    kernel = permute_layout(Operand(layout, None, region), Operand(turned, None, region), dtype="u8", plan="table")
    data, got = run_in_the_interpreter(kernel)
    assert (got == expected(kernel, data)).all()
    assert kernel.certify().certificate["proved"]


def random_requests(count: int) -> list[tuple[Any, Any, int, str]]:
    rng = random.Random(11)
    shapes = smooth_shapes((2, 3, 5), 1024)
    found: list[tuple[Any, Any, int, str]] = []
    while len(found) < count:
        width = rng.choice((1, 2, 4, 8, 16))
        if rng.random() < 0.5:
            source, destination = bit_permutation(rng.sample(range(8), 8))
        else:
            shape = rng.choice(shapes)
            source, destination = dense(shape, (0, 1, 2)), dense(shape, rng.sample(range(3), 3))
        form = rng.choice(list(FORMS))
        try:
            FORMS[form](permute_layout(source, destination, dtype=DTYPES[width], plan="table").problem)
        except PlanError:
            continue
        found.append((source, destination, width, form))
    return found


@pytest.mark.slow
def test_a_hundred_random_kernels_permute_in_the_interpreter():
    for source, destination, width, form in random_requests(100):
        kernel = permute_layout(source, destination, dtype=DTYPES[width], plan=form)
        data, got = run_in_the_interpreter(kernel)
        assert (got == expected(kernel, data)).all(), (str(source), str(destination), width, form)


def test_a_layout_that_says_nothing_of_memory_moves_one_element():
    one = TileLayout.parse("S[1:1]")
    kernel = permute_layout(one, one + 3, dtype="f32")
    data, got = run_in_the_interpreter(kernel)
    assert got[3] == data[0]
