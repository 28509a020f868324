"""Every kernel of the wgpu backend against the NumPy reference: on this machine's adapter, with and without subgroup operations
and halves, with the variants that cards get, and through OpenGL where there is no Vulkan driver. All run under WebGPU's default
limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backend import Backend
from pie_edge.backends.wgpu.lower import KINDS
from tests.backend import broken_cases, copy_cases, device_cases, openers, wgpu_matrix
from tests.backend.wgpu_cases import SOME

CHECKED = [
    variant
    for variant in wgpu_matrix.VARIANTS
    if variant.name
    in (
        "software tuning, no subgroups, words",
        "hardware tuning, subgroups, words",
        "hardware tuning, no subgroups, halves",
        "hardware tuning, subgroups of 16",
        "software tuning, OpenGL",
        "hardware tuning, OpenGL",
    )
]
"""Each choice at least once, beside different others."""

pytestmark = pytest.mark.timeout(900)  # a driver that has compiled nothing yet, on a machine that has other work


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    opened = openers.wgpu()
    yield opened
    asyncio.run(opened.close())


@pytest.mark.parametrize("name", device_cases.AWKWARD)
def test_a_kernel_agrees_with_the_reference(backend: Backend, name: str) -> None:
    device_cases.check(backend, name)


@pytest.mark.parametrize("name", [name for name in broken_cases.NAMES if name in device_cases.AWKWARD])
def test_what_is_not_finite_stays_so(backend: Backend, name: str) -> None:
    broken_cases.check(backend, name)


def test_the_device_is_held_to_webgpus_default_limits(backend: Backend) -> None:
    """But for the sizes of buffers: what runs here runs on any adapter."""
    limits = backend._live.session.device.limits
    assert limits["max-storage-buffers-per-shader-stage"] == 8
    assert limits["max-compute-invocations-per-workgroup"] == 256
    assert limits["max-compute-workgroup-storage-size"] == 16384
    assert not backend._live.tuning.half_floats, "slower than words on a software device"


def test_the_cases_of_the_variants_have_all_kinds_of_ops() -> None:
    built = (device_cases.build(name).program for name in SOME if name in device_cases.NAMES)
    copies = {op.kind for slots in (True, False) for op in copy_cases.program(slots).ops}
    assert {op.kind for program in built for op in program.ops} | copies == KINDS


@pytest.mark.parametrize("variant", CHECKED, ids=lambda variant: variant.name)
def test_kernels_agree_with_every_variant(variant: wgpu_matrix.Variant) -> None:
    """Some cases of each kind. All of them, and all variants: ``python -m tests.backend.wgpu_matrix``."""
    done = wgpu_matrix.run(variant)
    if "no shader-f16" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(SOME)} of {len(SOME)} cases agree" in done.stdout
    if "OpenGL" in variant.name and "OpenGL" not in done.stdout:
        pytest.skip("this machine's loader finds Vulkan drivers elsewhere")
