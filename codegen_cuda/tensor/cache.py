"""Compiled kernels on disk, found by the content they were made from, so that each is compiled once.

An entry is one file, written beside its place and renamed, so that any number of processes may write and read at once:
a reader finds a whole entry or none.  An entry carries the digest of what it holds, and one that does not match (a
full disk, a stray edit) counts as none.  Where nothing can be written, nothing is cached.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any

from codegen_cuda.build import COMPILER_VARIABLE, Cubin, Ptx, assemble, compile_ptx
from layoutalg.claim import digest

__all__ = ["DIRECTORY_VARIABLE", "built", "directory", "read_entry", "write_entry"]

#: Where entries lie; the word "off" turns the cache off.
DIRECTORY_VARIABLE = "LAYOUTALG_CACHE"
_FORMAT = 1


def built(source: str, name: str, arch: str) -> tuple[Ptx, Cubin]:
    """Return the PTX and the cubin of a source, compiled at most once per process and, with a cache, per machine.

    Law: the result is what :func:`compile_ptx` and :func:`assemble` make of the arguments.

    Args:
        source: the translation unit.
        name: name of the kernel.
        arch: the target, such as ``"sm_90"``.

    Raises:
        BuildError: no compiler, or it rejects the source.
    """
    return _built(source, name, arch, os.environ.get(COMPILER_VARIABLE, ""), os.environ.get(DIRECTORY_VARIABLE, ""))


@functools.lru_cache(maxsize=256)
def _built(source: str, name: str, arch: str, compiler: str, _directory: str) -> tuple[Ptx, Cubin]:
    key = digest({"kind": "kernel", "source": source, "name": name, "arch": arch, "compiler": compiler})
    found = read_entry(key)
    if found is not None:
        image = base64.b64decode(found["cubin"].pop("image"))
        return Ptx(**found["ptx"]), Cubin(image=image, **found["cubin"])
    ptx = compile_ptx(source, arch=arch, name=f"{name}.cu")
    cubin = assemble(ptx)
    text = base64.b64encode(cubin.image).decode()
    write_entry(key, {"ptx": asdict(ptx), "cubin": {**asdict(cubin), "image": text}})
    return ptx, cubin


def directory() -> Path | None:
    """Return where entries lie: ``LAYOUTALG_CACHE``, or the user's cache directory; None where the cache is off."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named == "off":
        return None
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # no home directory, no cache
        return (Path(home) if home else Path.home() / ".cache") / "layoutalg"
    return None


def read_entry(key: str) -> dict[str, Any] | None:
    """Return what was stored under a key, or None where there is no whole entry."""
    path = _path(key)
    if path is None:
        return None
    try:
        entry = json.loads(path.read_text())
        content = entry["content"]
        return content if entry["format"] == _FORMAT and entry["sha256"] == digest(content) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_entry(key: str, content: dict[str, Any]) -> None:
    """Store JSON-ready content under a key, whole or not at all; what cannot be written is not cached."""
    path = _path(key)
    if path is None:
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(json.dumps({"format": _FORMAT, "sha256": digest(content), "content": content}))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _path(key: str) -> Path | None:
    root = directory()
    return root / key[:2] / f"{key}.json" if root is not None else None
