"""Compiling and assembling: the same bytes every time, the right tool, and errors that point at a line."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codegen_cuda import _tools, build
from codegen_cuda.build import Cubin, Ptx, assemble, compile_ptx, supported_architectures
from codegen_cuda.errors import BuildError
from layoutalg.errors import LayoutError

REVERSE = """\
extern "C" __global__ void __block_size__((32, 1, 1)) reverse(const float* in, float* out) {
    __shared__ float tile[32];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[31 - threadIdx.x];
}
"""
# __block_size__ exists from sm_90 on, and needs PTX ISA 9.0.
PORTABLE = REVERSE.replace("__block_size__((32, 1, 1))", "__launch_bounds__(32)")
# Internal names: nvcc puts a hash of the directory into them.
INTERNAL = """\
namespace { __device__ const unsigned char order[4] = {2, 0, 3, 1}; __device__ int count; }
extern "C" __global__ void shuffle(int* out) { out[threadIdx.x] = order[threadIdx.x % 4] + atomicAdd(&count, 1); }
"""
WRONG = """\
extern "C" __global__ void wrong(float* out) {
    out[0] = 1.0f;
    out[1] = undefined_name;
}
"""

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
needs_ptxas = pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not on PATH")
COMPILERS = ["nvrtc", pytest.param("nvcc", marks=needs_nvcc)]


@pytest.fixture(autouse=True)
def no_wish_from_outside(monkeypatch):
    monkeypatch.delenv(build.COMPILER_VARIABLE, raising=False)


@pytest.fixture
def bare_machine(monkeypatch, tmp_path):
    """A machine with no compiler of any kind; returns the only folder on its PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "wheel_library", lambda _: "")
    monkeypatch.setattr(build, "system_library", lambda _: "")
    return tmp_path


def program(folder: Path, name: str, body: str) -> Path:
    """A program of our own making."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def ptx_program(folder: Path, name: str) -> Path:
    """A stand-in for nvcc: knows sm_90 and writes a module that lists its flags and its directory's content."""
    body = """
if [ "$1" = --list-gpu-code ]; then echo sm_90; exit 0; fi
for last; do :; done
{ echo ".visible .entry fake("; echo "// $*"; echo "// $(pwd) holds" *; } > kernel.ptx
echo "$(pwd)/$last(1): warning: from a stand-in" >&2
"""
    return program(folder, name, body.replace("pwd)", "/bin/pwd)"))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_source_becomes_ptx_for_the_architecture_and_the_launch_shape_is_part_of_it(compiler):
    ptx = compile_ptx(REVERSE, arch="sm_90a", compiler=compiler)
    assert (ptx.compiler, ptx.arch, ptx.entries, ptx.log) == (compiler, "sm_90a", ("reverse",), "")
    assert int(ptx.compiler_version.split(".")[0]) >= 12
    assert ".target sm_90a" in ptx.text
    assert ".reqntid 32, 1, 1" in ptx.text
    assert ".loc" in ptx.text
    assert ".loc" not in compile_ptx(REVERSE, compiler=compiler, line_info=False).text


@pytest.mark.parametrize("compiler", COMPILERS)
def test_equal_input_gives_equal_ptx_in_any_directory(compiler, tmp_path, monkeypatch):
    first = compile_ptx(INTERNAL, compiler=compiler)
    monkeypatch.chdir(tmp_path)
    assert compile_ptx(INTERNAL, compiler=compiler) == first
    assert '"kernel.cu"' in first.text
    assert str(tmp_path) not in first.text
    assert list(tmp_path.iterdir()) == []


def test_many_threads_get_what_one_thread_gets():
    sources = [REVERSE.replace("31 -", f"{k} ^") for k in range(6)]
    alone = [(ptx := compile_ptx(source), assemble(ptx)) for source in sources]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda source: (ptx := compile_ptx(source), assemble(ptx)), sources))
    assert together == alone
    assert len({ptx.text for ptx, _ in alone}) == len(sources)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_an_error_in_the_source_names_its_line_and_shows_it(compiler):
    with pytest.raises(BuildError, match=r"wrong\.cu for sm_90 at line 3") as caught:
        compile_ptx(WRONG, name="wrong.cu", compiler=compiler)
    error = caught.value
    assert (error.line, error.source_line) == (3, "    out[1] = undefined_name;")
    assert error.source_line in str(error)
    assert "undefined_name" in error.log
    assert "/" not in error.log
    assert isinstance(error, LayoutError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.log, copy.line, copy.source_line) == (str(error), error.log, 3, error.source_line)


def test_a_missing_header_is_an_error_with_its_line():
    with pytest.raises(BuildError, match="cstdint") as caught:
        compile_ptx("// first\n#include <cstdint>\n")
    assert caught.value.line == 2


def test_a_warning_is_kept_and_is_no_error():
    assert "never referenced" in compile_ptx('extern "C" __global__ void f() { int unused; }').log


