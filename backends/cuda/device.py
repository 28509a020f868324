"""A CUDA device: which there are, the one that is used, and the facts that kernels are chosen by."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

from pie_edge.backends.cuda import cards
from pie_edge.backends.cuda.api import REMEDY, REQUIRED, Driver, too_old
from pie_edge.backends.cuda.probe import EMULATION
from pie_edge.backends.shared.memory import mib
from pie_edge.errors import BackendUnavailable, OutOfMemory

_RESERVE = 256 << 20
"""Left to the driver: contexts, graphs, local memory of kernels."""
_LEAST = 64 << 20
"""Nothing is opened with less to use: kernels couldn't even be tested."""
_PROCESSORS = 16
_OTHERS = "other processes use the rest: end one (`nvidia-smi` lists them), or take another --device or --backend"
_thread = threading.local()
"""``gpu`` is the one whose context is the thread's: several may be open, and a thread may call all of them."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a device says of itself. Sizes are bytes."""

    name: str
    ordinal: int
    architecture: int
    """Compute capability, times ten."""
    processors: int
    memory: int
    """Free when it was opened, less what the driver will want; another process may use the card too."""
    driver: int
    """The CUDA version that the driver serves, times a thousand."""
    free: int = 0
    total: int = 0

    @property
    def scarce(self) -> str:
        """Where much of it was taken: how much of how much was free. The context takes a part of what isn't."""
        if self.total - self.free <= self.total // 8 + (512 << 20):
            return ""
        return (
            f"of whose {mib(self.total)} MiB {mib(self.free)} were free when it was opened: other processes use it, and "
            "`nvidia-smi` lists them"
        )

    @property
    def software(self) -> bool:
        return self.name.startswith(EMULATION)

    @property
    def shared_memory(self) -> int:
        """Of a block, without asking for more."""
        return 48 << 10

    @property
    def max_invocations(self) -> int:
        return 1024


class Gpu:
    """An open device: its context, which each thread that calls makes its own first."""

    def __init__(self, driver: Driver, name: str) -> None:
        """Raises BackendUnavailable, and OutOfMemory."""
        self.driver = driver
        ordinal, found = _chosen(driver, name)
        self._device = _device(driver, ordinal)
        self._context = _opened(driver, self._device, found)
        try:
            self.facts = self._looked_at(ordinal, found)
        except BaseException:
            self.close()
            raise

    def _looked_at(self, ordinal: int, name: str) -> Facts:
        driver, device, (free, total) = self.driver, self._device, self._memory()
        facts = Facts(
            name=name,
            ordinal=ordinal,
            architecture=10 * _attribute(driver, device, cards.MAJOR) + _attribute(driver, device, cards.MINOR),
            processors=_attribute(driver, device, _PROCESSORS),
            memory=max(free - _RESERVE, free // 2),
            driver=_version(driver),
            free=free,
            total=total,
        )
        if refusal := cards.too_old(facts.architecture):
            raise BackendUnavailable(f"{name} {refusal}; use another card, or another --backend")
        if facts.memory < _LEAST:
            raise OutOfMemory(f"{name} has {mib(free)} MiB free of {mib(total)}; {_OTHERS}")
        return facts

    def enter(self) -> None:
        """Make the context this thread's own."""
        if getattr(_thread, "gpu", None) is not self:
            self.driver.call("enter its context", "cuCtxSetCurrent", self._context)
            _thread.gpu = self

    def call(self, what: str, name: str, *arguments: Any) -> None:
        self.enter()
        self.driver.call(what, name, *arguments)

    def made(self, what: str, name: str, *arguments: Any) -> c_void_p:
        self.enter()
        return self.driver.made(what, name, *arguments)

    def raw(self, name: str) -> Callable[..., int]:
        """A call that returns its status, for steps."""
        return self.driver.calls[name]

    def free_memory(self) -> int:
        """Bytes that no process uses now."""
        return self._memory()[0]

    def _memory(self) -> tuple[int, int]:
        """Bytes that are free, and all."""
        free, total = c_size_t(), c_size_t()
        self.call("tell its memory", "cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    @property
    def bus(self) -> str:
        """Where it is on the PCI bus, as the system writes it: domain, bus, device and function."""
        room = ctypes.create_string_buffer(32)
        self.driver.call("tell its place", "cuDeviceGetPCIBusId", room, len(room), self._device)
        return room.value.decode().lower()

    def close(self) -> None:
        self.driver.calls["cuDevicePrimaryCtxRelease_v2"](self._device)


def _chosen(driver: Driver, name: str) -> tuple[int, str]:
    if (version := _version(driver)) < REQUIRED:
        raise BackendUnavailable(f"{too_old(version)}; {REMEDY}")
    driver.call("start", "cuInit", 0)
    found = driver.device_names()
    for ordinal, one in enumerate(found):
        if not name or one == name:
            return ordinal, one
    raise BackendUnavailable(f"backend cuda has no device {name!r}; it has {', '.join(found) or 'none'}")


def _opened(driver: Driver, device: int, name: str) -> c_void_p:
    """A card's context. Raises BackendUnavailable, and OutOfMemory where other processes left none for it."""
    try:
        return driver.made("open its context", "cuDevicePrimaryCtxRetain", device)
    except OutOfMemory:
        raise OutOfMemory(f"{name} has no memory left to open it with; {_OTHERS}") from None


def _version(driver: Driver) -> int:
    version = c_int()
    driver.call("tell its version", "cuDriverGetVersion", byref(version))
    return version.value


def _device(driver: Driver, ordinal: int) -> int:
    device = c_int()
    driver.call(f"find device {ordinal}", "cuDeviceGet", byref(device), ordinal)
    return device.value


def _attribute(driver: Driver, device: int, attribute: int) -> int:
    value = c_int()
    driver.call("tell an attribute", "cuDeviceGetAttribute", byref(value), attribute, device)
    return value.value
