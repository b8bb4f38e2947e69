"""NVRTC by ctypes: CUDA C++ in, PTX out, with neither a toolkit nor a driver."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from codegen_cuda._tools import Output
from codegen_cuda.errors import BuildError

__all__ = ["Nvrtc", "open_nvrtc"]


class Nvrtc:
    """One loaded NVRTC library; its calls are thread-safe, as the library's are on programs of their own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library: Any = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def version(self) -> tuple[int, int]:
        """Major and minor version, such as ``(13, 5)``."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def architectures(self) -> tuple[int, ...]:
        """Compute capabilities, ``90`` for 9.0, that the library generates code for."""
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        found = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(found))
        return tuple(found)

    def compile(self, source: bytes, *, name: str, options: list[str]) -> Output:
        """Compile one header-free translation unit to PTX."""
        program = ctypes.c_void_p()
        created = self._library.nvrtcCreateProgram(ctypes.byref(program), source, name.encode(), 0, None, None)
        self._check(created)
        try:
            flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            status = self._library.nvrtcCompileProgram(program, len(options), flags)
            log = self._text(program, "ProgramLog").decode(errors="replace").strip()
            if status == 0:
                return Output(ok=True, data=self._text(program, "PTX"), log=log)
            return Output(ok=False, data=b"", log=log or self._name(status))
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        text = ctypes.create_string_buffer(size.value + 1)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, text))
        return text.value

    def _name(self, status: int) -> str:
        name: bytes = self._library.nvrtcGetErrorString(status)
        return name.decode()

    def _check(self, status: int) -> None:
        if status != 0:
            raise BuildError(f"NVRTC at {self.path} failed with {self._name(status)}", status=status)


@functools.cache
def open_nvrtc(path: str) -> Nvrtc:
    """Load the library at ``path`` once.

    Raises:
        BuildError: the file is not a library that this process can load.
    """
    try:
        return Nvrtc(path)
    except (OSError, AttributeError) as error:
        raise BuildError(f"{path} cannot be used as NVRTC: {error}", path=path) from error
