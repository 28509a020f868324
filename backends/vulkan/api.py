"""The Vulkan loader through the ``vulkan`` package: structures, raw entry points, and statuses as typed errors.

The package's wrappers convert every argument and cost microseconds a call: they are for set-up. What runs per step calls
``lib`` with structures made once.
"""

from __future__ import annotations

from typing import Any

from pie_edge import remedies
from pie_edge.errors import BackendError, BackendUnavailable, DeviceLost, OutOfMemory

try:
    import vulkan as vk
    from vulkan._vulkan import ffi, lib
except ImportError as error:
    raise BackendUnavailable(
        f"backend vulkan needs the vulkan package; install it with `{remedies.install('vulkan')}`"
    ) from error
except OSError as error:
    raise BackendUnavailable(
        f"backend vulkan finds no Vulkan loader ({error}); install it with your GPU's driver "
        "(Debian: apt install libvulkan1 mesa-vulkan-drivers)"
    ) from error

__all__ = ["API_1_2", "SUCCESS", "Handle", "check", "ffi", "lib", "make", "version_text", "vk"]

Handle = Any
"""A handle or a structure of the API: opaque to Python."""

API_1_2 = 1 << 22 | 2 << 12
SUCCESS = 0
_DEVICE_LOST = -4
_OUT_OF_MEMORY = frozenset({-1, -2})
_NAMES = {
    -1: "out of host memory",
    -2: "out of device memory",
    -3: "initialization failed",
    -4: "device lost",
    -5: "memory map failed",
    -6: "layer not present",
    -7: "extension not present",
    -8: "feature not present",
    -9: "incompatible driver",
    -11: "out of pool memory",
    -13: "unknown",
}


def check(status: int, what: str) -> int:
    """A call's status, if it is a success; else DeviceLost, OutOfMemory or BackendError that says ``what`` was done."""
    if status >= SUCCESS:
        return status
    said = f"the Vulkan driver failed to {what}: {_NAMES.get(status, 'error')} ({status})"
    if status == _DEVICE_LOST:
        raise DeviceLost(f"{said}; what was running is gone, the next request starts the device again")
    if status in _OUT_OF_MEMORY:
        raise OutOfMemory(f"{said}; lower `memory` or `kv_memory` in the configuration, or take a smaller model")
    raise BackendError(f"{said}; run `pie-edge doctor`, update the driver, or use another --backend")


def make(what: str, create: Any, kind: str, *arguments: Any) -> Handle:
    """Call a creating function whose last argument receives a handle of type ``kind``, and return the handle."""
    out = ffi.new(f"{kind}*")
    check(create(*arguments, out), what)
    return out[0]


def version_text(version: int) -> str:
    return f"{version >> 22 & 0x7F}.{version >> 12 & 0x3FF}.{version & 0xFFF}"
