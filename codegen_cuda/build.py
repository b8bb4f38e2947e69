"""CUDA C++ to PTX, and that same PTX to a cubin, on a machine with no GPU, driver or toolkit.

What is checked is the PTX, and what runs is the cubin made from it, so the two steps are separate:
:func:`compile_ptx` asks NVRTC or nvcc, :func:`assemble` asks nvJitLink or ptxas.  Both are deterministic: equal source,
name, architecture and tool give equal bytes, whatever the working directory, the time or the thread.

A compiler is chosen by the first of these that speaks: the ``compiler`` argument, the environment variable
``LAYOUTALG_COMPILER`` (both hold ``nvrtc``, ``nvcc`` or a path), NVRTC from pip, nvcc on ``PATH``, NVRTC from conda or
a toolkit.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen_cuda._nvjitlink import open_nvjitlink
from codegen_cuda._nvrtc import open_nvrtc
from codegen_cuda._tools import (
    Output,
    find_program,
    program_architectures,
    run_program,
    system_library,
    wheel_library,
)
from codegen_cuda.errors import BuildError

__all__ = ["Cubin", "Ptx", "assemble", "compile_ptx", "supported_architectures"]

COMPILER_VARIABLE = "LAYOUTALG_COMPILER"
INSTALL = 'pip install "layoutalg[cuda]"'

_FIRST_ERROR = (
    re.compile(r"^[^\s(]+\((?P<line>\d+)\): (?:catastrophic )?error[^:]*: (?P<what>.*)$", re.MULTILINE),
    re.compile(r"line (?P<line>\d+); (?:error|fatal)\s*: (?P<what>.*)$", re.MULTILINE),
)


@dataclass(frozen=True, slots=True)
class Ptx:
    """One PTX module and what made it.

    Attributes:
        text: the module; the file it names, if any, has no directory.
        arch: the architecture asked for, such as ``sm_100a``.
        compiler: ``nvrtc`` or ``nvcc``.
        compiler_version: such as ``13.5.37``.
        log: warnings, ``""`` if there were none.
    """

    text: str
    arch: str
    compiler: str
    compiler_version: str
    log: str = ""

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the kernels, in order.

        >>> Ptx(".visible .entry copy(\\n)", "sm_90", "nvrtc", "13.5.37").entries
        ('copy',)
        """
        return tuple(re.findall(r"\.entry\s+([\w$%]+)", self.text))


@dataclass(frozen=True, slots=True)
class Cubin:
    """One machine-code image and what made it.

    Attributes:
        image: an ELF file.
        arch: the architecture whose code it holds.
        assembler: ``nvjitlink`` or ``ptxas``.
        assembler_version: such as ``13.5.37``.
        log: registers, spills and shared memory of each kernel, in the assembler's words.
    """

    image: bytes
    arch: str
    assembler: str
    assembler_version: str
    log: str = ""


@dataclass(frozen=True, slots=True)
class _Tool:
    kind: str
    path: str


def compile_ptx(
    source: str,
    *,
    arch: str = "sm_90",
    name: str = "kernel.cu",
    line_info: bool = True,
    compiler: str | None = None,
) -> Ptx:
    """Compile one header-free CUDA C++ translation unit to PTX.

    Law: the result depends on ``source``, ``arch``, ``name``, ``line_info`` and the compiler's version alone.

    Args:
        source: the translation unit; kernels are best ``extern "C"``, so that their names stay.
        arch: ``sm_80``, ``sm_90``, ``sm_90a``, ``sm_100a``, ``sm_103a`` and so on.
        name: file name that messages and line information speak of; no directory.
        line_info: keep ``.loc`` directives, so that a counterexample can name the line of ``source``.
        compiler: ``nvrtc``, ``nvcc``, a path of either, or ``None`` for the first one found.

    Raises:
        BuildError: no compiler, an architecture that it does not know, or an error in ``source``; then ``log``,
            ``line`` and ``source_line`` say where.

    >>> compile_ptx('extern "C" __global__ void nothing() {}').entries
    ('nothing',)
    """
    if Path(name).name != name or not name.endswith(".cu"):
        raise BuildError(f"name = {name!r} must be a file name that ends in .cu, without a directory", name=name)
    if "\0" in source:
        raise BuildError("the source holds a NUL character, at which a compiler would stop", name=name)
    tool = _choose_compiler(compiler)
    _check_architecture(arch, tool)
    made = _run_compiler(tool, source.encode(), arch=arch, name=name, line_info=line_info)
    if not made.ok:
        host = f" (nvcc needs gcc on PATH, NVRTC does not: {INSTALL})" if "host compiler" in made.log else ""
        raise _rejection(f"{tool.kind} rejects {name} for {arch}{host}", made.log, source)
    text = _independent_of_place(made.data.decode())
    return Ptx(text, arch, tool.kind, _version_in(text) or "unknown", made.log.strip())


