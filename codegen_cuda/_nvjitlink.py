"""nvJitLink by ctypes: PTX in, cubin out, with neither a toolkit nor a driver."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from codegen_cuda._tools import Output
from codegen_cuda.errors import BuildError

__all__ = ["NvJitLink", "open_nvjitlink"]

_INPUT_PTX = 2  # NVJITLINK_INPUT_PTX


class NvJitLink:
    """One loaded nvJitLink library."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library: Any = ctypes.CDLL(path)

    def version(self) -> tuple[int, int]:
        """Major and minor version, such as ``(13, 5)``."""
        major, minor = ctypes.c_uint(), ctypes.c_uint()
        if status := self._library.nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor)):
            raise BuildError(f"nvJitLink at {self.path} failed with status {status}", status=status)
        return major.value, minor.value

    def assemble(self, ptx: bytes, *, name: str, options: list[str]) -> Output:
        """Assemble one PTX module.

        A module that the assembler rejects is reported by the call that adds it; completing the link after that
        succeeds and yields an empty image, so the first failure ends the attempt.
        """
        handle = ctypes.c_void_p()
        flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = self._library.nvJitLinkCreate(ctypes.byref(handle), len(options), flags)
        if not handle:
            return Output(ok=False, data=b"", log=f"nvJitLinkCreate failed with status {status} on {options}")
        try:
            text = ctypes.create_string_buffer(ptx)  # the length passed below leaves out the terminating zero
            status = status or self._library.nvJitLinkAddData(handle, _INPUT_PTX, text, len(ptx), name.encode())
            status = status or self._library.nvJitLinkComplete(handle)
            size = ctypes.c_size_t()
            status = status or self._library.nvJitLinkGetLinkedCubinSize(handle, ctypes.byref(size))
            image = ctypes.create_string_buffer(size.value)
            status = status or self._library.nvJitLinkGetLinkedCubin(handle, image)
            log = "\n".join(filter(None, (self._log(handle, "Error"), self._log(handle, "Info"))))
            if status == 0:
                return Output(ok=True, data=image.raw, log=log)
            return Output(ok=False, data=b"", log=log or f"nvJitLink failed with status {status}")
        finally:
            self._library.nvJitLinkDestroy(ctypes.byref(handle))

    def _log(self, handle: ctypes.c_void_p, kind: str) -> str:
        size = ctypes.c_size_t()
        if getattr(self._library, f"nvJitLinkGet{kind}LogSize")(handle, ctypes.byref(size)) != 0:
            return ""
        text = ctypes.create_string_buffer(size.value + 1)
        getattr(self._library, f"nvJitLinkGet{kind}Log")(handle, text)
        return text.value.decode(errors="replace").strip()


@functools.cache
def open_nvjitlink(path: str) -> NvJitLink:
    """Load the library at ``path`` once.

    Raises:
        BuildError: the file is not a library that this process can load.
    """
    try:
        return NvJitLink(path)
    except OSError as error:
        raise BuildError(f"{path} cannot be used as nvJitLink: {error}", path=path) from error
