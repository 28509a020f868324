"""Every op of the Metal backend against the NumPy reference: by MLX's ops on the processor, by kernels on a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("tests.support.needs_mlx")

from pie_edge.backend import Backend
from pie_edge.backends.metal.ops import KINDS
from tests.backend import copy_cases, device_cases, openers


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    opened = openers.metal(exact=True)
    yield opened
    asyncio.run(opened.close())


@pytest.mark.parametrize("name", device_cases.NAMES)
def test_an_op_agrees_with_the_reference(backend: Backend, name: str) -> None:
    device_cases.check(backend, name)


def test_the_cases_have_all_kinds_of_ops() -> None:
    built = (device_cases.build(name).program for name in device_cases.AWKWARD)
    more = (
        device_cases.build(name).program for name in ("add 13 7 rows", "scale 13 7 rows", "store", "silu 13 7 rows")
    )
    copies = {op.kind for slots in (True, False) for op in copy_cases.program(slots).ops}
    adapters = {op.kind for op in device_cases.build("adapter_linear 8x576 1 rows").program.ops}
    found = {op.kind for program in (*built, *more) for op in program.ops}
    assert found | copies | adapters == KINDS
