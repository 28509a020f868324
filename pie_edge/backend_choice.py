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


@dataclass(frozen=True)
class PassedOver:
    backend: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """A backend that works here and one of its devices by name, or several; and why the better ones were left."""

    backend: str
    device: str
    passed_over: tuple[PassedOver, ...] = ()
    software: bool = False
    """The device is a software implementation: only taken when it was asked for."""
    others: tuple[str, ...] = ()
    """Devices beside the first one, each of which gets the whole model."""

    @property
    def devices(self) -> tuple[str, ...]:
        return self.device, *self.others

    @property
    def named(self) -> str:
        """All devices, for people."""
        return " and ".join(self.devices)

    def __str__(self) -> str:
        """``cpu, EPYC; passed over cuda, metal: no driver``: backends left for the same reason are told together."""
        by_reason: dict[str, list[str]] = {}
        for one in self.passed_over:
            by_reason.setdefault(one.reason, []).append(one.backend)
        told = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
        slow = " (a software device: it shows that things work, not how fast)" if self.software else ""
        device = self.named + slow
        return f"{self.backend}, {device}" + (f"; passed over {told}" if told else "")


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
    """The backend named, or for ``auto`` the first that works on hardware. ``device`` is an index or part of a name, or several
    with commas between; ``cuda:0,1`` names the backend, too.

    Raises BackendUnavailable: a backend asked for by name is never replaced by another.
    """
    backend, device = _apart(backend, device)
    if backend not in ("auto", *BACKENDS):
        raise BackendUnavailable(f"there is no backend {backend!r}; there are auto, {', '.join(BACKENDS)}")
    if backend != "auto":
        return _taken(backend, device, ())
    passed: list[PassedOver] = []
    for name in BACKENDS:
        reason = _unfit(name, device)
        if not reason:
            try:
                return _taken(name, device, tuple(passed))
            except BackendUnavailable as error:
                reason = str(error)
        passed.append(PassedOver(name, reason))
    wanted = f"has a device like {device!r}" if device else "works here"
    raise BackendUnavailable(f"no backend {wanted}; `pie-edge doctor` tells the devices and remedies")


def _apart(backend: str, device: str) -> tuple[str, str]:
    """A device that begins with a backend's name and a colon says which."""
    before, colon, rest = device.partition(":")
    if not colon or before not in BACKENDS:
        return backend, device
    if backend not in ("auto", before):
        raise BackendUnavailable(
            f"device {device!r} is of {before}, and backend {backend} was asked for; leave one out"
        )
    return before, rest


def _taken(backend: str, wanted: str, passed: tuple[PassedOver, ...]) -> Choice:
    found = probe(backend)
    # A name may have a comma itself.
    whole = any(wanted.casefold() in name.casefold() for name in found.devices + found.spare)
    parts = [wanted] if whole else [part.strip() for part in wanted.split(",")]
    if len(parts) > 1 and "" in parts:
        raise BackendUnavailable(f"device {wanted!r} has a comma with nothing beside it; name a device there")
    taken = [_device(backend, found, part) for part in parts]
    if len(set(taken)) < len(taken):
        raise BackendUnavailable(f"device {wanted!r} names {taken[0]} twice; name each once")
    software = found.software or any(name in found.spare for name in taken)
    return Choice(backend, taken[0], passed, software, tuple(taken[1:]))


def _unfit(backend: str, device: str) -> str:
    """Why ``auto`` leaves it, or nothing. A software device is taken when its name is asked for."""
    found = probe(backend)
    named = device and not all(_is_index(part.strip()) for part in device.split(","))
    return found.reason or ("only a software device" if found.software and not named else "")


def _device(backend: str, found: Finding, wanted: str) -> str:
    if not found.devices:
        raise BackendUnavailable(
            f"backend {backend} was asked for, but {found.reason}; {found.remedy or 'use --backend auto'}"
        )
    if not wanted:
        return found.usable[0]
    for name in _like(wanted, found):
        if name in found.refused:
            raise BackendUnavailable(f"{found.refused[name]}; backend {backend} may use {_listed(found)}")
        return name
    unseen = f". {found.unseen}" if found.unseen else ""
    raise BackendUnavailable(f"backend {backend} has no device {wanted!r}; it has {_listed(found)}{unseen}")


def _is_index(device: str) -> bool:
    return device.isascii() and device.isdecimal()


def _like(wanted: str, found: Finding) -> list[str]:
    """Devices of this number, or with this in their names: those that can be used come first."""
    devices = found.devices + found.spare
    if _is_index(wanted):
        return list(devices[int(wanted) : int(wanted) + 1])
    alike = [name for name in devices if wanted.casefold() in name.casefold()]
    return sorted(alike, key=lambda name: name in found.refused)


def _listed(found: Finding) -> str:
    devices = enumerate(found.devices + found.spare)
    return ", ".join(f"{index}: {name}" for index, name in devices if name not in found.refused)


def has_variants(backend: str) -> bool:
    """Whether some of its kernels have variants to measure: its package has a ``tune`` module."""
    return importlib.util.find_spec(f"pie_edge.backends.{backend}.tune") is not None


async def open_backend(
    choice: Choice,
    *,
    device: str = "",
    threads: int = 0,
    memory: int = 0,
    exact: bool = False,
    cache_dir: Path | None = None,
    tune: bool = True,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> Backend:
    """Open what was chosen, or one ``device`` of several. ``memory`` in bytes, 0 for what there is; ``threads`` 0 for one a core;
    ``tune`` lets a backend whose kernels have variants measure them on a device that is new to it, where ``progress`` is told
    what takes so long. Raises BackendUnavailable."""
    try:
        module: Any = importlib.import_module(f"pie_edge.backends.{choice.backend}.backend")
    except (ImportError, OSError) as error:
        raise BackendUnavailable(
            f"backend {choice.backend} can't be loaded: {type(error).__name__}: {error}; remove the package that this names and "
            "install it again, `pie-edge doctor` tells more, or use another --backend"
        ) from error
    opener = getattr(module, f"open_{choice.backend}")
    more: dict[str, Any] = {"tune": tune, "progress": progress} if has_variants(choice.backend) else {}
    opened: Backend = await opener(
        device or choice.device, threads=threads, memory=memory, exact=exact, cache_dir=cache_dir, **more
    )
    return opened