def assemble(ptx: Ptx | str, *, arch: str | None = None, assembler: str | None = None) -> Cubin:
    """Assemble PTX to machine code.

    Args:
        ptx: a module; not only :func:`compile_ptx` makes them, hand-written text serves as well.
        arch: the architecture whose code is wanted, by default the module's ``.target``.
        assembler: ``nvjitlink``, ``ptxas``, a path of either, or ``None`` for the first one found.

    Raises:
        BuildError: no assembler, a target that it does not know, or an error in the text; then ``line`` counts
            lines of the PTX, and the message names the line of the source where ``.loc`` tells it.
    """
    text = ptx.text if isinstance(ptx, Ptx) else ptx
    arch = arch or (ptx.arch if isinstance(ptx, Ptx) else _target(text))
    _split_architecture(arch)
    tool = _choose_assembler(assembler)
    flags = [f"-arch={arch}", *(["-lineinfo"] if re.search(r"^\s*\.loc\s", text, re.MULTILINE) else [])]
    if tool.kind == "nvjitlink":
        library = open_nvjitlink(tool.path)
        made = library.assemble(text.encode(), name="kernel.ptx", options=[*flags, "-Xptxas=-v"])
    else:
        made = run_program(
            tool.path, [*flags, "-v"], source=text.encode(), source_name="kernel.ptx", result_name="kernel.cubin"
        )
    log = "\n".join(line for line in made.log.splitlines() if "Compile time" not in line)
    if not made.ok:
        raise _rejection(f"{tool.kind} rejects the PTX for {arch}", log, text, of_ptx=True)
    return Cubin(made.data, arch, tool.kind, _version_in(made.data.decode("latin-1")) or "unknown", log.strip())


def supported_architectures(compiler: str | None = None) -> tuple[str, ...]:
    """Names that :func:`compile_ptx` accepts for ``arch`` with this compiler; empty where nvcc is too old to say.

    >>> "sm_90a" in supported_architectures()
    True
    """
    return _spelled(_architectures(_choose_compiler(compiler)))


def _choose_compiler(wanted: str | None) -> _Tool:
    remedy = (
        f"compiling needs NVRTC or nvcc: {INSTALL} brings NVRTC (no CUDA toolkit needed), "
        f"or put nvcc on PATH, or name one in {COMPILER_VARIABLE}"
    )
    wanted = wanted or os.environ.get(COMPILER_VARIABLE) or None
    return _choose(wanted, library="nvrtc", stem="nvrtc", program="nvcc", remedy=remedy)


def _choose_assembler(wanted: str | None) -> _Tool:
    remedy = (
        f"assembling PTX needs nvJitLink or ptxas: {INSTALL} brings nvJitLink (no CUDA toolkit needed), "
        "or put ptxas on PATH"
    )
    return _choose(wanted, library="nvjitlink", stem="nvJitLink", program="ptxas", remedy=remedy)


def _choose(wanted: str | None, *, library: str, stem: str, program: str, remedy: str) -> _Tool:
    """The tool asked for, or else the first that is there: library from pip, program, library from elsewhere."""
    if wanted is None:
        tool = _Tool(library, wheel_library(stem))
        tool = tool if tool.path else _Tool(program, find_program(program))
        tool = tool if tool.path else _Tool(library, system_library(stem))
    elif wanted == library:
        tool = _Tool(library, wheel_library(stem) or system_library(stem))
    elif ".so" in Path(wanted).name:
        tool = _Tool(library, wanted if Path(wanted).is_file() else "")
    else:
        tool = _Tool(program, find_program(wanted))
    if tool.path:
        return tool
    asked = "" if wanted is None else f"{wanted!r} is not there; "
    raise BuildError(asked + remedy, wanted=wanted)


