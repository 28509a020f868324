"""Every kernel of the cpu backend against the NumPy reference, alone and with several threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pie_edge.backends.cpu.backend import CpuBackend, open_cpu
from tests.backend import cases
from tests.backend.device import assert_close, run_case


@pytest.fixture(scope="module", params=[1, 2, 3], ids=lambda n: f"{n} threads")
def backend(request: pytest.FixtureRequest) -> Iterator[CpuBackend]:
    opened = asyncio.run(open_cpu(threads=request.param))
    yield opened
    asyncio.run(opened.close())


@pytest.mark.parametrize("name", cases.ALL)
def test_a_kernel_agrees_with_the_reference(backend: CpuBackend, name: str) -> None:
    case = cases.build(name)
    found = asyncio.run(run_case(backend, case))
    for output, expected in case.expected().items():
        assert_close(found[output], expected, case)
