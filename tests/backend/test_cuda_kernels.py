"""Every kernel of the CUDA backend against the NumPy reference, on the emulator and through the backend's own host code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda.backend import CudaBackend
from pie_edge.program.observe import MASSES
from tests.backend import vulkan_cases
from tests.backend.cuda_emulated import opened
from tests.backend.device import assert_close, run_case


@pytest.fixture(scope="module")
def backend() -> Iterator[CudaBackend]:
    found = opened()
    yield found
    asyncio.run(found.close())


@pytest.mark.parametrize("name", vulkan_cases.NAMES)
def test_a_kernel_agrees_with_the_reference(backend: CudaBackend, name: str) -> None:
    case = vulkan_cases.build(name)
    found = asyncio.run(run_case(backend, case))
    for output, expected in case.expected().items():
        width = expected.shape[-1] if output == MASSES else None
        assert_close(found[output][..., :width], expected, case)
