"""``Kernel``: a generated kernel with its claim and plan, and what has been made and known of it so far.

A kernel is a value.  ``compile()`` returns the same kernel with PTX and a cubin assembled from that PTX, ``certify()``
the same with a certificate; nothing is changed in place.  Saved to a directory it is five files:
``NAME.cu``, ``NAME.ptx``, ``NAME.cubin``, ``NAME.claim.json``, ``NAME.certificate.json``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codegen_cuda.build import Cubin, Ptx, assemble, compile_ptx
from codegen_cuda.errors import BuildError
from layoutalg.claim import Claim, digest
from layoutalg.errors import LayoutError

if TYPE_CHECKING:
    from codegen_cuda.permute.plan import Plan
    from codegen_cuda.permute.problem import Problem

__all__ = ["Kernel"]

DEFAULT_ARCH: Final = "sm_90"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated kernel.

    Args:
        name: the ``.entry``, also the stem of its files.
        source: header-free CUDA C++.
        claim: what it promises.
        plan: how it does it, where a plan made it: a permute ``Plan``, or a plan of another kind of kernel.
        problem: the request the plan serves, where a plan made it.
        ptx: the compiled text, after :meth:`compile`.
        cubin: assembled from that very text.
        certificate: JSON-ready record of what was proved, after :meth:`certify`.
        arch: the target that :meth:`compile` takes without an argument.
    """

    name: str
    source: str
    claim: Claim
    plan: Plan | Any = None
    problem: Problem | Any = None
    ptx: Ptx | None = None
    cubin: Cubin | None = None
    certificate: Mapping[str, Any] | None = None
    arch: str = DEFAULT_ARCH

    def compile(self, *, arch: str | None = None, compiler: str | None = None) -> Kernel:
        """Compile to PTX and assemble the cubin from that PTX; no GPU and no toolkit needed.

        Args:
            arch: the target, such as ``"sm_90"`` or ``"sm_100a"``; the kernel's own without one.
            compiler: ``"nvrtc"``, ``"nvcc"`` or a path; the first that is found without one.

        Raises:
            BuildError: no compiler, an unknown architecture, or rejected code.
        """
        ptx = compile_ptx(self.source, arch=arch or self.arch, name=f"{self.name}.cu", compiler=compiler)
        return replace(self, ptx=ptx, cubin=assemble(ptx), certificate=None)

    def certify(self) -> Kernel:
        """Prove the plan, check the compiled PTX against the claim, and record it all in a certificate.

        Compiles first if that has not happened.
        """
        from codegen_cuda.pipeline import certify  # verify and z3 load only here

        return certify(self)

    def run(
        self,
        source: Any,
        out: Any = None,
        *,
        device: str = "auto",
        stream: Any = None,
        uncertified: bool = False,
    ) -> Any:
        """Run the kernel on one input buffer and return the output buffer.

        Args:
            source: the input buffer's elements, a flat array of ``claim.buffer("src").count`` elements; kernels of
                whole tensors also take arrays with the shape and strides that they were made for.
            out: where to put the result, an array of the same kind; a fresh one without it.
            device: ``"gpu"``, ``"cpu"`` (the PTX interpreter) or ``"auto"``.
            stream: a CUDA stream of any library, or its handle; the default one without it.
            uncertified: run even if the PTX has no certificate that proves it; whole tensors run either way.
        """
        from codegen_cuda.run import run_kernel

        return run_kernel(self, source, out, device=device, stream=stream, uncertified=uncertified)

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of everything the kernel consists of; a certificate records them."""
        hashes = {"source": digest(self.source), "claim": digest(self.claim.to_json())}
        if self.ptx is not None:
            hashes["ptx"] = digest(self.ptx.text)
        if self.cubin is not None:
            hashes["cubin"] = digest(self.cubin.image)
        return hashes

    def save(self, directory: str | Path) -> tuple[Path, ...]:
        """Write the kernel's files, each whole or not at all, and return their paths.

        Raises:
            BuildError: the directory cannot be written.
        """
        folder = Path(directory)
        files: dict[str, bytes] = {f"{self.name}.cu": self.source.encode()}
        if self.ptx is not None:
            files[f"{self.name}.ptx"] = self.ptx.text.encode()
        if self.cubin is not None:
            files[f"{self.name}.cubin"] = self.cubin.image
        files[f"{self.name}.claim.json"] = _json_bytes(self.claim.to_json())
        if self.certificate is not None:
            files[f"{self.name}.certificate.json"] = _json_bytes(self.certificate)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return tuple(_write_whole(folder / name, data) for name, data in files.items())
        except OSError as error:
            raise BuildError(f"cannot write to {folder}: {error.strerror or error}") from error

    @classmethod
    def load(cls, directory: str | Path, name: str | None = None) -> Kernel:
        """Read a saved kernel back: source, claim, PTX, cubin and certificate as they are there.

        Args:
            directory: where :meth:`save` wrote.
            name: which kernel, if the directory holds several.

        Raises:
            LayoutError: no kernel there, or several and no name.
        """
        folder = Path(directory)
        names = sorted(p.name.removesuffix(".claim.json") for p in folder.glob("*.claim.json"))
        if name is None and len(names) != 1:
            raise LayoutError(f"{folder} holds {len(names)} kernels ({', '.join(names)}); name one", names=names)
        stem = name or names[0]
        if stem not in names:
            raise LayoutError(f"{folder} holds no kernel {stem!r}, only {', '.join(names) or 'none'}", names=names)
        text = (folder / f"{stem}.cu").read_text()
        claim = Claim.from_json(json.loads((folder / f"{stem}.claim.json").read_text()))
        kernel = cls(stem, text, claim)
        ptx, cubin, certificate = (folder / f"{stem}.{kind}" for kind in ("ptx", "cubin", "certificate.json"))
        record = json.loads(certificate.read_text()) if certificate.exists() else None
        if ptx.exists():
            kernel = replace(kernel, ptx=_read_ptx(ptx.read_text()))
        if cubin.exists() and kernel.ptx is not None:
            kernel = replace(kernel, cubin=Cubin(cubin.read_bytes(), kernel.ptx.arch, "", ""))
        return replace(kernel, certificate=record)


def _read_ptx(text: str) -> Ptx:
    target = re.search(r"^\.target\s+(\w+)", text, re.MULTILINE)
    return Ptx(text, target[1] if target else "", "", "")


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _write_whole(path: Path, data: bytes) -> Path:
    """Write beside the target and rename, so that no reader ever sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
