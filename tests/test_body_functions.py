"""Device functions, tables and words as values: printed, checked at the call, and executed against numpy."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import codegen_cuda
from codegen_cuda.access import Pointer, word_type
from codegen_cuda.body import (
    Body,
    Function,
    If,
    ScalarParam,
    Store,
    Sync,
    all_of,
    any_of,
    compare,
    let,
    let_pointer,
    loop,
    thread_id,
)
from codegen_cuda.buffers import alloc, alloc_local, alloc_shared, declare, match
from codegen_cuda.build import compile_ptx
from codegen_cuda.errors import PlanError
from codegen_cuda.expr import Expr
from codegen_cuda.tables import Table
from codegen_cuda.tcgen05 import tcgen05_relinquish
from codegen_cuda.values import Literal, Name
from codegen_cuda.words import byte_perm, cast, field, record
from layoutalg.errors import RegionError
from layoutalg.hardware.dtypes import dtype
from verify.ptx.concrete import Buffer as Memory
from verify.ptx.concrete import run
from verify.ptx.parse import parse

TX = thread_id("tx", 64)
A, B = match("A", (64,), "u32"), match("B", (64,), "u32")
WORD = dtype("uint32")


def execute(body, *inputs, out):
    """Run a body's PTX for every thread on the CPU; return its last buffer."""
    module = parse(compile_ptx(body.source).text, file="k.ptx")
    params = [*map(Memory, inputs), Memory(np.zeros_like(out), mode="w")]
    result = run(module, grid=body.blocks, block=body.threads, params=params, dynamic_shared=body.dynamic_shared_bytes)
    assert result.warnings == ()
    return result.buffers[len(inputs)]


def lines(body):
    return [line.strip() for line in body.source.splitlines()]


def test_a_function_is_printed_before_its_kernel_once_and_runs():
    r, scale, k = alloc_local("r", (4,), "u32"), Name("scale", WORD), ScalarParam("k", 0, 3)
    inner = Function("times", (r, scale, k), [Store(r[k.var], r[k.var] * scale)])
    outer = Function("twice", (r, scale), [inner.call(r, scale, i) for i in range(4)])
    own = alloc_local("own", (4,), "u32")
    steps = [TX, own, [Store(own[i], A[TX.var] + i) for i in range(4)], outer.call(own, 3), Store(B[TX.var], own[2])]
    body = Body("k", (A, B), steps, threads=64)
    source = body.source
    assert source.count("__forceinline__ void times(unsigned int (&r_ptr)[4], unsigned int scale, int k) {") == 1
    assert source.index("void times(") < source.index("void twice(") < source.index("__global__")
    data = np.arange(64, dtype=np.uint32)
    assert np.array_equal(execute(body, data, out=data), (data + 2) * 3)


def test_pointers_that_a_function_only_reads_are_const_and_so_are_those_passed_to_it():
    source, target = (declare(n, (64,), "u32", data=Pointer(n, WORD, "shared", 16)) for n in ("src", "dst"))
    turn = Function("turn", (target, source), [Store(target[0], source[1])])
    assert "void turn(unsigned int* dst, const unsigned int* src) {" in turn.source
    shared = alloc_shared("s", (64,), "u32")
    part = declare("part", (32,), "u32", data=shared.data, elem_offset=32)
    body = Body("k", (A, B), [TX, shared, turn.call(part, shared), Store(B[TX.var], shared[TX.var])], threads=64)
    assert "turn(s_ptr + 32, s_ptr);" in body.source
    read = Function("read", (declare("p", (64,), "u32", data=Pointer("p", WORD, "global", 4)),), [])
    assert "(const unsigned int* __restrict__ A_ptr" in Body("k", (A,), [read.call(A)], threads=64).source


def test_arguments_are_checked_against_their_parameters():
    r, k = alloc_local("r", (4,), "u32"), ScalarParam("k", 0, 3)
    f = Function("f", (r, k), [Store(r[k.var], 0)])
    aligned = declare("p", (4,), "u32", data=Pointer("p", WORD, "shared", 16))
    g = Function("g", (aligned, Name("x", WORD)), [Store(aligned[0], Name("x", WORD))])
    shared = alloc_shared("s", (64,), "u32")
    for call, message in [
        (lambda: f.call(r), "takes 2 arguments"),
        (lambda: f.call(r, TX.var), r"k lies in \[0, 3\], and tx in \[0, 63\]"),
        (lambda: f.call(alloc_local("q", (5,), "u32"), 0), "16 bytes of registers"),
        (lambda: f.call(alloc_local("q", (4,), "i32"), 0), "a buffer of uint32 in scope local"),
        (lambda: f.call(shared, 0), "in scope local"),
        (lambda: f.call(3, 0), "is a buffer"),
        (lambda: g.call(declare("v", (4,), "u32", data=shared.data, elem_offset=1), 0), "multiple of 16 bytes"),
        (lambda: g.call(shared, A[0] + 1) and g.call(shared, match("F", (4,), "f32")[0]), "converted silently"),
    ]:
        with pytest.raises(PlanError, match=message):
            call()
    assert str(g.call(alloc("d", (8,), "u32", scope="shared.dyn"), 7).call) == "g(d_ptr, 7u)"


