"""Every kernel of the Vulkan backend against the NumPy reference: on this machine's device, with other subgroups, with the
variants that cards get, and under the validation layers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.backend import Backend
from tests.backend import broken_cases, device_cases, openers
from tests.support.vulkan import validation

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(900)  # a driver that has compiled nothing yet, on a machine that has other work


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    opened = openers.vulkan()
    yield opened
    asyncio.run(opened.close())


@pytest.mark.parametrize("name", device_cases.NAMES)
def test_a_kernel_agrees_with_the_reference(backend: Backend, name: str) -> None:
    device_cases.check(backend, name)


@pytest.mark.parametrize("name", broken_cases.NAMES)
def test_what_is_not_finite_stays_so(backend: Backend, name: str) -> None:
    broken_cases.check(backend, name)


def in_a_process_of_its_own(arguments: list[str], environment: Mapping[str, str]) -> str:
    """What ``vulkan_cases`` says; drivers and layers read their settings when they are loaded."""
    command = [sys.executable, "-m", "tests.backend.vulkan_cases", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=860, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("bits", "width"), [(128, 4), (512, 16)])
def test_kernels_agree_with_other_subgroup_sizes(bits: int, width: int) -> None:
    """Mesa's software device has subgroups of 4, 8 or 16; on others this setting changes nothing."""
    said = in_a_process_of_its_own([], {"LP_NATIVE_VECTOR_WIDTH": str(bits)})
    assert "cases agree" in said
    if "llvmpipe" in said:
        assert f"subgroups of {width}" in said


def test_kernels_agree_without_subgroup_operations() -> None:
    assert "cases agree" in in_a_process_of_its_own(["--no-subgroups"], {})


@pytest.mark.parametrize("subgroups", [[], ["--no-subgroups"]], ids=["with subgroups", "without subgroups"])
def test_the_variants_for_cards_agree(subgroups: list[str]) -> None:
    """Workgroups of several subgroups, shared memory, columns shared by invocations."""
    assert "cases agree" in in_a_process_of_its_own(["--tuning", "hardware", *subgroups], {})


@pytest.mark.parametrize("tuning", ["software", "hardware"])
def test_the_validation_layers_have_nothing_to_say(tuning: str, tmp_path: Path) -> None:
    """Synchronization validation included."""
    with validation(tmp_path) as (environment, messages):
        in_a_process_of_its_own(["--tuning", tuning], environment)
        assert messages() == ""


def test_the_validation_layers_would_say_so(tmp_path: Path) -> None:
    """Without barriers they find hazards: silence means something."""
    without = "from tests.backend import vulkan_cases as v; from pie_edge.backends.vulkan.record import Commands"
    script = f"{without}; Commands._order = lambda *a: None; v.main(['attention decode'])"
    with validation(tmp_path) as (environment, messages):
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            timeout=860,
            check=False,
        )
        assert "SYNC-HAZARD" in messages()
