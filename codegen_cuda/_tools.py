"""Where compilers and assemblers are, and how the ones that are programs are run.

Libraries come from pip wheels, found through ``importlib`` alone: a helper package that does the same costs several
hundred milliseconds to import.  Programs run in an empty directory of their own, on relative names, so that neither
their output nor their messages depend on where and when they ran.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Output", "find_program", "program_architectures", "run_program", "system_library", "wheel_library"]

# Flags that nvcc takes from the environment would make the output depend on it.
_HIDDEN = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool gave: ``data`` (empty unless ``ok``) and everything it said."""

    ok: bool
    data: bytes
    log: str


def wheel_library(stem: str) -> str:
    """Path of ``lib<stem>.so*`` inside an installed ``nvidia`` wheel, the newest if there are several, else ``""``."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    roots = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for root in roots for path in Path(root).glob(f"*/lib*/lib{stem}.so*")]
    return _newest(found)


def system_library(stem: str) -> str:
    """Path or soname of ``lib<stem>`` in a conda environment, a toolkit or the loader's own path, else ``""``."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = [Path(sys.prefix, "lib"), *(Path(home, "lib64") for home in homes), Path("/usr/local/cuda/lib64")]
    found = [path for folder in folders for path in folder.glob(f"lib{stem}.so*")]
    return _newest(found) or ctypes.util.find_library(stem) or ""


def _newest(paths: list[Path]) -> str:
    def version(path: Path) -> tuple[tuple[int, ...], str]:
        return tuple(map(int, re.findall(r"\d+", path.name))), str(path)

    return str(max(paths, key=version)) if paths else ""


def find_program(name: str) -> str:
    """Path of a program: itself if it is a path of one, looked up on ``PATH`` otherwise, else ``""``."""
    return shutil.which(name) or ""


def program_architectures(program: str) -> tuple[int, ...]:
    """Compute capabilities, ``90`` for 9.0, for which nvcc generates code; empty where it cannot say."""
    command = [str(Path(program).absolute()), "--list-gpu-code"]
    with tempfile.TemporaryDirectory(prefix="layoutalg-") as folder:
        asked = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return tuple(sorted({int(number) for number in re.findall(r"sm_(\d+)", asked.stdout)}))


def run_program(program: str, flags: list[str], *, source: bytes, source_name: str, result_name: str) -> Output:
    """Run ``program flags -o result_name source_name`` in a directory that holds ``source_name`` alone."""
    with tempfile.TemporaryDirectory(prefix="layoutalg-") as folder:
        Path(folder, source_name).write_bytes(source)
        environment = {key: value for key, value in os.environ.items() if key not in _HIDDEN} | {"TMPDIR": folder}
        command = [str(Path(program).absolute()), *flags, "-o", result_name, source_name]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        result = Path(folder, result_name)
        ok = done.returncode == 0 and result.is_file()
        log = (done.stdout + done.stderr).replace(folder + os.sep, "")
        return Output(ok=ok, data=result.read_bytes() if ok else b"", log=log)
