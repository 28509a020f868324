"""The CUDA backend on the emulator: its own host code over a driver's library that runs the same kernels on the CPU. ``ON_CARD``
it is the system's driver and NVRTC, for tests that say nothing of the emulator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.backend import CudaBackend, Live, Options
from tests.backend import cuda_card
from tests.simt import build
from tests.simt.build import ON_CARD
from tests.simt.mutants import Mutant, Site

Sources = Mapping[str, str]
FORWARD, BACKWARD, SHUFFLED = 0, 1, 2
"""Schedules: which thread runs next where several can."""
GENERATIONS = (0,) if ON_CARD else (75, 86, 90)
"""Compute capabilities, times ten: a card's own is 0 here, and nobody asks it to be another."""
_MOST_DEVICES = 4


def compiler(sources: Sources, flags: Sequence[str] = ()) -> Callable[[str, str, tuple[str, ...]], bytes]:
    """What stands in NVRTC's place, for kernels of these texts."""

    @cache
    def compiled(file: str, text: str, defines: tuple[str, ...]) -> bytes:
        files = {**sources, file: text or sources[file]}
        # Text made at run time runs once or twice: it isn't worth much of the compiler's time.
        cheap = ["-O1"] if text else []
        return build.compiled(build.gathered(file, files), defines, [*flags, *cheap]).read_bytes()

    return compiled


ordinary = compiler(nvrtc.sources())
"""The kernels as they are."""


def opened(**options: Any) -> CudaBackend:
    """On a card its own compiler's kernels are kept, for tests open it many times."""
    if ON_CARD:
        usual: dict[str, Any] = {"compile_kernels": cuda_card.compiler()}
    else:
        usual = {"library": str(build.driver()), "compile_kernels": ordinary}
    chosen = Options(**{**usual, **options})
    return CudaBackend(chosen, Live(chosen))


@contextmanager
def scheduled(order: int, seed: int = 0) -> Iterator[None]:
    library = ctypes.CDLL(str(build.driver()))
    library.simt_schedule(ctypes.c_uint(order), ctypes.c_ulonglong(seed))
    try:
        yield
    finally:
        library.simt_schedule(ctypes.c_uint(FORWARD), ctypes.c_ulonglong(0))


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Kernels that were compiled with sites are without one barrier, or with one bound that is off."""
    driver = ctypes.CDLL(str(build.driver()))
    driver.simt_mutated(ctypes.c_int(mutant.site.number), ctypes.c_int(mutant.by))
    try:
        yield
    finally:
        driver.simt_mutated(ctypes.c_int(-1), ctypes.c_int(0))


def forget_sites() -> None:
    ctypes.CDLL(str(build.driver())).simt_forget()


def came_to(site: Site) -> bool:
    """Whether launches did, since they were forgotten."""
    driver = ctypes.CDLL(str(build.driver()))
    driver.simt_came_to.restype = ctypes.c_bool
    return bool(driver.simt_came_to(ctypes.c_int(site.number)))


def mend() -> None:
    """An error of a kernel sticks to the process, as a card's does; here it can be taken away."""
    for device in range(_MOST_DEVICES):
        break_device(0, device)


def break_device(status: int, device: int = 0) -> None:
    """As if an error of a kernel or of the card had stuck."""
    ctypes.CDLL(str(build.driver())).simt_break(status, device)


@contextmanager
def emulated(devices: int = 1, others: int = 0, lag: int = 0) -> Iterator[None]:
    """There are so many devices, other processes use so many bytes of each, and an event isn't reached yet when it is looked at,
    so many times."""
    driver = ctypes.CDLL(str(build.driver()))
    driver.simt_devices(devices)
    driver.simt_others(ctypes.c_size_t(others))
    driver.simt_lag(lag)
    try:
        yield
    finally:
        driver.simt_devices(1)
        driver.simt_others(ctypes.c_size_t(0))
        driver.simt_lag(0)


@contextmanager
def card(device: int, seen: int = 0, mode: int = 0, held: bool = False) -> Iterator[None]:
    """One device has this compute capability, times ten, and compute mode, and another process may hold it."""
    driver = ctypes.CDLL(str(build.driver()))
    driver.simt_card(device, seen, mode, int(held))
    try:
        yield
    finally:
        driver.simt_card(device, 0, 0, 0)


def calls(*names: str) -> list[int]:
    """How often each of the driver's functions was called so far."""
    driver = ctypes.CDLL(str(build.driver()))
    driver.simt_calls.restype = ctypes.c_uint64
    return [driver.simt_calls(name.encode()) for name in names]


def fail(name: str, status: int) -> None:
    """The next call of this function of the driver returns this status, and does nothing."""
    ctypes.CDLL(str(build.driver())).simt_fail(name.encode(), ctypes.c_int(status))


@contextmanager
def architecture(seen: int) -> Iterator[None]:
    """The stand-in's device says that it has this compute capability, times ten, and has that much shared memory. A card stays
    what it is."""
    if ON_CARD:
        yield
        return
    driver = ctypes.CDLL(str(build.driver()))
    driver.simt_architecture(ctypes.c_int(seen))
    try:
        yield
    finally:
        driver.simt_architecture(ctypes.c_int(86))


@contextmanager
def driver_version(version: int) -> Iterator[None]:
    """The stand-in says that it serves this CUDA version, times a thousand."""
    driver, memory = ctypes.CDLL(str(build.driver())), ctypes.c_size_t(4 << 30)
    driver.simt_driver(ctypes.c_int(version), memory)
    try:
        yield
    finally:
        driver.simt_driver(ctypes.c_int(13_000), memory)


def counted(kernel: str) -> list[dict[str, int]]:
    """What traced launches of a kernel did so far: global accesses of less than 8 bytes a lane, those of more, shared ones."""
    found = (ctypes.c_uint64 * 15)()
    ctypes.CDLL(str(build.driver())).simt_counted(kernel.encode(), found)
    names = ("instructions", "sectors", "ideal_sectors", "waves", "ideal_waves")
    return [dict(zip(names, found[5 * i : 5 * i + 5], strict=True)) for i in range(3)]