def test_names_inside_a_function_are_its_parameters_and_its_own():
    r = alloc_local("r", (4,), "u32")
    stranger = Function("f", (r,), [Store(r[0], A[0])])
    with pytest.raises(PlanError, match="uses A_ptr before a declaration"):
        _ = Body("k", (A, B), [r, stranger.call(r)], threads=64).source
    clash = [Function("f", (r,), [Store(r[0], n)]).call(r) for n in (1, 2)]
    with pytest.raises(PlanError, match="two sources for f"):
        _ = Body("k", (A, B), [r, *clash], threads=64).source
    with pytest.raises(PlanError, match="cannot be the name"):
        _ = Body("k", (A, B), [r, Function("while", (r,), []).call(r)], threads=64).source


@pytest.mark.parametrize("inside", [Sync(), tcgen05_relinquish()])
def test_barriers_in_a_function_count_where_it_is_called(inside):
    w = ScalarParam("w", 0, 63)
    plain = Function("f", (w,), [inside])
    guarded = Function("f", (w,), [If(compare(w.var, "==", 1), (inside,))])
    warp = let("warp", TX.var // 32)
    block = isinstance(inside, Sync)
    assert Body("k", (), [TX, plain.call(TX.var)], threads=64).source
    for call in (If(compare(TX.var, "<", 3), (plain.call(0),)), guarded.call(TX.var)):
        with pytest.raises(PlanError, match="must come by"):
            _ = Body("k", (), [TX, warp, call], threads=64).source
    if block:
        with pytest.raises(PlanError, match="must come by"):
            _ = Body("k", (), [TX, warp, guarded.call(warp.var)], threads=64).source
    else:
        assert Body("k", (), [TX, warp, guarded.call(warp.var)], threads=64).source
    # A parameter named like something of the caller's is still what is passed.
    same = Function("g", (ScalarParam("warp", 0, 63),), [If(compare(Expr.var("warp", 0, 63), "==", 1), (inside,))])
    with pytest.raises(PlanError, match="must come by"):
        _ = Body("k", (), [TX, warp, same.call(TX.var)], threads=64).source


def test_a_guard_that_is_decided_keeps_the_names_of_its_branch_apart():
    def part(k):
        x = alloc_local("x", (1,), "u32")
        return If(compare(TX.var, "<", 64), (x, Store(x[0], A[TX.var] + k), Store(B[TX.var], x[0])))

    body = Body("k", (A, B), [TX, part(1), part(2)], threads=64)
    assert "if" not in [line.split()[0] for line in lines(body) if line and not line.startswith("#")]
    data = np.arange(64, dtype=np.uint32)
    assert np.array_equal(execute(body, data, out=data), data + 2)


def test_guards_combine_and_leave_out_what_is_decided():
    x = TX.var
    sure, never, open_one, other = (compare(x, "<", n) for n in (64, 0, 5, 9))
    assert (any_of(never, sure).decide(), all_of(sure, never).decide(), any_of(never).decide()) == (True, False, False)
    assert str(any_of(never, open_one)) == "tx < 5"
    assert str(all_of(open_one, sure, other)) == "tx < 5 && tx < 9"
    assert (str(all_of()), str(any_of(never))) == ("true", "false")
    either = If(any_of(open_one, compare(x, "==", 7)), (Store(B[x], A[x]),), (Store(B[x], 0),))
    body = Body("k", (A, B), [TX, either], threads=64)
    data = np.arange(100, 164, dtype=np.uint32)
    assert np.array_equal(execute(body, data, out=data), np.where((np.arange(64) < 5) | (np.arange(64) == 7), data, 0))


def test_a_loop_may_start_anywhere():
    own = alloc_local("own", (1,), "u32")
    total = loop("k", 3, lambda k: [Store(own[0], own[0] + A[k])], begin=61)
    body = Body("k", (A, B), [TX, own, Store(own[0], 0), total, Store(B[TX.var], own[0])], threads=64)
    assert "for (int k = 61; k < 64; ++k) {" in lines(body)
    data = np.arange(64, dtype=np.uint32)
    assert np.array_equal(execute(body, data, out=data), np.full(64, 61 + 62 + 63))


def test_a_table_is_looked_up_with_every_index_in_its_range():
    rows = np.random.default_rng(5).integers(0, 1 << 32, (2, 64, 4))
    table = Table("t", word_type(16), (2, 64), tuple(map(tuple, rows.reshape(-1, 4).tolist())), "some words")
    found = let("found", table[1, TX.var])
    body = Body("k", (B,), [TX, found, Store(B[TX.var], field(found.var, 3) ^ field(found.var, 0))], threads=64,
                tables=[table])  # fmt: skip
    assert body.source.startswith("// some words\n__device__ const uint4 t[2][64] = {\n")
    got = execute(body, out=np.zeros(64, np.uint32))
    assert np.array_equal(got, (rows[1, :, 3] ^ rows[1, :, 0]).astype(np.uint32))
    for key in ((2, TX.var), (0, TX.var + 1), (-1, 0), TX.var):
        with pytest.raises(RegionError, match="may leave the shape"):
            table[key]
    with pytest.raises(PlanError, match="elements of uint32"):
        Table("t", WORD, (3,), ((1,), (2,)))
    with pytest.raises(PlanError, match="elements of uint32x4"):
        Table("t", word_type(16), (1,), ((1, 2),))
    with pytest.raises(PlanError, match="uses t before a declaration"):
        _ = Body("k", (B,), [TX, found], threads=64).source


def test_words_are_taken_apart_and_put_together():
    wide = declare("W", (16,), word_type(16), data=match("A", (64,), "u32", align=16).data)
    words = [let("w", wide[TX.var.within(0, 15)]), let("s", cast("u32", TX.var) << 1)]
    w = words[0].var
    mixed = byte_perm(field(w, 0), field(w, 1), 0x7610) + (field(w, 2) >> words[1].var & 0xFF)
    low = cast("u32", cast("u8", field(w, 3)))
    out = declare("O", (16,), word_type(8), data=match("B", (32,), "u32", align=8).data)
    steps = [TX, If(compare(TX.var, "<", 16), (*words, Store(out[TX.var.within(0, 15)], record(mixed, low))))]
    body = Body("k", (match("A", (64,), "u32", align=16), match("B", (32,), "u32", align=8)), steps, threads=64)
    data = np.random.default_rng(1).integers(0, 1 << 32, 64).astype(np.uint32)
    got = execute(body, data, out=np.zeros(32, np.uint32)).reshape(16, 2)
    a, b, c, d = data.reshape(16, 4).T
    picked = (a & 0xFFFF) | (b >> 16 << 16)
    assert np.array_equal(got[:, 0], picked + (c >> np.arange(0, 32, 2, dtype=np.uint32) & 0xFF))
    assert np.array_equal(got[:, 1], d & 0xFF)


def test_words_that_are_none_are_refused():
    x, v, f = Name("x", WORD), Name("v", word_type(16)), Name("f", dtype("f32"))
    for wrong, message in [
        (lambda: field(v, 4), "has 4 words"),
        (lambda: field(Name("d", dtype("f64")), 0), "no words to take"),
        (lambda: record(x, x, x), "1, 2 or 4 words"),
        (lambda: record(x, f), "converted silently"),
        (lambda: cast("u32", f), "only integers are"),
        (lambda: cast("f32", x), "only integers are"),
        (lambda: byte_perm(x, f, 0), "converted silently"),
        (lambda: f & 1, "bits are taken of unsigned integers"),
        (lambda: Name("i", dtype("i32")) >> 1, "cast it"),
        (lambda: x << 32, "by 0 to 31"),
        (lambda: x >> -1, "by 0 to 31"),
        (lambda: x & f, "converted silently"),
    ]:
        with pytest.raises(PlanError, match=message):
            wrong()
    assert cast("u32", x) is x
    assert field(x, 0) is x
    assert str(Literal(21, WORD, digits=4)) == "0x0015u"


def test_a_bound_pointer_that_nobody_writes_through_is_const():
    read, written = let_pointer("in", "u8", A.data), let_pointer("out", "u8", B.data)
    given, made = (declare(p.pointer.name, (256,), "u8", data=p.pointer) for p in (read, written))
    body = Body("k", (A, B), [TX, read, written, Store(made[TX.var], given[TX.var])], threads=64)
    assert "const unsigned char* const in = (const unsigned char*)A_ptr;" in lines(body)
    assert "unsigned char* const out = (unsigned char*)B_ptr;" in lines(body)
    assert "const unsigned int* __restrict__ A_ptr, unsigned int* __restrict__ B_ptr" in body.source


C_CODE = re.compile(r"__\w+|\basm\b|\w\]?\)?;$|\bunsigned\b|\bconst\b|\)\s*\{|\[%|\breinterpret_cast\b|\breturn\b")


def c_in_strings(text):
    """Strings of a module that look like C; docstrings and messages of errors are none of its output."""
    tree = ast.parse(text)
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_require"):
            left_out |= {id(inner) for inner in ast.walk(node)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [node.value for node in strings if id(node) not in left_out and C_CODE.search(node.value)]


@pytest.mark.parametrize("package", ["permute", "tmem"])
def test_kernels_are_made_of_statements_and_spell_no_c(package):
    for path in (Path(codegen_cuda.__file__).parent / package).glob("*.py"):
        assert [s for s in c_in_strings(path.read_text()) if not is_prose(s)] == [], path.name


def is_prose(text):
    """Comments of kernels and of plans; reserved names of C."""
    return len(re.findall(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}", text)) > 0


def test_spelt_c_would_be_seen():
    for line in ('asm volatile("x" :: : "memory");', "__syncthreads();", "const int x", "if (x) {", "x[0] = 1;"):
        assert c_in_strings(f"text = [{line!r}]") == [line]
        assert not is_prose(line)
    assert c_in_strings('"""const int x;"""\nraise ValueError("unsigned int;")') == []
