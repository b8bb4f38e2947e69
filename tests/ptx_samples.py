"""The PTX that two compilers wrote for nine kernels, read from ``tests/data/ptx/samples.tar.gz``."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

_ARCHIVE = Path(__file__).parent / "data" / "ptx" / "samples.tar.gz"


@cache
def texts() -> dict[str, str]:
    """File name to content, for every file of the archive."""
    found = {}
    with tarfile.open(_ARCHIVE) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            assert stream is not None
            found[member.name] = stream.read().decode()
    return found


def ptx_names() -> list[str]:
    """Names of the PTX files, 40 of them."""
    return sorted(name for name in texts() if name.endswith(".ptx"))


def opcodes() -> dict[str, int]:
    """The census: opcode to number of occurrences, as counted by a reader that is not ours."""
    counts = {}
    for line in texts()["OPCODES.txt"].splitlines():
        if " | " in line:
            opcode, count, _ = line.split(" | ")
            counts[opcode] = int(count)
    return counts
