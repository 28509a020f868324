"""wgpu-native through the ``wgpu`` package: objects by its wrappers, what runs in each step by its raw entry points.

The wrappers check and convert every argument and cost microseconds a call; the raw calls cost a third of that. The package
is pinned to one version, whose private parts are used here and nowhere else.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pie_edge import remedies
from pie_edge.errors import BackendError, BackendUnavailable, DeviceLost, OutOfMemory

try:
    import wgpu
    from wgpu.backends.wgpu_native import _helpers, extras
    from wgpu.backends.wgpu_native._api import libf
    from wgpu.backends.wgpu_native._ffi import ffi, lib
except ImportError as error:
    raise BackendUnavailable(
        f"backend wgpu needs the wgpu package; install it with `{remedies.install('wgpu')}`"
    ) from error
except OSError as error:
    raise BackendUnavailable(f"backend wgpu can't load wgpu-native ({error}); reinstall the package wgpu") from error

__all__ = ["Handle", "adapters", "ffi", "lib", "libf", "translated", "wgpu"]

Handle = Any
"""An object of the API: opaque to Python."""

# What goes wrong is raised, with more words; the package writes it to the log as well.
logging.getLogger("wgpu").setLevel(logging.CRITICAL)

_PRIMARY = ("Vulkan", "Metal", "DX12")
_LOST = ("lost", "Parent device is lost", "device is invalid")


def adapters() -> list[Handle]:
    """Adapters of the APIs that are made for it; where there are none, those of OpenGL."""
    with _quiet():
        return _adapters()


@contextmanager
def _quiet() -> Iterator[None]:
    """Wayland's library, which drivers ask, complains on standard error where this isn't set; nobody wants a window here."""
    name = "XDG_RUNTIME_DIR"
    if name in os.environ:
        yield
        return
    os.environ[name] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ[name]


def _adapters() -> list[Handle]:
    for names in (_PRIMARY, ("GL",)):
        if _helpers._the_instance is None:
            extras.set_instance_extras(backends=names)
        found = list(wgpu.gpu.enumerate_adapters_sync())
        if found or names != _PRIMARY:
            return found
        # An instance knows its APIs from the start: another is made.
        _helpers._the_instance = None
    return []


@contextmanager
def translated(what: str) -> Iterator[None]:
    """The API's errors while ``what`` was done, as ours."""
    try:
        yield
    except wgpu.GPUOutOfMemoryError as error:
        raise OutOfMemory(
            f"wgpu has no memory to {what}; lower `memory` or `kv_memory` in the configuration, or take a smaller model"
        ) from error
    except (wgpu.GPUError, RuntimeError) as error:
        if any(sign in str(error) for sign in _LOST):
            raise DeviceLost(f"the device was lost when it should {what}; the next request opens it again") from error
        raise BackendError(f"wgpu failed to {what}: {_short(error)}") from error


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines)[:600]
