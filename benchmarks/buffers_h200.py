"""The example kernels over buffers on a GPU: executed on random data, compared with numpy bit by bit.

Two steps, because the GPU machine may have neither a compiler nor a solver:

    python benchmarks/buffers_h200.py prepare build/buffers
    python benchmarks/buffers_h200.py run build/buffers results.json

The first compiles every example that the machine can run (all but those for tensor memory) and saves the cubins; the
second launches them through the driver, on numpy arrays, many times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from codegen_cuda.examples import Example, examples

ARCH = "sm_90"
ROUNDS = 20


def runnable() -> dict[str, Example]:
    """Return the examples for this architecture."""
    return {name: example for name, example in examples().items() if example.arch == ARCH}


def prepare(folder: Path) -> None:
    """Compile and save every cubin."""
    from codegen_cuda.build import assemble, compile_ptx

    folder.mkdir(parents=True, exist_ok=True)
    for name, example in runnable().items():
        cubin = assemble(compile_ptx(example.body.source, arch=ARCH, name=f"{name}.cu"))
        (folder / f"{name}.cubin").write_bytes(cubin.image)


def run_one(name: str, example: Example, image: bytes) -> dict[str, Any]:
    """Launch one example on fresh data in every round and count what differs."""
    from codegen_cuda.launch import launch

    wrong = 0
    for seed in range(ROUNDS):
        arrays = example.make_inputs(seed)
        want = np.ascontiguousarray(example.expected(arrays))
        out = np.frombuffer(bytearray(b"\xad" * want.nbytes), dtype=want.dtype).reshape(want.shape)  # poison
        body = example.body
        arguments = [*arrays, out, *(np.int32(value) for value in example.scalars)]
        launch(
            image, name, grid=body.blocks, block=body.threads, args=arguments, shared_bytes=body.dynamic_shared_bytes
        )
        wrong += int((out != want).sum())
    digest = hashlib.sha256(image).hexdigest()
    return {"kernel": name, "rounds": ROUNDS, "wrong_elements": wrong, "sha256_cubin": digest}


def run(folder: Path) -> dict[str, Any]:
    """Launch every saved example."""
    from codegen_cuda.launch import device_architecture

    results = [run_one(name, e, (folder / f"{name}.cubin").read_bytes()) for name, e in runnable().items()]
    return {"arch": device_architecture(), "host": platform.machine(), "results": results}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("prepare", "run"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        if name == "run":
            command.add_argument("json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "prepare":
        prepare(arguments.folder)
        return
    report = run(arguments.folder)
    arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    for row in report["results"]:
        print(f"{row['kernel']:<20} {row['rounds']} rounds, {row['wrong_elements']} wrong elements")
    sys.exit(any(row["wrong_elements"] for row in report["results"]))


if __name__ == "__main__":
    main()