def _run_compiler(tool: _Tool, source: bytes, *, arch: str, name: str, line_info: bool) -> Output:
    # A virtual architecture: its PTX is the same, and the compiler does not assemble it in vain.
    virtual = arch.replace("sm_", "compute_")
    if tool.kind == "nvrtc":
        flags = [f"--gpu-architecture={virtual}", "--std=c++17", *(["--generate-line-info"] if line_info else [])]
        return open_nvrtc(tool.path).compile(source, name=name, options=flags)
    flags = ["-ptx", f"-arch={virtual}", "-std=c++17", *(["-lineinfo"] if line_info else [])]
    return run_program(tool.path, flags, source=source, source_name=name, result_name="kernel.ptx")


@functools.cache
def _architectures(tool: _Tool) -> tuple[int, ...]:
    return open_nvrtc(tool.path).architectures() if tool.kind == "nvrtc" else program_architectures(tool.path)


def _spelled(capabilities: Sequence[int]) -> tuple[str, ...]:
    """Every spelling of the capabilities: ``a`` exists from 9.0 on, ``f`` from 10.0 on.

    >>> _spelled((89, 90, 100))
    ('sm_89', 'sm_90', 'sm_90a', 'sm_100', 'sm_100a', 'sm_100f')
    """
    suffixes = ((0, ""), (90, "a"), (100, "f"))
    return tuple(f"sm_{number}{letter}" for number in capabilities for least, letter in suffixes if number >= least)


def _split_architecture(arch: str) -> None:
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise BuildError(f"arch = {arch!r} is not of the form sm_90, sm_90a or sm_100f", arch=arch)


def _check_architecture(arch: str, tool: _Tool) -> None:
    known = _spelled(_architectures(tool))
    if known and arch not in known:
        raise BuildError(
            f"arch = {arch!r} is unknown to {tool.kind} at {tool.path}, which supports {', '.join(known)}",
            arch=arch,
            supported=known,
        )
    _split_architecture(arch)


def _target(text: str) -> str:
    found = re.search(r"^\s*\.target\s+(\w+)", text, re.MULTILINE)
    if not found:
        raise BuildError("the text has no .target directive, so it is not a PTX module; pass arch= or mend the text")
    return found[1]


def _independent_of_place(text: str) -> str:
    """Drop the directory from ``.file``, and the hash of it that nvcc puts into internal names.

    >>> print(_independent_of_place('.file 1 "/tmp/x/kernel.cu"'))
    .file 1 "kernel.cu"
    """
    text = re.sub(r'^(\s*\.file\s+\d+\s+")[^"\n]*/', r"\1", text, flags=re.MULTILINE)
    for digits in sorted(set(re.findall(r"(?:_INTERNAL_|_GLOBAL__N__)([0-9a-f]{8})_", text))):
        text = re.sub(rf"(_INTERNAL_|_GLOBAL__N__){digits}_", r"\g<1>00000000_", text)
        # Debug sections spell the same name as numbers, and break lines anywhere.
        spelled = r"(,|\s*\.b8\s+)".join(str(ord(digit)) for digit in digits)
        zeros = "48" + "".join(rf"\g<{group}>48" for group in range(1, len(digits)))
        text = re.sub(rf"(?<!\d){spelled}(?!\d)", zeros, text)
    return text


def _version_in(text: str) -> str:
    found = re.search(r"Cuda compilation tools, release [\d.]+, V([\d.]+)", text)
    return found[1] if found else ""


def _rejection(what: str, log: str, text: str, *, of_ptx: bool = False) -> BuildError:
    """The error for a text that a tool rejects, with the first line that it names."""
    found = next((match for pattern in _FIRST_ERROR if (match := pattern.search(log))), None)
    if found is None:
        return BuildError(f"{what}:\n{log.strip()}", log=log)
    line, lines = int(found["line"]), text.splitlines()
    shown = lines[line - 1] if line <= len(lines) else ""
    origin = _origin(lines[:line]) if of_ptx else ""
    message = f"{what} at line {line}{origin}: {found['what'].strip()}\n{line:>6} | {shown}\n{log.strip()}"
    return BuildError(message, log=log, line=line, source_line=shown)


def _origin(lines_before: Sequence[str]) -> str:
    """The source line that the last ``.loc`` in this function names, as words for a message."""
    for text in reversed(lines_before):
        if found := re.match(r"\s*\.loc\s+\d+\s+(\d+)", text):
            return f" (line {found[1]} of the source)"
        if ".entry" in text:
            break
    return ""
