"""What `./pie-edge` installs on a machine: the extras of those interfaces that there is a driver for."""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pie_edge.backends.cuda.api import REQUIRED
from tests.pure.test_packaging import EXTRAS

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bootstrap.py"
CUDA, VULKAN = "libcuda.so.1", "libvulkan.so.1"
OLDER_CUDA = f"{CUDA} of r575"
MACHINES = {
    "an NVIDIA card on a server": ("linux", "x86_64", "", {CUDA}, ["cuda"]),
    "an NVIDIA card with Vulkan": ("linux", "aarch64", "", {CUDA, VULKAN}, ["cuda", "vulkan"]),
    "another card": ("linux", "x86_64", "", {VULKAN}, ["vulkan"]),
    "no card": ("linux", "x86_64", "", set[str](), []),
    "Apple silicon": ("darwin", "arm64", "14.0", set[str](), ["metal"]),
    "Apple silicon, later": ("darwin", "arm64", "26.1", set[str](), ["metal"]),
    "Apple silicon before MLX": ("darwin", "arm64", "13.6.1", set[str](), ["wgpu"]),
    "an Intel Mac": ("darwin", "x86_64", "14.5", set[str](), ["wgpu"]),
    "an NVIDIA card with an older driver": ("linux", "x86_64", "", {OLDER_CUDA, VULKAN}, ["vulkan"]),
    "an NVIDIA card on Windows": ("win32", "AMD64", "", {"nvcuda.dll", "vulkan-1.dll"}, ["cuda", "vulkan", "wgpu"]),
}


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_gets_what_its_drivers_need(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    system, processor, macos, libraries, extras = MACHINES[machine]

    def load(name: str) -> SimpleNamespace:
        def get_version(place: Any) -> int:
            place._obj.value = REQUIRED if name in libraries else REQUIRED - 10
            return 0

        if name not in libraries and f"{name} of r575" not in libraries:
            raise OSError(name)
        return SimpleNamespace(cuDriverGetVersion=get_version)

    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: processor)
    monkeypatch.setattr(platform, "mac_ver", lambda: (macos, ("", "", ""), processor))
    monkeypatch.setattr(ctypes, "CDLL", load)
    found = bootstrap.usable_backends()
    assert found == extras
    assert set(found) <= EXTRAS.keys()


def test_the_oldest_driver_that_is_installed_for_is_the_oldest_that_is_used(bootstrap: ModuleType) -> None:
    assert bootstrap.OLDEST_CUDA == REQUIRED