@pytest.mark.parametrize("arch", ["sm_77", "sm_90f", "sm_80a", "compute_90", "sm_9", "90", "", "sm_100a "])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_an_unknown_architecture_is_refused_with_the_list_of_known_ones(arch, compiler):
    with pytest.raises(BuildError, match="supports") as caught:
        compile_ptx(REVERSE, arch=arch, compiler=compiler)
    known = caught.value.facts["supported"]
    assert {"sm_80", "sm_90", "sm_90a", "sm_100a", "sm_103a"} <= set(known)
    assert all(name in str(caught.value) for name in known)


def test_every_architecture_that_is_listed_compiles():
    for arch in supported_architectures("nvrtc"):
        assert f".target {arch}" in compile_ptx(PORTABLE, arch=arch, compiler="nvrtc").text


@pytest.mark.parametrize("name", ["sub/kernel.cu", "/kernel.cu", "kernel.ptx", "..", ""])
def test_a_name_is_that_of_a_source_file_without_a_directory(name):
    with pytest.raises(BuildError, match="file name"):
        compile_ptx(REVERSE, name=name)


def test_a_source_that_a_compiler_would_cut_short_is_refused():
    with pytest.raises(BuildError, match="NUL"):
        compile_ptx(REVERSE + "\0 the rest")


def test_argument_goes_before_environment_before_pip_before_path(monkeypatch, tmp_path):
    stand_in = ptx_program(tmp_path, "my-nvcc")
    assert compile_ptx(REVERSE).compiler == "nvrtc"
    monkeypatch.setenv(build.COMPILER_VARIABLE, str(stand_in))
    assert compile_ptx(REVERSE).entries == ("fake",)
    assert compile_ptx(REVERSE, compiler="nvrtc").entries == ("reverse",)
    monkeypatch.setenv(build.COMPILER_VARIABLE, "nvrtc")
    assert compile_ptx(REVERSE).entries == ("reverse",)
    assert compile_ptx(REVERSE, compiler=str(stand_in)).entries == ("fake",)


def test_without_the_wheel_nvcc_on_path_serves(bare_machine):
    ptx_program(bare_machine, "nvcc")
    assert compile_ptx(REVERSE).entries == ("fake",)


@pytest.mark.usefixtures("bare_machine")
def test_after_nvcc_a_library_of_the_system_serves(monkeypatch):
    library = _tools.wheel_library("nvrtc")
    monkeypatch.setattr(build, "system_library", lambda _: library)
    assert compile_ptx(REVERSE).entries == ("reverse",)


@pytest.mark.usefixtures("bare_machine")
def test_a_path_of_a_library_is_a_compiler():
    assert compile_ptx(REVERSE, compiler=_tools.wheel_library("nvrtc")).compiler == "nvrtc"


@pytest.mark.usefixtures("bare_machine")
def test_with_no_compiler_both_remedies_are_named():
    with pytest.raises(BuildError) as caught:
        compile_ptx(REVERSE)
    assert 'pip install "layoutalg[cuda]"' in str(caught.value)
    assert "nvcc on PATH" in str(caught.value)


@pytest.mark.usefixtures("bare_machine")
def test_with_no_assembler_both_remedies_are_named():
    with pytest.raises(BuildError) as caught:
        assemble(Ptx(".version 9.0\n.target sm_90\n", "sm_90", "nvrtc", "13.0.0"))
    assert 'pip install "layoutalg[cuda]"' in str(caught.value)
    assert "ptxas on PATH" in str(caught.value)


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize("wanted", ["nvcc", "no-such-compiler", "/no/such/nvcc", "/no/such/libnvrtc.so.13"])
def test_a_compiler_that_is_asked_for_and_missing_is_not_replaced_by_another(monkeypatch, wanted):
    monkeypatch.setattr(build, "wheel_library", _tools.wheel_library)
    with pytest.raises(BuildError, match="not there"):
        compile_ptx(REVERSE, compiler=wanted)


def test_a_file_that_is_no_library_is_an_error(tmp_path):
    path = tmp_path / "libnvrtc.so.99"
    path.write_text("not a library")
    with pytest.raises(BuildError, match="cannot be used as NVRTC"):
        compile_ptx(REVERSE, compiler=str(path))
    with pytest.raises(BuildError, match="cannot be used as NVRTC"):
        compile_ptx(REVERSE, compiler=_tools.wheel_library("nvJitLink"))


def test_nvcc_runs_alone_in_a_directory_that_leaves_no_trace(bare_machine):
    ptx_program(bare_machine, "nvcc")
    ptx = compile_ptx(REVERSE, name="reverse.cu")
    flags, place = (line for line in ptx.text.splitlines() if line.startswith("//"))
    assert flags == "// -ptx -arch=compute_90 -std=c++17 -lineinfo -o kernel.ptx reverse.cu"
    folder, content = place.removeprefix("// ").split(" holds ")
    assert content == "kernel.ptx reverse.cu"
    assert not Path(folder).exists()
    assert folder != os.getcwd()  # noqa: PTH109
    assert ptx.log == "reverse.cu(1): warning: from a stand-in"


