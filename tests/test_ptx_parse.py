"""Reading PTX: every sample, every refusal with its line, and nothing but PtxError on broken text."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_samples import opcodes, ptx_names, texts

from verify.ptx.errors import Finding, FindingError, PtxError
from verify.ptx.ops import table
from verify.ptx.ops_base import BarrierTryWait
from verify.ptx.parse import parse
from verify.ptx.printer import print_module
from verify.ptx.program import Memory, Register, Symbol, Target
from verify.ptx.resolve import load
from verify.ptx.tree import Block, Instruction

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def kernel(body: str, *, before: str = "", params: str = "", limits: str = "") -> str:
    """A module with one kernel; the first line of ``body`` is line 6 of the text."""
    declared = ".reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<99>; .reg .b64 %rd<99>;"
    return f"{HEADER}{before}.visible .entry k({params}) {limits} {{\n{declared}\n{body}\nret; }}\n"


def instructions(block: Block):
    for statement in block.statements:
        if isinstance(statement, Instruction):
            yield statement
        elif isinstance(statement, Block):
            yield from instructions(statement)


def test_there_are_forty_samples():
    assert len(ptx_names()) == 40


@pytest.mark.parametrize("name", ptx_names())
def test_every_sample_is_read_resolved_printed_and_read_back_to_the_same_tree(name):
    module = parse(texts()[name], file=name)
    assert parse(print_module(module)) == module
    for entry in module.entries:
        program = load(module, entry.name)
        assert len(program.steps) == len(list(instructions(entry.body)))


def test_the_census_of_opcodes_is_what_another_reader_counted():
    counted: Counter[str] = Counter()
    for name in ptx_names():
        for entry in parse(texts()[name]).entries:
            counted.update(instruction.opcode for instruction in instructions(entry.body))
    assert counted == opcodes()


def test_every_opcode_of_the_samples_is_in_the_table():
    assert set(opcodes()) <= set(table())


def test_the_table_names_an_isa_section_for_every_row():
    assert all(row.section and row.name == name for name, rows in table().items() for row in rows)


def test_declarations_initialisers_and_launch_limits_are_kept():
    text = kernel(
        ".shared .align 128 .b8 sm[4096];\nmov.u32 %r1, sm;",
        before=".extern .shared .align 16 .b8 arena[];\n"
        ".const .align 4 .u32 table[4] = {1, 0x2, -1, 4};\n"
        ".global .align 1 .b8 bytes[5] = {1, 2, 3};\n"
        ".global .f32 one = 0f3F800000;\n",
        params=".param .u64 .ptr .global .align 16 a, .param .align 8 .b8 s[24], .param .u32 n",
        limits=".reqntid 32, 8, 1 .minnctapersm 2",
    )
    module = parse(text)
    arena, table_, bytes_, one = module.variables
    assert (arena.count, arena.linkage, arena.align) == (None, "extern", 16)
    assert table_.init == (1, 2, 2**32 - 1, 4)
    assert (bytes_.count, bytes_.init) == (5, (1, 2, 3))
    assert (one.scalar, one.init) == (True, (0x3F800000,))
    assert [param.count for param in module.entry().params] == [None, 24, None]
    program = load(module)
    assert program.required_block == (32, 8, 1)
    assert program.steps[0].operands[1] == Symbol("sm")
    assert parse(print_module(module)) == module


def test_source_lines_follow_the_instructions():
    text = kernel(".loc 1 7 3\nmov.u32 %r1, 0;\n.loc 1 9 1, function_name $L__i, inlined_at 1 30 2\nmov.u32 %r2, 0;")
    program = load(parse(text + '.file 1 "k.cu"\n'))
    assert [step.source for step in program.steps[:2]] == [("k.cu", 7), ("k.cu", 9)]


def test_private_registers_and_labels_of_inline_assembly_stay_apart():
    spin = (
        "{ .reg .pred P; W: mbarrier.try_wait.parity.shared::cta.b64 P, [%r1], %r2;"
        " @P bra DONE; bra W; DONE: mov.u32 %r3, 0; }"
    )
    program = load(parse(kernel(f"{spin}\n{spin}")))
    waits = [step for step in program.steps if isinstance(step.operation.effect, BarrierTryWait)]
    first, second = (step.operands[0] for step in waits)
    assert isinstance(first, Register)
    assert first != second
    operands = [operand for step in program.steps for operand in step.operands]
    targets = [operand.step for operand in operands if isinstance(operand, Target)]
    assert targets == [3, 0, 7, 4]


def test_addresses_keep_negative_offsets_and_symbols():
    program = load(parse(kernel(".shared .b8 sm[64];\nst.shared.b32 [%r1+-2048], %r2;\nld.shared.b32 %r3, [sm+8];")))
    assert program.steps[0].operands[0] == Memory(Register("%r1", 32), -2048)
    assert program.steps[1].operands[1] == Memory(Symbol("sm"), 8)


REFUSED = {
    "an unknown opcode": ("frob.b32 %r1, %r2;", "no meaning is given to 'frob.b32'"),
    "an unknown modifier": ("add.sat.s32 %r1, %r2, %r3;", "no meaning is given to 'add.sat.s32'"),
    "an unrounded product": ("mul.f32 %r1, %r2, %r3;", "no meaning is given to 'mul.f32'"),
    "a call": ("call.uni f, ();", "found '('"),
    "a register of the wrong width": ("add.s64 %rd1, %r2, %rd3;", "operand 2"),
    "a register beyond its declaration": ("mov.b32 %r1, %r99;", "'%r99' is not a register"),
    "a register with a leading zero": ("mov.b32 %r1, %r01;", "'%r01' is not a register"),
    "too few operands": ("add.s32 %r1, %r2;", "3 operands are needed, 2 given"),
    "an immediate that does not fit": ("add.s16 %rs1, %rs2, 65536;", "65536 does not fit 16 bits"),
    "a constant as a result": ("add.s32 1, %r2, %r3;", "operand 1"),
    "a wrong vector size": ("ld.shared.v4.b32 {%r1, %r2, %r3}, [%r4];", "4 elements are needed, 3 given"),
    "a register twice in a result": ("ld.shared.v2.b32 {%r1, %r1}, [%r4];", "twice"),
    "an absolute address": ("ld.shared.b32 %r1, [16];", "absolute addresses"),
    "a 32-bit global address": ("ld.global.b32 %r1, [%r2];", "'%r2' has 32 bits"),
    "a variable of another space": (".shared .b8 s[4]; ld.global.b32 %r1, [s];", "lies in .shared"),
    "an unknown label": ("bra nowhere;", "'nowhere' is not a label"),
    "a jump into a scope": ("bra IN; { IN: mov.u32 %r1, 0; }", "'IN' is not a label in scope"),
    "an unknown special register": ("mov.u32 %r1, %warpid;", "operand 2"),
    "an unknown parameter": ("ld.param.u32 %r1, [q];", "'q' is not a parameter"),
    "bytes beyond a parameter": ("ld.param.u64 %rd1, [n];", "bytes 0 to 7 of the 4 bytes"),
    "an unknown directive": (".maxnctapersm 3;", "no meaning is given to '.maxnctapersm'"),
    "an unknown pragma": ('.pragma "frobnicate";', "no meaning is given to pragma"),
    "a label twice": ("A: mov.u32 %r1, 0; A: mov.u32 %r1, 0;", "defined twice"),
    "a register twice": (".reg .b32 %x; .reg .b32 %x;", "declared twice"),
    "a guard that is no predicate": ("@%r1 mov.u32 %r1, 0;", "not a predicate"),
    "a wait that is not repeated": ("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;", "repeats the wait"),
    "a tensor-memory vector of the wrong size": (
        "tcgen05.ld.sync.aligned.16x128b.x2.b32 {%r1, %r2}, [%r3];",
        "4 elements are needed, 2 given",
    ),
    "a tensor-memory shape that is too long": (
        "tcgen05.ld.sync.aligned.16x256b.x64.b32 {%r1}, [%r3];",
        "no meaning is given to",
    ),
    "a register as the second offset": (
        "tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r1}, [%r3], %r4;",
        "operand 3 must be a constant",
    ),
    "a number of more than 64 bits": ("mov.u32 %r1, 0x1ffffffffffffffff;", "does not fit 64 bits"),
    "a bad octal number": ("mov.u32 %r1, 09;", "is not an integer"),
    "a decimal fraction": ("mov.f32 %r1, 1.5;", "is not an integer"),
    "an array of arrays": (".shared .b32 s[4][4];", "arrays of arrays"),
    "a stray character": ("mov.u32 %r1, #3;", "unexpected character '#'"),
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_understood_is_refused_with_file_and_line(body, reason):
    text = kernel(f"mov.u32 %r1, 1;\n{body}", params=".param .u32 n")
    with pytest.raises(PtxError) as caught:
        load(parse(text, file="k.ptx"))
    assert reason in caught.value.reason
    assert (caught.value.file, caught.value.line) == ("k.ptx", 7)


MODULES = {
    "a device function": (HEADER + ".func f() { ret; }", "inlined"),
    "32-bit addresses": (".version 9.0 .target sm_90a .address_size 32", "64-bit"),
    "an old version": (".version 4.2 .target sm_50 .address_size 64", "not supported"),
    "target options": (".version 9.0 .target sm_90a, debug .address_size 64", "target options"),
    "an extern variable": (HEADER + ".extern .global .b32 x;", "another module"),
    "too many initial values": (HEADER + ".const .b32 x[1] = {1, 2};", "more initial values"),
    "an initial value that does not fit": (HEADER + ".const .b8 x[1] = {256};", "does not fit 8 bits"),
    "an open array that is not dynamic": (HEADER + ".global .b8 x[];", "open-ended"),
    "a cluster": (HEADER + ".entry k() .reqnctapercluster 2, 1, 1 { ret; }", "clusters"),
    "an end in the middle": (HEADER + ".entry k() { mov.u32", "found .end of text"),
    "deep nesting": (HEADER + ".entry k() " + "{" * 40 + "}" * 40, "scopes inside one another"),
    "no end of control": (HEADER + ".entry k() { bar.sync 0; }", "run off the end"),
    "a guarded end": (HEADER + ".entry k() { .reg .pred p; @p ret; }", "run off the end"),
    "an empty kernel": (HEADER + ".entry k() { }", "run off the end"),
}


@pytest.mark.parametrize(("text", "reason"), MODULES.values(), ids=MODULES.keys())
def test_modules_outside_the_subset_are_refused(text, reason):
    with pytest.raises(PtxError, match=reason):
        load(parse(text))


def test_the_near_miss_is_named():
    with pytest.raises(PtxError, match=r"the table has .*ld\.shared\.b32"):
        load(parse(kernel("ld.shared.b33 %r1, [%r2];")))


def test_a_kernel_must_be_named_where_there_are_several():
    module = parse(HEADER + ".entry a() { ret; } .entry b() { ret; }")
    assert load(module, "b").name == "b"
    with pytest.raises(PtxError, match="exactly one kernel; the module has: a, b"):
        load(module)
    with pytest.raises(PtxError, match="named 'c'"):
        load(module, "c")


def test_errors_and_findings_survive_pickling():
    error = PtxError("reason", file="f", line=3)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.file) == (str(error), 3, "f")
    finding = Finding("race", "two writes", 4, ("k.cu", 2), (0, 0, 0), (1, 0, 0), 64, "thread 3")
    raised = pickle.loads(pickle.dumps(FindingError(finding, file="f")))
    assert raised.finding == finding
    assert "k.cu:2" in str(raised)


def only_ptx_errors(text: str) -> None:
    reason = "accepted"
    try:
        module = parse(text)
        for entry in module.entries:
            load(module, entry.name)
    except PtxError as error:
        reason = error.reason
    assert reason


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_arbitrary_text_raises_nothing_but_ptx_errors(text):
    only_ptx_errors(text)
    only_ptx_errors(HEADER + text)
    only_ptx_errors(kernel(text))


WORDS = ["{", "}", "[", "]", "(", ")", ",", ";", ":", "<", ">", "@", "!", "+", "-", "|", "=", "_", "%r1", "%rd1"]
WORDS += ["%p1", "0", "1", "99999999999999999999", "0x", "0f3F800000", ".reg", ".b32", ".shared", ".align", ".loc"]
WORDS += [".file", ".section", ".entry", ".param", ".pragma", '"nounroll"', "add.s32", "ld.shared.b32", "bra", "L"]
FRAGMENTS = st.sampled_from(WORDS)


@given(st.lists(FRAGMENTS, max_size=30))
@settings(max_examples=150, deadline=None)
def test_arbitrary_sequences_of_tokens_raise_nothing_but_ptx_errors(words):
    only_ptx_errors(kernel(" ".join(words)))
    only_ptx_errors(HEADER + " ".join(words))


SHORT = [name for name in ptx_names() if len(texts()[name]) < 6000]


@given(st.sampled_from(SHORT), st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_samples_raise_nothing_but_ptx_errors(name, data):
    text = texts()[name]
    begin = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(begin, min(len(text), begin + 40)))
    only_ptx_errors(text[:begin] + data.draw(st.text(max_size=5) | FRAGMENTS) + text[end:])
