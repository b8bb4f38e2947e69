"""What ``layoutalg run`` does: read a saved kernel, give it data, run it, compare with what its claim says.

Expected contents come from the claim's layouts alone, so the comparison does not trust the kernel's certificate.
"""

from __future__ import annotations

import json
import re
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen_cuda.build import Ptx, assemble
from codegen_cuda.errors import BuildError
from codegen_cuda.launch import gpu_available, launch
from layoutalg.claim import Buffer, Claim, Scalar
from layoutalg.claim_family import ClaimFamily, read_claim
from layoutalg.errors import LayoutError, RangeError
from verify.ptx.concrete import Buffer as Memory
from verify.ptx.concrete import run
from verify.ptx.errors import Finding
from verify.ptx.expect import Expectation, expectations
from verify.ptx.parse import parse

__all__ = ["Outcome", "Output", "Saved", "read_saved", "run_saved", "tagged"]

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """A kernel as it lies on disk.

    Attributes:
        claim: what it promises, for the sizes that were given.
        scalars: values of its scalar parameters.
        cubin: what a GPU runs; empty where it is assembled first.
    """

    name: str
    ptx: str
    cubin: bytes
    claim: Claim
    scalars: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Output:
    """One output buffer after a run.

    Attributes:
        elements: how many it has.
        expected: how many the claim says are written (or carried over).
        wrong: how many differ from the claim; written where nothing should be counts, too.
        first: the first difference in words.
    """

    name: str
    elements: int
    expected: int
    wrong: int
    first: str


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A run.

    Attributes:
        device: ``gpu`` or ``cpu``.
        data: what the inputs held, in words.
        runs: how many times it was run: several where an element cannot hold its own number, or on a GPU.
        outputs: one per output buffer.
        finding: the defect that the interpreter met, if it did.
        contents: the outputs' elements after the last run.
    """

    device: str
    data: str
    runs: int
    seconds: float
    outputs: tuple[Output, ...]
    finding: Finding | None
    contents: Mapping[str, NDArray[Any]]

    @property
    def right(self) -> bool:
        """Whether every output is what the claim says, and no defect was met."""
        return self.finding is None and not any(output.wrong for output in self.outputs)


# --- reading ----------------------------------------------------------------------------------------------------


def read_saved(paths: Sequence[Path], *, name: str, values: Mapping[str, int]) -> Saved:
    """Read a kernel from its directory, or from a ``.ptx`` and a ``.claim.json``.

    Args:
        paths: one directory as :meth:`Kernel.save` writes it, or the two files in any order.
        name: which kernel of the directory.
        values: sizes of a family of claims, and scalar parameters that the claim leaves open.

    Raises:
        LayoutError: no kernel there, no claim, or values that it does not admit.
        OSError: a file cannot be read.
    """
    ptx, claim = _files(paths, name)
    try:
        promised = read_claim(json.loads(claim.read_text()))
    except json.JSONDecodeError as error:
        raise LayoutError(f"{claim} is not JSON: {error}") from None
    cubin = ptx.with_suffix(".cubin")
    text = ptx.read_text()
    image = cubin.read_bytes() if cubin.exists() else b""
    if isinstance(promised, ClaimFamily):
        strange = sorted(values.keys() - {u.name for u in promised.unknowns})
        known = ", ".join(f"{u.minimum} <= {u.name} <= {u.maximum}" for u in promised.unknowns)
    else:
        strange = sorted(values.keys() - {p.name for p in promised.params if isinstance(p, Scalar)})
        known = ", ".join(p.name for p in promised.params if isinstance(p, Scalar)) or "none"
    if strange:
        raise RangeError(f"--set {strange[0]}: the kernel's sizes are: {known}")
    found = promised.at(**values) if isinstance(promised, ClaimFamily) else promised
    return Saved(ptx.stem, text, image, found, _scalars(found, values))


def _files(paths: Sequence[Path], name: str) -> tuple[Path, Path]:
    if len(paths) == 1 and paths[0].is_dir():
        folder = paths[0]
        names = sorted(p.name.removesuffix(".claim.json") for p in folder.glob("*.claim.json"))
        if name not in names and (name or len(names) != 1):
            raise LayoutError(f"{folder} holds {len(names)} kernels ({', '.join(names) or 'none'}); choose with --name")
        stem = name or names[0]
        return folder / f"{stem}.ptx", folder / f"{stem}.claim.json"
    for path in paths:
        path.stat()  # a path that leads nowhere is the likelier mistake
    claims = [path for path in paths if path.name.endswith(".json")]
    texts = [path for path in paths if path.suffix == ".ptx"]
    if len(claims) != 1 or len(texts) != 1 or len(paths) != 2:
        given = ", ".join(map(str, paths))
        raise LayoutError(f"give one directory of a saved kernel, or one .ptx and one .claim.json, not: {given}")
    return texts[0], claims[0]


def _scalars(claim: Claim, values: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for scalar in claim.params:
        if not isinstance(scalar, Scalar):
            continue
        value = values.get(scalar.name, scalar.minimum if scalar.minimum == scalar.maximum else None)
        if value is None:
            raise RangeError(
                f"{scalar.name} has no value: --set {scalar.name}={scalar.minimum}, up to {scalar.maximum}"
            )
        if not scalar.minimum <= value <= scalar.maximum:
            raise RangeError(f"{scalar.name} = {value} lies outside [{scalar.minimum}, {scalar.maximum}]")
        found[scalar.name] = value
    return found


def read_array(path: Path, buffer: Buffer, width: int) -> Bytes:
    """Read the elements of an input from a ``.npy`` file, as bytes.

    Raises:
        BuildError: no array, or not the buffer's number and width of elements.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BuildError(f"{path} is no .npy file of numbers: {error}") from None
    if not isinstance(array, np.ndarray):
        raise BuildError(f"{path} holds several arrays; save one with numpy.save")
    if array.size != buffer.count or array.itemsize != width:
        raise BuildError(
            f"{buffer.name} takes {buffer.count} elements of {width} bytes; {path} has {array.size} of {array.itemsize}"
        )
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


