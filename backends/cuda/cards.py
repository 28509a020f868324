"""Which cards the driver has, and which of them can't be used: asked of its library, without a context where none is in doubt."""

from __future__ import annotations

from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass
from typing import Any

from pie_edge.backends.cuda.api import DEVICE_UNAVAILABLE, device_names

OLDEST = 75
"""Compute capability, times ten: Turing."""
MAJOR, MINOR = 75, 76
"""The driver's numbers for the two halves of a compute capability."""
_MODE, _PROHIBITED, _EXCLUSIVE = 20, 2, 3
"""Its number for who may use a card: nobody, or one process at a time."""
_SHARE = "let several processes have it with `nvidia-smi --compute-mode=0`"


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    refusal: str = ""
    """Why it can't be used; empty when it can."""
    remedy: str = ""


def cards(library: Any) -> list[Card]:
    """All that a started driver's library sees, in its order."""
    return [_looked_at(library, ordinal, name) for ordinal, name in enumerate(device_names(library))]


def too_old(architecture: int) -> str:
    """Why a card of this compute capability, times ten, is refused; empty if it isn't."""
    if architecture >= OLDEST:
        return ""
    return f"has compute capability {architecture / 10}, and backend cuda needs {OLDEST / 10} or newer"


def _looked_at(library: Any, ordinal: int, name: str) -> Card:
    device = c_int()
    library.cuDeviceGet(byref(device), ordinal)
    architecture = 10 * _attribute(library, device, MAJOR) + _attribute(library, device, MINOR)
    if refusal := too_old(architecture):
        return Card(name, refusal, "use another card, or another --backend")
    mode = _attribute(library, device, _MODE)
    if mode == _PROHIBITED:
        return Card(name, "is set to run no process", _SHARE)
    if mode == _EXCLUSIVE and _is_held(library, device):
        return Card(name, "is held by another process for itself", f"end that one, or {_SHARE}")
    return Card(name)


def _attribute(library: Any, device: c_int, attribute: int) -> int:
    value = c_int()
    library.cuDeviceGetAttribute(byref(value), attribute, device)
    return value.value


def _is_held(library: Any, device: c_int) -> bool:
    """Only a context tells. It takes a fraction of a second, and is given back."""
    context = c_void_p()
    status = library.cuDevicePrimaryCtxRetain(byref(context), device)
    if not status:
        library.cuDevicePrimaryCtxRelease_v2(device)
    return bool(status == DEVICE_UNAVAILABLE)
