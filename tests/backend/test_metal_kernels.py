"""Every op of the Metal backend against the NumPy reference: by MLX's ops on the processor, by kernels on a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_mlx")

from pie_edge.backend import Backend
from pie_edge.backends.metal.ops import KINDS
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, DType
from pie_edge.program.trace import Trace
from tests.backend import broken_cases, cases, copy_cases, device_cases, openers
from tests.backend.cases import F32
from tests.backend.device import run_case


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    opened = openers.metal(exact=True)
    yield opened
    asyncio.run(opened.close())


@pytest.mark.parametrize("name", device_cases.NAMES)
def test_an_op_agrees_with_the_reference(backend: Backend, name: str) -> None:
    device_cases.check(backend, name)


@pytest.mark.parametrize("name", broken_cases.NAMES)
def test_what_is_not_finite_stays_so(backend: Backend, name: str) -> None:
    broken_cases.check(backend, name)


def test_the_cases_have_all_kinds_of_ops() -> None:
    built = (device_cases.build(name).program for name in device_cases.AWKWARD)
    more = (
        device_cases.build(name).program for name in ("add 13 7 rows", "scale 13 7 rows", "store", "silu 13 7 rows")
    )
    copies = {op.kind for slots in (True, False) for op in copy_cases.program(slots).ops}
    adapters = {op.kind for op in device_cases.build("adapter_linear 8x576 1 rows").program.ops}
    found = {op.kind for program in (*built, *more) for op in program.ops}
    assert found | copies | adapters == KINDS


def test_a_step_that_reads_no_row_out_leaves_what_is_stored(backend: Backend) -> None:
    """A chunk of a prompt: MLX ends the process where some of its ops have no rows."""
    case = cases.Case(Trace("chunk"), np.random.default_rng(1))
    fields = case.step(*cases.rows_step(7, 8, sampled=()))
    x = case.row_state("x", case.normal(8, 64))
    weight = case.weight("w", (50, 64), Affine(8, 32, DType.F16, 128))
    rows = ops.rms_norm(
        case.trace, ops.gather_rows(case.trace, x, fields["sample_rows"]), case.weight("n", (64,), F32), eps=1e-5
    )
    ops.store(case.trace, ops.linear(case.trace, rows, weight), case.state("target", case.normal(5, 50)))
    case.written = ("target",)
    found = asyncio.run(run_case(backend, case))
    assert np.array_equal(found["target"], case.states["target"])
