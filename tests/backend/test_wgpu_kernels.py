"""Every kernel of the wgpu backend against the NumPy reference: on this machine's adapter, without subgroup operations, with the
variants that cards get, and through OpenGL where there is no Vulkan driver. All run under WebGPU's default limits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backends.wgpu.backend import Live, Options, WgpuBackend
from tests.backend import vulkan_cases, wgpu_cases

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def backend() -> Iterator[WgpuBackend]:
    opened = WgpuBackend(Options(), Live(Options()))
    yield opened
    asyncio.run(opened.close())


@pytest.mark.parametrize("name", vulkan_cases.AWKWARD)
def test_a_kernel_agrees_with_the_reference(backend: WgpuBackend, name: str) -> None:
    wgpu_cases.check(backend, name)


def test_the_device_is_held_to_webgpus_default_limits(backend: WgpuBackend) -> None:
    """But for the sizes of buffers: what runs here runs on any adapter."""
    limits = backend._live.session.device.limits
    assert limits["max-storage-buffers-per-shader-stage"] == 8
    assert limits["max-compute-invocations-per-workgroup"] == 256
    assert limits["max-compute-workgroup-storage-size"] == 16384
    assert "shader-f16" not in backend._live.session.device.features


def in_a_process_of_its_own(arguments: list[str], environment: Mapping[str, str]) -> str:
    """What ``wgpu_cases`` says; drivers are found when they are loaded."""
    command = [sys.executable, "-m", "tests.backend.wgpu_cases", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kernels_agree_without_subgroup_operations() -> None:
    assert "cases agree" in in_a_process_of_its_own(["--no-subgroups"], {})


def test_the_variants_for_cards_agree() -> None:
    """Workgroups of several subgroups, columns shared by invocations."""
    assert "cases agree" in in_a_process_of_its_own(["--tuning", "hardware"], {})


def test_opengl_serves_where_there_is_no_vulkan_driver() -> None:
    """No driver file: the Vulkan loader finds nothing."""
    names = ["linear affine4g32-f16-min 1 rows", "rms_norm 7x3 8 rows", "halves attention long decode"]
    said = in_a_process_of_its_own(names, {"VK_ICD_FILENAMES": os.devnull, "VK_DRIVER_FILES": os.devnull})
    if "Vulkan" in said:
        pytest.skip("this machine's loader finds drivers elsewhere")
    assert "3 cases agree" in said
    assert "OpenGL" in said
