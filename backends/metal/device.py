"""The device that MLX computes on, the facts that kernels are chosen by, and how ops are run there."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from enum import StrEnum

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.probe import gpu_name, on_processor
from pie_edge.backends.shared.host import physical_memory
from pie_edge.errors import BackendUnavailable

_ANY_MEMORY = 8 << 30
"""Where the system doesn't tell how much there is."""
KEPT = 8
"""Of this part of the memory at most what steps have freed is kept for those that come."""

_TENSOR_FLOATS = "MLX_ENABLE_TF32"
"""MLX's own variable, which it reads once, when it first multiplies floats."""
_WHOLE = 1e-5
"""Relative error of a product of float32 that stays below this: ten bits of a mantissa give 8e-4, all of them 3e-7."""


class Mode(StrEnum):
    """How an op is run."""

    KERNELS = "kernels"
    """By its Metal kernel where it has one, else by MLX's ops."""
    OPS = "ops"
    """By MLX's ops alone: what MLX's CPU device can do."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a device says of itself. Sizes are bytes."""

    name: str
    version: str
    """MLX's."""
    gpu: bool
    memory: int
    """That all arrays together may take: on a GPU what macOS recommends as the most that is kept resident."""
    largest: int
    """The largest buffer."""
    macos: str = ""
    """Its version, of a GPU."""

    @property
    def software(self) -> bool:
        return not self.gpu

    @property
    def driver(self) -> str:
        """Metal's compiler comes with macOS."""
        return f"MLX {self.version}, macOS {self.macos}" if self.gpu else f"MLX {self.version}"


def facts() -> Facts:
    version = importlib.metadata.version("mlx")
    if not mx.metal.is_available():
        memory = physical_memory() or _ANY_MEMORY
        return Facts(on_processor(), version, False, memory, memory)
    info = mx.device_info()
    memory = int(info["max_recommended_working_set_size"])
    largest = int(info.get("max_buffer_length", memory))
    return Facts(gpu_name(), version, True, memory, largest, platform.mac_ver()[0])


def more_memory(found: Facts, limit: int) -> str:
    """What raises a limit: the setting where that is what binds, else macOS's own."""
    if limit < found.memory:
        return "raise `memory` in the configuration"
    if found.gpu:
        return "raise macOS's own limit (`sudo sysctl iogpu.wired_limit_mb=N`, in MiB)"
    return "use a machine with more memory"


def chosen(name: str) -> Facts:
    """Raises BackendUnavailable for a name that isn't the device's."""
    found = facts()
    if name and name != found.name:
        raise BackendUnavailable(f"backend metal has no device {name!r}; it has {found.name}")
    return found


def enter(found: Facts, limit: int) -> None:
    """Make it this thread's default: streams belong to threads. ``limit`` is what all arrays together may take."""
    mx.set_default_device(mx.gpu if found.gpu else mx.cpu)
    # What a step frees is kept for the next, by default as much as a machine has.
    mx.set_cache_limit(limit // KEPT)
    # By default half as much again as is kept resident: past this MLX hands nothing more to the device until something has ended,
    # so that the temporaries of a long prompt don't add up.
    mx.set_memory_limit(limit)
    if found.gpu:
        # Kept resident: else a model that wasn't asked for a while is paged out, and in again.
        mx.set_wired_limit(found.memory)


def want_whole_floats() -> None:
    """Let this process multiply float32 as that: where a GPU has units for matrices (M5 and newer) MLX rounds floats to ten bits
    of mantissa unless it is told otherwise before its first product."""
    os.environ[_TENSOR_FLOATS] = "0"


def check_whole_floats(found: Facts) -> None:
    """On the device's thread. Raises BackendUnavailable where MLX rounds them all the same."""
    x, y = np.random.default_rng(1).standard_normal((2, 256, 256)).astype(np.float32)
    wanted = x.astype(np.float64) @ y.astype(np.float64)
    error = np.linalg.norm(np.array(mx.array(x) @ mx.array(y)) - wanted) / np.linalg.norm(wanted)
    if not error < _WHOLE:
        raise BackendUnavailable(
            f"`exact` was asked for, but in this process MLX multiplies on {found.name} with a relative error of {error:.0e}, "
            f"which was settled when it first did; use a process of its own, or start this one with {_TENSOR_FLOATS}=0"
        )
