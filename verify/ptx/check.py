"""Check a compiled kernel against a claim by executing it: every thread, with data that tell every byte apart.

Expected places come from the claim's layouts (:mod:`verify.ptx.expect`), never from a plan.  The input is filled with
the digits of its byte numbers, one plane a run, so that all planes together show which input byte an output byte is.
Runs differ in the addresses of buffers and of shared memory, no more aligned than the claim promises.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layoutalg.claim import BankPromise, Claim, Scalar
from layoutalg.claim import Buffer as Pointer
from layoutalg.errors import LayoutError
from verify.ptx.concrete import Buffer, Result, run
from verify.ptx.errors import Finding, PtxError
from verify.ptx.expect import Expectation, decode, expectations, planes
from verify.ptx.machine import Observer
from verify.ptx.ops_base import Store
from verify.ptx.parse import WIDTHS
from verify.ptx.program import Program, Step
from verify.ptx.resolve import load
from verify.ptx.statistics import InstructionCount, Phase
from verify.ptx.tree import Module
from verify.verdict import Obligation, Proved, Refuted, Unknown, Verdict

__all__ = ["check_executed"]

_SCALAR_CHOICES = 16
_SAFE = "no thread leaves its memory, races, or waits in vain"
_PLACE = "every element arrives where the layouts put it, and nothing else is written"
_BANKS = "shared memory takes the promised wavefronts"
_SHAPE = "the kernel takes the claim's parameters and launch"


def check_executed(module: Module, claim: Claim, *, max_steps: int = 1_000_000) -> tuple[Obligation, ...]:
    """Execute a kernel for every thread and compare with the claim.

    Args:
        module: the parsed PTX.
        claim: what the kernel promises.
        max_steps: steps after which a group of blocks counts as never ending.

    Returns obligations on the interface, on memory safety, on contents and on bank costs; each is ``Proved`` for what
    its scope says, ``Refuted`` with a witness, or ``Unknown``.
    """
    try:
        program = load(module, claim.entry)
        wanted = expectations(claim)
    except (PtxError, LayoutError) as error:
        return (Obligation(_SHAPE, Unknown("the kernel and its claim", str(error))),)
    shape = _interface(program, claim)
    if not shape.ok:
        return (Obligation(_SHAPE, shape),)
    try:
        runs = _Runs(program, claim, wanted, max_steps)
        runs.execute()
    except PtxError as error:
        return (Obligation(_SHAPE, shape), Obligation(_SAFE, Unknown("all threads", str(error))))
    return (
        Obligation(_SHAPE, shape),
        Obligation(_SAFE, runs.safety()),
        Obligation(_PLACE, runs.contents()),
        Obligation(_BANKS, runs.banks()),
    )


def _interface(program: Program, claim: Claim) -> Verdict:
    """Parameters by number, order and size, and the block shape, where the PTX states it."""
    scope = f"{len(claim.params)} parameters, blocks of {claim.block}"
    sizes = [64 if isinstance(p, Pointer) else p.bits for p in claim.params]
    found = [WIDTHS[p.type] if p.count is None else 0 for p in program.params]
    if sizes != found:
        return Refuted(scope, {"claimed bits": sizes, "parameters of the kernel in bits": found})
    if program.required_block not in (None, claim.block):
        return Refuted(scope, {"block": claim.block, "required by the kernel": program.required_block})
    threads = claim.block[0] * claim.block[1] * claim.block[2]
    if program.maximum_block is not None and threads > program.maximum_block:
        return Refuted(scope, {"threads": threads, "most that the kernel allows": program.maximum_block})
    return Proved(scope + ("" if program.required_block else "; the PTX leaves the block's shape to the launch"))


@dataclass(frozen=True, slots=True)
class _Setting:
    """What differs between runs besides the data."""

    scalars: tuple[int, ...]
    bases: tuple[int, ...]
    skew: int


class _Runs:
    """All executions of one kernel, and what they showed."""

    def __init__(self, program: Program, claim: Claim, wanted: tuple[Expectation, ...], max_steps: int) -> None:
        self.program, self.claim, self.wanted, self.max_steps = program, claim, wanted, max_steps
        self.count = 0
        self.finding: tuple[Finding, _Setting] | None = None
        self.wrong: dict[str, Any] | None = None
        self.phases: tuple[Phase, ...] = ()
        self.instructions: tuple[InstructionCount, ...] = ()
        self.sampled = False
        self.starts: dict[str, int] = {}
        """Number of the first byte of each input: no two bytes of all inputs have the same number."""
        for p in self.pointers():
            if p.role == "input":
                self.starts[p.name] = self._input_size()

    # --- settings ---------------------------------------------------------------------------------------------

    def scalars(self) -> list[tuple[int, ...]]:
        """Values of the scalar parameters: all of them, or the corners of their ranges."""
        ranges = [range(p.minimum, p.maximum + 1) for p in self.claim.params if isinstance(p, Scalar)]
        total = 1
        for values in ranges:
            total *= len(values)
        if total <= _SCALAR_CHOICES:
            return list(itertools.product(*ranges))
        self.sampled = True
        corners = [sorted({r[0], r[min(1, len(r) - 1)], r[len(r) // 2], r[-1]}) for r in ranges]
        return list(itertools.islice(itertools.product(*corners), 4 * _SCALAR_CHOICES))

    def bases(self) -> Iterator[tuple[int, ...]]:
        """Addresses of the buffers: low, across a 4 GiB boundary, high; never more aligned than promised."""
        for low in (1 << 20, (1 << 32) - (1 << 12), (1 << 45) + (1 << 30)):
            at, chosen = low, []
            for buffer in self.pointers():
                step = 2 * buffer.align
                # An odd multiple of the alignment, so that nothing is more aligned by chance.
                at = -(-at // step) * step + buffer.align
                chosen.append(at)
                at += buffer.count * self.claim.width + 256
            yield tuple(chosen)

    def settings(self) -> Iterator[_Setting]:
        places = list(zip(self.bases(), (1, 3, 5), strict=True))
        for index, scalars in enumerate(self.scalars()):
            bases, skew = places[index % len(places)]
            yield _Setting(scalars, bases, skew)

    def pointers(self) -> list[Pointer]:
        return [p for p in self.claim.params if isinstance(p, Pointer)]

    # --- execution --------------------------------------------------------------------------------------------

    def execute(self) -> None:
        """Run all settings; the first one also under all placements, so that each is seen with each plane."""
        for number, setting in enumerate(self.settings()):
            placements = list(zip(self.bases(), (1, 3, 5), strict=True)) if number == 0 else []
            placements = placements or [(setting.bases, setting.skew)]
            for first, (bases, skew) in enumerate(placements):
                self._planes(_Setting(setting.scalars, bases, skew), trace=number == first == 0)
                if self.finding or self.wrong:
                    return

    def _planes(self, setting: _Setting, *, trace: bool) -> None:
        """All planes of one setting, then compare."""
        results = []
        for digit, plane in enumerate(planes(self._input_size())):
            result = self._run(setting, plane, trace=trace and digit == 0)
            if result.findings:
                self.finding = (result.findings[0], setting)
                return
            if trace and digit == 0:
                self.phases, self.instructions = result.phases, result.instructions
            results.append(result)
        for expectation in self.wanted:
            self.wrong = self.wrong or self._compare(expectation, results, setting)

    def _run(
        self, setting: _Setting, plane: NDArray[np.uint8], *, trace: bool = False, observer: Observer | None = None
    ) -> Result:
        bases, scalars = iter(setting.bases), iter(setting.scalars)
        params: list[Buffer | int | bytes] = []
        for p in self.claim.params:
            if isinstance(p, Scalar):
                params.append(next(scalars))
                continue
            size = p.count * self.claim.width
            start = self.starts.get(p.name, 0)
            data = plane[start : start + size] if p.role == "input" else np.zeros(size, dtype=np.uint8)
            params.append(Buffer(data, "r" if p.role == "input" else "w", next(bases), p.name))
        self.count += 1
        return run(
            self.program,
            grid=self.claim.grid,
            block=self.claim.block,
            params=params,
            dynamic_shared=self.claim.dynamic_shared_bytes,
            skew=setting.skew,
            tmem_column=32 * (setting.skew - 1),
            elect_last=setting.skew > 1,
            max_steps=self.max_steps,
            trace=trace,
            check=False,
            observer=observer,
        )

    def _compare(self, expectation: Expectation, results: Sequence[Result], setting: _Setting) -> dict[str, Any] | None:
        """The first byte of an output that is not what the claim says, in words."""
        index = [p.name for p in self.pointers()].index(expectation.output)
        origin = expectation.origin_bytes(self.claim.width)
        found = [result.buffers[index] for result in results]
        numbers = np.maximum(origin, 0) + self.starts[expectation.input]
        expected = [plane[numbers] for plane in planes(self._input_size())]
        written = results[0].written[index]
        bad = written != (origin >= 0)
        for plane, want in zip(found, expected, strict=True):
            bad |= (origin >= 0) & (plane != want)
        if not bad.any():
            return None
        return self._witness(expectation, int(np.argmax(bad)), found, results[0], index, setting)

    def _input_size(self) -> int:
        return sum(self.claim.buffer(name).count for name in self.starts) * self.claim.width

    def _witness(
        self,
        expectation: Expectation,
        byte: int,
        found: list[NDArray[np.uint8]],
        result: Result,
        index: int,
        setting: _Setting,
    ) -> dict[str, Any]:
        output, source = self.claim.buffer(expectation.output), self.claim.buffer(expectation.input)
        place, width = byte // self.claim.width, self.claim.width
        origin = int(expectation.origin[place])
        writer = result.writer(index, byte)
        got = self._name_of(decode(found, byte)) if writer else "not written"
        return {
            "output": f"{output.name}[{place + output.first}], byte {byte % width}",
            "expected": f"{source.name}[{origin + source.first}]" if origin >= 0 else "not written",
            "found": got,
            "address": hex(setting.bases[index] + byte),
            "written by": "nobody" if writer is None else f"block {writer[0]}, thread {writer[1]}",
            **({} if writer is None else self._writing_step(setting, setting.bases[index] + byte)),
            "scalars": setting.scalars,
        }

    def _writing_step(self, setting: _Setting, address: int) -> dict[str, Any]:
        """The store that wrote an address of global memory last: its lines and its text."""
        last: list[Step] = []

        def watch(step: Step, _: NDArray[np.int64], places: NDArray[Any], __: NDArray[Any]) -> None:
            effect = step.operation.effect
            if isinstance(effect, Store) and effect.space in ("", "global"):
                distance = np.uint64(address) - places.astype(np.uint64)
                if (distance < np.uint64(effect.width // 8)).any():
                    last[:] = [step]

        self._run(setting, planes(self._input_size())[0], observer=watch)
        self.count -= 1  # it tells nothing new
        step = last[0]
        source = {} if step.source is None else {"source": step.source}
        return {"PTX line": step.line, "instruction": step.text, **source}

    def _name_of(self, number: int) -> str:
        """The input byte with a number, in words."""
        for name, start in self.starts.items():
            buffer = self.claim.buffer(name)
            at = number - start
            if 0 <= at < buffer.count * self.claim.width:
                return f"{name}[{at // self.claim.width + buffer.first}], byte {at % self.claim.width}"
        return f"no input byte (data {number:#x})"

    # --- verdicts ---------------------------------------------------------------------------------------------

    def scope(self) -> str:
        """What the executions cover."""
        x, y, z = self.claim.grid
        threads = x * y * z * self.claim.block[0] * self.claim.block[1] * self.claim.block[2]
        scalars = ", corners of the scalars' ranges" if self.sampled else ""
        return f"{threads} threads executed {self.count} times: 3 placements of memory, all byte planes{scalars}"

    def _verdict(self) -> Verdict:
        return Unknown(self.scope(), "scalars were sampled") if self.sampled else Proved(self.scope())

    def safety(self) -> Verdict:
        if self.finding is None:
            return self._verdict()
        finding, setting = self.finding
        counterexample: dict[str, Any] = {"finding": finding.kind, "message": finding.message, "PTX line": finding.line}
        for name in ("source", "block", "thread", "address", "other"):
            value = getattr(finding, name)
            if value not in (None, ""):
                counterexample[name] = hex(value) if name == "address" else value
        return Refuted(self.scope(), {**counterexample, "scalars": setting.scalars})

    def contents(self) -> Verdict:
        if self.wrong is not None:
            return Refuted(self.scope(), self.wrong)
        if self.finding is not None:
            return Unknown(self.scope(), "the execution stopped at a finding")
        return self._verdict()

    def banks(self) -> Verdict:
        if self.finding is not None:
            return Unknown(self.scope(), "the execution stopped at a finding")
        scope = "every phase of every warp, by the bank rule"
        if not self.claim.banks:
            return Proved("the claim promises nothing about banks")
        for promise in self.claim.banks:
            wrong = self._promise(promise)
            if wrong is not None:
                return Refuted(scope, {"phase": promise.phase, "promised": _cost(promise), **wrong})
        return Proved(scope)

    def _promise(self, promise: BankPromise) -> dict[str, Any] | None:
        """How the execution differs from a promise, if it does.

        A phase is a stretch between barriers in which warps use shared memory with one operation and no global memory;
        there must be one per move and parameter value, which costs the warps that share it what was promised.
        """
        op, warps = promise.op, promise.warps
        pure: dict[tuple[int, tuple[int, int]], tuple[int, int]] = {}
        for p in self.phases:
            if not p.mixed and [cost[0] for cost in p.costs] == [op]:
                before = pure.get((p.warp // warps, p.epoch), (0, 0))
                pure[p.warp // warps, p.epoch] = before[0] + p.costs[0][1], before[1] + p.costs[0][2]
        for (group, epoch), cost in pure.items():
            if cost != (promise.wavefronts, promise.excess):
                found = f"{cost[0]} wavefronts, {cost[1]} in excess"
                return {"found": found, "warp": group * warps, "barriers before": epoch, **self._costly(op)}
        expected = sum(1 for move in self.claim.moves for _ in move.assignments())
        if len(pure) != expected:
            return {"found": f"{len(pure)} phases of {op}", "expected phases": expected, **self._costly(op)}
        return None

    def _costly(self, op: str) -> dict[str, Any]:
        """The instruction of a kind that has the most bank conflicts, or else costs most."""
        rows = [row for row in self.instructions if row.opcode.startswith(op)]
        if not rows:
            return {}
        worst = max(rows, key=lambda row: (row.excess, row.wavefronts))
        source = {} if worst.source is None else {"source": worst.source}
        return {"PTX line": worst.line, "instruction": worst.opcode, **source}


def _cost(promise: BankPromise) -> str:
    return f"{promise.wavefronts} wavefronts, {promise.excess} in excess ({promise.op})"
