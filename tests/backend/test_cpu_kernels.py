"""Every kernel of the cpu backend against the NumPy reference, alone and with several threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pie_edge.backends.cpu.backend import CpuBackend, open_cpu
from pie_edge.program import reference
from pie_edge.program.observe import MASSES
from pie_edge.program.ops import Role
from tests.backend import broken_cases, cases, expert_cases, mass_cases, recurrent_cases
from tests.backend.device import assert_close, put, run_case


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


@pytest.mark.parametrize("name", broken_cases.CPU)
def test_what_is_not_finite_stays_so(backend: CpuBackend, name: str) -> None:
    broken_cases.check(backend, name)


@pytest.mark.parametrize("name", expert_cases.ALL)
def test_a_mixture_of_experts_agrees_with_the_reference(backend: CpuBackend, name: str) -> None:
    case = expert_cases.build(name)
    found = asyncio.run(run_case(backend, case))
    for output, expected in case.expected().items():
        assert_close(found[output], expected, case)


@pytest.mark.parametrize("name", recurrent_cases.ALL)
def test_a_kernel_with_recurrent_state_agrees_with_the_reference(backend: CpuBackend, name: str) -> None:
    case = recurrent_cases.build(name)
    found = asyncio.run(run_case(backend, case))
    for output, expected in case.expected().items():
        assert_close(found[output], expected, case)


@pytest.mark.parametrize("name", ["qkv", "a", "b"])
def test_a_sequence_that_is_no_number_stays_so_and_leaves_the_others(backend: CpuBackend, name: str) -> None:
    clean, broken = (recurrent_cases.build("gated_delta") for _ in range(2))
    first = recurrent_cases.MIXED[0].rows + recurrent_cases.MIXED[1].rows
    own = slice(first + 2, first + recurrent_cases.MIXED[2].rows)
    broken.states[name][own.start] = np.nan
    (y,) = (value.name for value in clean.results)
    expected, found = (asyncio.run(run_case(backend, case))[y] for case in (clean, broken))
    assert np.isnan(found[own]).all()
    others = np.delete(np.arange(clean.rows), np.arange(own.start, own.stop))
    assert np.array_equal(found[others], expected[others])


def test_threads_that_come_late_find_nothing_to_do_in_layers_of_experts() -> None:
    """Temporaries of a layer lie where an earlier layer's lay: whoever counts its work by them counts wrong, or for ever."""

    async def test() -> None:
        opened = await open_cpu(threads=5)
        case = expert_cases.layered(8)
        buffers: dict[str, Any] = {name: await put(opened, array) for name, array in case.states.items()}
        for value in case.program.by_role(Role.WEIGHT):
            buffers[value.name] = await opened.load(value, case.sources[value.name])
        executable = await opened.compile(case.program, buffers)
        (output,) = case.program.by_role(Role.OUTPUT)
        true = output.nbytes // output.shape[0] * case.rows
        runs = [await opened.read(opened.run(executable, {"step": case.block})) for _ in range(150)]
        assert len({bytes(run[output.name].cast("B")[:true]) for run in runs}) == 1
        await opened.close()

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 3, 17, 31, 127])
@pytest.mark.parametrize("kind", ["affine4g32-f16-min", "affine8g16-f32-z128", "bf16"])
def test_a_value_that_is_no_number_makes_its_row_none_and_leaves_the_others(
    backend: CpuBackend, kind: str, place: int, value: float
) -> None:
    for rows, bad in ((2, 1), (7, 4)):
        case = cases.build(f"linear {kind} {rows} rows")
        case.states["x"][bad, place] = value
        [found] = asyncio.run(run_case(backend, case)).values()
        clean = cases.build(f"linear {kind} {rows} rows")
        [expected] = asyncio.run(run_case(backend, clean)).values()
        assert not np.isfinite(found[bad]).any()
        others = [row for row in range(rows) if row != bad]
        assert np.array_equal(found[others], expected[others])


@pytest.mark.parametrize("state", ["q", "new_k", "new_v"])
@pytest.mark.parametrize("name", ["attention decode", "attention long decode", "attention prefill"])
def test_attention_of_what_is_no_number_is_none(backend: CpuBackend, name: str, state: str) -> None:
    case = cases.build(name)
    case.states[state][0, 3] = np.nan
    found = asyncio.run(run_case(backend, case))
    (attended,) = found.keys() - set(case.written)
    expected = case.expected()[attended]
    assert np.isnan(expected).any()
    assert np.array_equal(np.isnan(found[attended][: len(expected)]), np.isnan(expected))


@pytest.mark.parametrize("state", ["q", "new_k"])
def test_masses_of_a_row_that_is_no_number_are_none_and_those_of_others_stay(backend: CpuBackend, state: str) -> None:
    clean, broken = (mass_cases.build("attention batch") for _ in range(2))
    step = reference.unpack(clean.program, clean.block)
    # The third one chose the first layer, whose queries are ``q``; its key is one of a page of numbers.
    broken.states[state][step["mass_rows"][2], 3] = np.nan
    expected, found = (asyncio.run(run_case(backend, case))[MASSES][0] for case in (clean, broken))
    own = slice(*step["mass_starts"][2:4])
    assert np.isnan(found[own]).all()
    others = np.delete(np.arange(step["mass_starts"][4]), own)
    assert np.array_equal(found[others], expected[others])


@pytest.mark.parametrize("name", mass_cases.NAMES)
def test_observed_attention_agrees_with_the_reference_and_changes_nothing(backend: CpuBackend, name: str) -> None:
    case = mass_cases.build(name)
    found, plain = asyncio.run(run_case(backend, case)), asyncio.run(run_case(backend, cases.build(name)))
    expected = case.expected()
    found[MASSES] = found[MASSES][:, : expected[MASSES].size]
    for output in expected:
        assert_close(found[output], expected[output], case)
    (attended,) = plain.keys() - set(case.written)
    assert found[attended].tobytes() == plain[attended].tobytes()