def test_flags_from_the_environment_do_not_reach_nvcc(bare_machine, monkeypatch):
    program(bare_machine, "nvcc", 'echo "// got:$NVCC_APPEND_FLAGS$NVCC_PREPEND_FLAGS." > kernel.ptx')
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", "-G")
    assert "// got:." in compile_ptx(REVERSE).text


def test_nvcc_without_a_host_compiler_says_what_to_do(bare_machine):
    program(bare_machine, "nvcc", 'echo "nvcc fatal: Failed to preprocess host compiler properties." >&2; exit 1')
    with pytest.raises(BuildError, match="needs gcc"):
        compile_ptx(REVERSE)


def test_a_tool_that_succeeds_without_a_result_is_a_failure(bare_machine):
    program(bare_machine, "nvcc", "exit 0")
    with pytest.raises(BuildError, match="nvcc rejects"):
        compile_ptx(REVERSE)


ASSEMBLERS = ["nvjitlink", pytest.param("ptxas", marks=needs_ptxas)]


def module(assembler: str) -> Ptx:
    """PTX that the assembler is new enough to read."""
    ptx = compile_ptx(PORTABLE)
    if assembler == "ptxas":  # as old as the toolkit that it comes from
        text = "\n".join(".version 8.0" if line.startswith(".version") else line for line in ptx.text.splitlines())
        return Ptx(text, ptx.arch, ptx.compiler, ptx.compiler_version)
    return ptx


@pytest.mark.parametrize("assembler", ASSEMBLERS)
def test_ptx_becomes_the_same_elf_image_every_time(assembler):
    cubin = assemble(module(assembler), assembler=assembler)
    assert cubin.image[:4] == b"\x7fELF"
    assert b"reverse" in cubin.image
    assert (cubin.assembler, cubin.arch) == (assembler, "sm_90")
    assert "registers" in cubin.log
    assert "spill" in cubin.log
    assert "time" not in cubin.log.lower()
    assert assemble(module(assembler), assembler=assembler) == cubin


@pytest.mark.parametrize("assembler", ASSEMBLERS)
def test_an_error_in_the_ptx_names_its_line_and_that_of_the_source(assembler):
    ptx = module(assembler)
    text = ptx.text.replace("bar.sync", "bar.sink")
    wrong = text.splitlines().index("\tbar.sink \t0;") + 1
    with pytest.raises(BuildError, match=rf"at line {wrong} \(line 4 of the source\)") as caught:
        assemble(text, assembler=assembler)
    assert (caught.value.line, caught.value.source_line) == (wrong, "\tbar.sink \t0;")
    assert "bar" in caught.value.log or "sink" in caught.value.log


def test_text_is_assembled_for_its_own_target_unless_another_is_asked_for():
    text = compile_ptx(PORTABLE, arch="sm_80").text
    assert assemble(text).arch == "sm_80"
    assert assemble(text, arch="sm_90").arch == "sm_90"
    with pytest.raises(BuildError, match="rejects the PTX for sm_75"):
        assemble(text, arch="sm_75")


@pytest.mark.parametrize("arch", ["sm_77", "sm_900a"])
def test_an_architecture_that_the_assembler_does_not_know_is_refused(arch):
    with pytest.raises(BuildError, match=arch):
        assemble(compile_ptx(REVERSE), arch=arch)


@pytest.mark.parametrize("arch", ["90", "compute_90", "sm_90 -G"])
def test_an_architecture_is_one_word_of_a_known_form(arch):
    with pytest.raises(BuildError, match="form"):
        assemble(compile_ptx(REVERSE), arch=arch)


def test_text_that_is_no_module_is_refused():
    with pytest.raises(BuildError, match=r"\.target"):
        assemble("mov.u32 %r1, 0;")


def test_code_of_the_architecture_alone_does_not_pass_for_its_family():
    ptx = compile_ptx(REVERSE, arch="sm_100a")
    assert isinstance(assemble(ptx), Cubin)
    with pytest.raises(BuildError, match="sm_103a"):
        assemble(ptx, arch="sm_103a")


def test_the_newest_of_several_wheels_is_taken(monkeypatch, tmp_path):
    for name in (
        "cuda_nvrtc/lib/libnvrtc.so.12",
        "cu13/lib/libnvrtc.so.13",
        "cu9/lib/libnvrtc.so.9",
        "cu13/lib/other.so",
    ):
        path = tmp_path / "nvidia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path / "nvidia")]})
    monkeypatch.setattr(_tools.importlib.util, "find_spec", lambda _: spec)
    assert _tools.wheel_library("nvrtc").endswith("cu13/lib/libnvrtc.so.13")
    assert _tools.wheel_library("nvJitLink") == ""
    monkeypatch.setattr(_tools.importlib.util, "find_spec", lambda _: None)
    assert _tools.wheel_library("nvrtc") == ""


def test_a_library_of_conda_or_a_toolkit_is_found(monkeypatch, tmp_path):
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libnothing-else.so.7").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert _tools.system_library("nothing-else") == str(tmp_path / "lib64" / "libnothing-else.so.7")
    assert _tools.system_library("no-such-library-at-all") == ""
