"""NVIDIA's driver API through ctypes: the calls that the backend makes, and statuses as typed errors. No package is needed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint8, c_uint64, c_void_p
from typing import Any

from pie_edge.backends.shared.host import unique
from pie_edge.errors import BackendError, BackendUnavailable, DeviceLost, OutOfMemory

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
REQUIRED = 13_000
"""CUDA 13.0, which driver branch r580 is the first to serve."""
REMEDY = "install NVIDIA's driver, branch r580 or newer"
_OUT_OF_MEMORY, DEVICE_UNAVAILABLE = 2, 46
NOT_READY = 600
LOST = frozenset({214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 911, 999})
"""Statuses after which this process's contexts are dead: memory or hardware faults, kernels that trapped or hung, and what the
driver can't say."""

_MEANT = {
    214: "the card's memory has an error that ECC can't correct: `nvidia-smi -q -d ECC` counts them, and a restart takes the "
    "page out of use",
    700: "a kernel touched memory that isn't its own: this is a fault of pie-edge, please report it",
    709: "the context has gone; the system log has why, as an Xid",
    719: "a kernel failed; the system log has it as an Xid",
}

_HANDLE = POINTER(c_void_p)
_CALLS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_HANDLE, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemHostAlloc": (_HANDLE, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_uint64, c_uint8, c_size_t, c_void_p),
    "cuStreamCreate": (_HANDLE, c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, _HANDLE),
    "cuGraphInstantiateWithFlags": (_HANDLE, c_void_p, c_uint64),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphExecDestroy": (c_void_p,),
    "cuEventCreate": (_HANDLE, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventDestroy_v2": (c_void_p,),
    "cuModuleLoadData": (_HANDLE, c_void_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (_HANDLE, c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuTensorMapEncodeTiled": (c_void_p, c_uint, c_uint, c_uint64, *[c_void_p] * 4, *[c_uint] * 4),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}


class Driver:
    """The driver's library. ``calls`` has each of the functions above by name; they return statuses."""

    def __init__(self, library: str = "") -> None:
        """Raises BackendUnavailable where there is none."""
        try:
            self._library = ctypes.CDLL(library or LIBRARY)
            self.calls: dict[str, Callable[..., int]] = {
                name: _typed(self._library, name, arguments) for name, arguments in _CALLS.items()
            }
        except OSError as error:
            raise BackendUnavailable(f"backend cuda finds no NVIDIA driver ({error}); {REMEDY}") from error
        except AttributeError as error:
            version = version_of(self._library)
            why = f"the NVIDIA driver lacks what backend cuda calls ({error})"
            if version is not None and version < REQUIRED:
                why = too_old(version)
            raise BackendUnavailable(f"{why}; {REMEDY}") from error

    def device_names(self) -> list[str]:
        return device_names(self._library)

    def call(self, what: str, name: str, *arguments: Any) -> None:
        """Do it, or raise DeviceLost, OutOfMemory or BackendError that says ``what`` failed."""
        status = self.calls[name](*arguments)
        if status:
            self.refuse(status, what)

    def made(self, what: str, name: str, *arguments: Any) -> c_void_p:
        """The handle that a creating call writes to its first argument."""
        handle = c_void_p()
        self.call(what, name, byref(handle), *arguments)
        return handle

    def refuse(self, status: int, what: str) -> None:
        said = f"the NVIDIA driver failed to {what}: {self._text(status)}"
        if status in LOST:
            raise DeviceLost(f"{said}; {_MEANT.get(status, 'the system log has it as an Xid')}")
        if status == DEVICE_UNAVAILABLE:
            raise BackendUnavailable(
                f"{said}; another process has it for itself, or it is busy: end that one, let several have it with "
                "`nvidia-smi --compute-mode=0`, or take another --device"
            )
        if status == _OUT_OF_MEMORY:
            raise OutOfMemory(f"{said}; lower `memory` or `kv_memory` in the configuration, or take a smaller model")
        raise BackendError(f"{said}; run `pie-edge doctor`, update the driver, or use another --backend")

    def _text(self, status: int) -> str:
        name, text = c_char_p(), c_char_p()
        self.calls["cuGetErrorName"](status, byref(name))
        self.calls["cuGetErrorString"](status, byref(text))
        return f"{(name.value or b'error').decode()} ({status}), {(text.value or b'').decode()}"


def _typed(library: Any, name: str, arguments: tuple[Any, ...]) -> Callable[..., int]:
    """Raises AttributeError."""
    found: Any = getattr(library, name)
    found.argtypes, found.restype = arguments, c_int
    function: Callable[..., int] = found
    return function


def version_of(library: Any) -> int | None:
    """The CUDA version that a driver's library serves, times a thousand; None where it doesn't tell."""
    version = c_int()
    try:
        return None if library.cuDriverGetVersion(byref(version)) else version.value
    except AttributeError:
        return None


def dotted(version: int) -> str:
    """``13010`` is 13.1."""
    return f"{version // 1000}.{version % 1000 // 10}"


def too_old(version: int) -> str:
    return f"the NVIDIA driver serves CUDA {dotted(version)}, and {dotted(REQUIRED)} is needed"


def device_names(library: Any) -> list[str]:
    """Of all that a started driver's library sees, told apart."""
    count, device, room = c_int(), c_int(), ctypes.create_string_buffer(256)
    if library.cuDeviceGetCount(byref(count)):
        return []
    names = []
    for ordinal in range(count.value):
        library.cuDeviceGet(byref(device), ordinal)
        library.cuDeviceGetName(room, len(room), device)
        names.append(room.value.decode("utf-8", "replace"))
    return unique(names)