# --- data and expectations --------------------------------------------------------------------------------------


def tagged(claim: Claim) -> list[dict[str, Bytes]]:
    """Contents for the inputs, one set per run, under which no two elements of all inputs look alike in all runs.

    Each element holds its number, counted through all inputs; where it is too narrow, its digits, one a run.

    >>> buffer = Buffer("a", "input", "u8", 0, 300, 1)
    >>> sets = tagged(Claim("k", "u8", (1, 1, 1), (32, 1, 1), 0, (buffer,), (), "untouched"))
    >>> len(sets), [int(one["a"][299]) for one in sets]
    (2, [43, 1])
    """
    width, begin = claim.width, 0
    starts: dict[str, int] = {}
    for buffer in _buffers(claim, "input"):
        starts[buffer.name], begin = begin, begin + buffer.count
    base = 1 << (8 * width)
    digits = 1
    while base**digits < begin:
        digits += 1
    numbers = {b.name: np.arange(b.count, dtype=object) + starts[b.name] for b in _buffers(claim, "input")}
    return [{name: _as_bytes(index, base**digit, width) for name, index in numbers.items()} for digit in range(digits)]


def _as_bytes(numbers: NDArray[Any], divisor: int, width: int) -> Bytes:
    """A digit of each number, as little-endian bytes of an element."""
    values = (numbers // divisor).astype(np.uint64)
    rows = values[:, None] >> (8 * np.arange(min(width, 8), dtype=np.uint64)) & np.uint64(0xFF)
    found = np.zeros((len(numbers), width), dtype=np.uint8)
    found[:, : rows.shape[1]] = rows
    return found.reshape(-1)


def _buffers(claim: Claim, role: str) -> list[Buffer]:
    return [p for p in claim.params if isinstance(p, Buffer) and p.role == role]


# --- running ----------------------------------------------------------------------------------------------------


def run_saved(saved: Saved, *, device: str, inputs: Mapping[str, Bytes] | None) -> Outcome:
    """Run a kernel and compare each output with the claim.

    Args:
        device: ``cpu``, ``gpu``, or ``auto``: the GPU if there is one.
        inputs: bytes per input buffer; tagged data without them.

    Raises:
        LayoutError: a claim without a meaning, no GPU, or PTX that cannot be read.
    """
    wanted = expectations(saved.claim)
    sets = tagged(saved.claim) if inputs is None else [dict(inputs)]
    on_gpu = gpu_available() if device == "auto" else device == "gpu"
    worst: dict[str, Output] = {}
    finding: Finding | None = None
    contents: dict[str, Bytes] = {}
    written: dict[str, NDArray[np.bool_]] = {}
    started = time.perf_counter()
    runs = [(given, background) for given in sets for background in _BACKGROUNDS[: 2 if on_gpu else 1]]
    for given, background in runs:
        if on_gpu:
            contents = _on_gpu(saved, given, background)
        else:
            contents, written, finding = _interpreted(saved, given, background)
        for expectation in wanted:
            found = _compared(saved.claim, expectation, background, given, contents, written)
            known = worst.get(found.name)
            worst[found.name] = found if known is None or found.wrong > known.wrong else known
        if finding is not None:
            break
    seconds = time.perf_counter() - started
    words = "every element holds its own number" if inputs is None else "as given"
    return Outcome(
        "gpu" if on_gpu else "cpu",
        words,
        len(runs),
        seconds,
        tuple(worst.values()),
        finding,
        {name: data.view(f"V{saved.claim.width}") for name, data in contents.items()},
    )


#: Bytes of outputs before a run.  On a GPU nobody records what is written, so there each run is done over both.
_BACKGROUNDS = (0xA5, 0x5A)


def _interpreted(
    saved: Saved, given: Mapping[str, Bytes], background: int
) -> tuple[dict[str, Bytes], dict[str, NDArray[np.bool_]], Finding | None]:
    claim = saved.claim
    params: list[Memory | int] = []
    outputs: dict[str, int] = {}
    for index, param in enumerate(claim.params):
        if isinstance(param, Scalar):
            params.append(saved.scalars[param.name])
        elif param.role == "input":
            params.append(Memory(given[param.name]))
        else:
            outputs[param.name] = index
            params.append(Memory(np.full(param.count * claim.width, background, dtype=np.uint8), mode="w"))
    order = [index for index, param in enumerate(params) if isinstance(param, Memory)]
    result = run(
        parse(saved.ptx, file=f"{saved.name}.ptx"),
        claim.entry,
        grid=claim.grid,
        block=claim.block,
        params=params,
        dynamic_shared=claim.dynamic_shared_bytes,
        check=False,
    )
    places = {name: order.index(index) for name, index in outputs.items()}
    contents = {name: result.buffers[place].view(np.uint8) for name, place in places.items()}
    written = {name: result.written[place] for name, place in places.items()}
    return contents, written, result.findings[0] if result.findings else None


def _on_gpu(saved: Saved, given: Mapping[str, Bytes], background: int) -> dict[str, Bytes]:
    claim = saved.claim
    outputs = {b.name: np.full(b.count * claim.width, background, dtype=np.uint8) for b in _buffers(claim, "output")}
    args: list[Any] = []
    for param in claim.params:
        if isinstance(param, Scalar):
            args.append(np.array(saved.scalars[param.name], dtype=f"i{param.bits // 8}")[()])
        else:
            args.append(outputs[param.name] if param.role == "output" else given[param.name])
    image = saved.cubin or assemble(_ptx_of(saved)).image
    launch(image, claim.entry, grid=claim.grid, block=claim.block, args=args, shared_bytes=claim.dynamic_shared_bytes)
    return outputs


def _ptx_of(saved: Saved) -> Ptx:
    target = re.search(r"^\.target\s+(\w+)", saved.ptx, re.MULTILINE)
    return Ptx(saved.ptx, target[1] if target else "", "", "")


def _compared(
    claim: Claim,
    expectation: Expectation,
    background: int,
    given: Mapping[str, Bytes],
    contents: Mapping[str, Bytes],
    written: Mapping[str, NDArray[np.bool_]],
) -> Output:
    """Compare an output with what the layouts say of it, element by element."""
    width, origin = claim.width, expectation.origin
    got = contents[expectation.output].reshape(-1, width)
    source = given[expectation.input].reshape(-1, width)
    named = origin >= 0
    want = np.where(named[:, None], source[np.where(named, origin, 0)], np.uint8(background))
    wrong = (got != want).any(axis=1)
    if expectation.output in written:
        touched = written[expectation.output].reshape(-1, width)
        wrong |= np.where(named, ~touched.all(axis=1), touched.any(axis=1))
    first = ""
    if wrong.any():
        at = int(np.argmax(wrong))
        place = at + claim.buffer(expectation.output).first
        expected = f"0x{want[at, ::-1].tobytes().hex()}" if named[at] else "not written"
        if named[at]:
            expected += f" ({expectation.input}[{int(origin[at]) + claim.buffer(expectation.input).first}])"
        holds = f"holds 0x{got[at, ::-1].tobytes().hex()}"
        if expectation.output in written and not touched[at].any():
            holds = "was not written"
        first = f"{expectation.output}[{place}] {holds}, expected {expected}"
    return Output(expectation.output, len(origin), int(named.sum()), int(wrong.sum()), first)
