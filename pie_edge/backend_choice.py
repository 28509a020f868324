"""Which backend runs: the only place that names them. Each is imported when it is looked at, never before."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pie_edge.errors import BackendUnavailable

if TYPE_CHECKING:
    from pie_edge.backend import Backend, Finding

BACKENDS = ("cuda", "metal", "vulkan", "wgpu", "cpu")
"""In order of preference."""
TITLES = {"cuda": "CUDA", "metal": "Metal", "vulkan": "Vulkan", "wgpu": "wgpu", "cpu": "cpu"}


@dataclass(frozen=True)
class PassedOver:
    backend: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """A backend that works here and one of its devices by name; and why the better ones were left."""

    backend: str
    device: str
    passed_over: tuple[PassedOver, ...] = ()
    software: bool = False
    """The device is a software implementation: only taken when it was asked for."""

    def __str__(self) -> str:
        """``cpu, EPYC; passed over cuda, metal: no driver``: backends left for the same reason are told together."""
        by_reason: dict[str, list[str]] = {}
        for one in self.passed_over:
            by_reason.setdefault(one.reason, []).append(one.backend)
        told = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
        device = (
            f"{self.device} (a software device: it shows that things work, not how fast)"
            if self.software
            else self.device
        )
        return f"{self.backend}, {device}" + (f"; passed over {told}" if told else "")


def has_kernels(backend: str) -> bool:
    """Whether this version can compute on it: its package has a ``backend`` module, and not only a probe."""
    return importlib.util.find_spec(f"pie_edge.backends.{backend}.backend") is not None


def probe(backend: str) -> Finding:
    """What there is of it on this machine. May take tens of milliseconds: drivers get loaded."""
    found: Finding = importlib.import_module(f"pie_edge.backends.{backend}.probe").probe()
    return found


def describe(backend: str) -> list[str]:
    """All that its devices say of themselves, line by line; nothing where a backend has no more to tell than ``probe``."""
    if importlib.util.find_spec(f"pie_edge.backends.{backend}.describe") is None:
        return []
    module: Any = importlib.import_module(f"pie_edge.backends.{backend}.describe")
    lines: list[str] = module.describe()
    return lines


def choose(backend: str = "auto", device: str = "") -> Choice:
    """The backend named, or for ``auto`` the first that works on hardware; ``device`` is an index or part of a name.

    Raises BackendUnavailable: a backend asked for by name is never replaced by another.
    """
    if backend not in ("auto", *BACKENDS):
        raise BackendUnavailable(f"there is no backend {backend!r}; there are auto, {', '.join(BACKENDS)}")
    if backend != "auto":
        found = probe(backend)
        name = _device(backend, found, device)
        return Choice(backend, name, software=found.software or name in found.spare)
    passed: list[PassedOver] = []
    for name in BACKENDS:
        reason = _unfit(name, device)
        if not reason:
            try:
                found = probe(name)
                taken = _device(name, found, device)
                return Choice(name, taken, tuple(passed), software=found.software or taken in found.spare)
            except BackendUnavailable as error:
                reason = str(error)
        passed.append(PassedOver(name, reason))
    wanted = f"has a device like {device!r}" if device else "works here"
    raise BackendUnavailable(f"no backend {wanted}; `pie-edge doctor` tells the devices and remedies")


def _unfit(backend: str, device: str) -> str:
    """Why ``auto`` leaves it, or nothing. Drivers aren't touched for a backend that couldn't compute anyway; a software device
    is taken when its name is asked for."""
    if not has_kernels(backend):
        return "no kernels in this version yet"
    found = probe(backend)
    named = device and not _is_index(device)
    return found.reason or ("only a software device" if found.software and not named else "")


def _device(backend: str, found: Finding, wanted: str) -> str:
    title = TITLES[backend]
    if not has_kernels(backend):
        seen = f"this machine has {', '.join(found.devices)}" if found.devices else f"and here {found.reason}"
        raise BackendUnavailable(
            f"backend {backend} was asked for, but this version has no {title} kernels yet ({seen}); "
            "use --backend cpu or auto"
        )
    if not found.devices:
        raise BackendUnavailable(
            f"backend {backend} was asked for, but {found.reason}; {found.remedy or 'use --backend auto'}"
        )
    if not wanted:
        return found.devices[0]
    devices = found.devices + found.spare
    if _is_index(wanted) and int(wanted) < len(devices):
        return devices[int(wanted)]
    for name in devices:
        if wanted.casefold() in name.casefold() and not _is_index(wanted):
            return name
    unseen = f". {found.unseen}" if found.unseen else ""
    raise BackendUnavailable(f"backend {backend} has no device {wanted!r}; it has {_listed(devices)}{unseen}")


def _is_index(device: str) -> bool:
    return device.isascii() and device.isdecimal()


def _listed(devices: tuple[str, ...]) -> str:
    return ", ".join(f"{index}: {name}" for index, name in enumerate(devices))


def has_variants(backend: str) -> bool:
    """Whether some of its kernels have variants to measure: its package has a ``tune`` module."""
    return importlib.util.find_spec(f"pie_edge.backends.{backend}.tune") is not None


async def open_backend(
    choice: Choice,
    *,
    threads: int = 0,
    memory: int = 0,
    exact: bool = False,
    cache_dir: Path | None = None,
    tune: bool = True,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> Backend:
    """Open what was chosen. ``memory`` in bytes, 0 for what there is; ``threads`` 0 for one a core; ``tune`` lets a backend
    whose kernels have variants measure them on a device that is new to it, where ``progress`` is told what takes so long."""
    module: Any = importlib.import_module(f"pie_edge.backends.{choice.backend}.backend")
    opener = getattr(module, f"open_{choice.backend}")
    more: dict[str, Any] = {"tune": tune, "progress": progress} if has_variants(choice.backend) else {}
    opened: Backend = await opener(
        choice.device, threads=threads, memory=memory, exact=exact, cache_dir=cache_dir, **more
    )
    return opened
