"""How tests open each backend, by options of its own, from whatever thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pie_edge.backend import Backend

Opening = Callable[..., Backend]
"""Takes options that the backend has: ``exact``, ``memory``, on devices ``max_binding``."""


def cpu(**options: Any) -> Backend:
    from pie_edge.backends.cpu.backend import open_cpu

    return asyncio.run(open_cpu(**options))


def vulkan(**options: Any) -> Backend:
    from pie_edge.backends.vulkan.backend import Live, Options, VulkanBackend

    chosen = Options(**options)
    return VulkanBackend(chosen, Live(chosen))


def wgpu(**options: Any) -> Backend:
    from pie_edge.backends.wgpu.backend import Live, Options, WgpuBackend

    chosen = Options(**options)
    return WgpuBackend(chosen, Live(chosen))


def cuda(**options: Any) -> Backend:
    """On the emulator, or on a card where that is asked for."""
    from tests.backend.cuda_emulated import opened

    return opened(**options)


def metal(**options: Any) -> Backend:
    """On the processor, or on a GPU where there is one."""
    from pie_edge.backends.metal.backend import Live, MetalBackend, Options

    chosen = Options(**options)
    return MetalBackend(chosen, Live(chosen))


def metal_emulated(**options: Any) -> Backend:
    """With kernels on the emulator, also where there is a GPU."""
    from tests.backend.metal_emulated import opened

    return opened(**options)


_NEEDS = {
    "vulkan": ("needs_vulkan",),
    "wgpu": ("needs_wgpu",),
    "cuda": ("needs_simt",),
    "metal": ("needs_mlx",),
    "metal-emulated": ("needs_mlx", "needs_simt"),
}
_OPENINGS: Mapping[str, Opening] = {
    "cpu": cpu,
    "vulkan": vulkan,
    "wgpu": wgpu,
    "cuda": cuda,
    "metal": metal,
    "metal-emulated": metal_emulated,
}


def named(name: str) -> Opening:
    """Of a backend, or of ``metal-emulated``. Skips where there is no such device."""
    for needed in _NEEDS.get(name, ()):
        pytest.importorskip(f"tests.support.{needed}")
    return _OPENINGS[name]
