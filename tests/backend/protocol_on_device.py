"""The Backend protocol on any device of a graphics API, beyond what every backend promises: what is compiled and loaded in
threads, memory that is given back, splitting, and a device that is lost. A test module imports all of this beside the fixtures
``open_backend`` and ``lose``."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np
import pytest

from pie_edge.backends.shared import first_step
from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.selftest import MadeWeight
from pie_edge.backends.shared.weights import Matrix
from pie_edge.errors import DeviceLost
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType, Encoding
from pie_edge.program.ops import Role
from pie_edge.program.trace import Trace
from tests.backend import cases, device_cases
from tests.backend.device import assert_close, fetch, put, run_case
from tests.backend.openers import Opening
from tests.backend.protocol_on_backend import *  # noqa: F403
from tests.backend.protocol_on_backend import doubling, opened, run

FOURS = Affine(4, 32, DType.F16, None)
Losing = Callable[[Any], AbstractContextManager[None]]
"""Within it the device of this backend is lost to whoever runs or downloads; one that is opened instead works."""


def test_executables_that_nobody_has_any_more_give_their_memory_back(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            buffer, session = await put(backend, np.ones(8, np.float32)), backend._live.session
            kept = await backend.compile(doubling(), {"x": buffer})
            await backend.read(backend.run(kept, {}))
            used = session.memory.used
            for _ in range(5):
                executable = await backend.compile(doubling(), {"x": buffer})
                await backend.read(backend.run(executable, {}))
                assert session.memory.used > used
                del executable
            async with asyncio.timeout(30):
                while session.memory.used > used:
                    # The thread that compiled may hold the last one for a moment longer.
                    await asyncio.sleep(0.001)
                    session.collect()
            assert session.memory.used == used

    run(test)


def test_closing_waits_for_what_a_cancelled_compilation_still_does(
    open_backend: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would work on for a device that is no more, and crash."""
    started, over = threading.Event(), threading.Event()

    async def test() -> None:
        async with opened(open_backend) as backend:
            buffer, compiler = await put(backend, np.ones(8, np.float32)), backend._live.compiler
            plain = compiler.compile

            def slowly(*arguments: Any) -> Any:
                started.set()
                time.sleep(0.3)
                assert not backend._live.closed
                found = plain(*arguments)
                over.set()
                return found

            monkeypatch.setattr(compiler, "compile", slowly)
            compiling = asyncio.create_task(backend.compile(doubling(), {"x": buffer}))
            while not started.is_set():
                await asyncio.sleep(0.001)
            compiling.cancel()
            await backend.close()
            assert over.is_set()
            with pytest.raises(asyncio.CancelledError):
                await compiling

    run(test)


def test_a_load_that_is_given_up_ends_early_and_gives_back_what_it_took(open_backend: Opening) -> None:
    asked: list[int] = []

    async def test() -> None:
        loop, going = asyncio.get_running_loop(), threading.Event()

        class Long(MadeWeight):
            def planes(self, first: int, count: int) -> Mapping[str, Any]:
                asked.append(first)
                loop.call_soon_threadsafe(loading.cancel)
                loop.call_soon_threadsafe(loop.call_later, 0.2, going.set)
                assert going.wait(30)
                return super().planes(first, count)

        async with opened(open_backend) as backend:
            session = backend._live.session
            used = session.settled()
            value = Trace("weight").weight("w", (4096, 1024), FOURS)
            loading = asyncio.create_task(backend.load(value, Long(value.shape, FOURS, 1)))
            with pytest.raises(asyncio.CancelledError):
                await loading
            assert asked == [0]
            assert session.settled() == used

    run(test)


@pytest.mark.parametrize(("seconds", "notes"), [(0.0, 2), (60.0, 0)])
def test_a_first_step_that_takes_long_says_why_once(
    open_backend: Opening, monkeypatch: pytest.MonkeyPatch, seconds: float, notes: int
) -> None:
    """The driver plays, for a moment, that it compiles while it takes the step."""
    said: list[tuple[int, int, str]] = []

    async def test() -> None:
        async with opened(open_backend) as backend:
            backend._first = first_step.FirstSteps(lambda *told: said.append(told))
            buffer = await put(backend, np.ones(8, np.float32))
            for _ in range(2):
                executable = await backend.compile(doubling(), {"x": buffer})
                plain = executable.recorded.run

                def slowly(inputs: Any, plain: Any = plain) -> Any:
                    time.sleep(0.1)
                    return plain(inputs)

                monkeypatch.setattr(executable.recorded, "run", slowly)
                for _ in range(2):
                    await backend.read(backend.run(executable, {}))

    monkeypatch.setattr(first_step, "LONG_SECONDS", seconds)
    run(test)
    assert [told[:2] for told in said] == [(0, 0), (1, 1)][:notes]
    assert all("compiles kernels as they first run" in what for _, _, what in said)


def test_five_and_six_bits_and_tables_are_taken_where_they_stay_so_narrow(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            for bits in (5, 6):
                assert backend.limits.supports(Affine(bits, 16, DType.F32, 32)) is backend._live.tuning.odd_bits
            assert backend.limits.supports(cases.MXFP4) is backend._live.tuning.odd_bits

    run(test)


@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("encoding", [Dense(DType.F32), Affine(4, 32, DType.F16, None)], ids=str)
def test_biased_products_of_the_same_rows_run_together(open_backend: Opening, rows: int, encoding: Encoding) -> None:
    """Of other heights each, so that a bias that begins elsewhere shows; and a gate with a bias is none of the fused unit's."""
    case = cases.Case(Trace("biased"), np.random.default_rng(5))
    case.step(*cases.rows_step(rows, rows))
    x = case.row_state("x", case.normal(rows, 64))
    case.tolerance = 1e-4  # a bias that begins elsewhere is off by more than that
    made = []
    for name, height in (("q", 70), ("k", 9), ("v", 33)):
        weight, bias = case.weight(name, (height, 64), encoding), case.weight(f"{name}.b", (height,), Dense(DType.F32))
        made.append(ops.linear(case.trace, x, weight, bias))
    halves = [
        ops.linear(case.trace, x, case.weight(n, (8, 64), encoding), case.weight(f"{n}.b", (8,), Dense(DType.F32)))
        for n in ("gate", "up")
    ]
    case.results = (*made, ops.glu(case.trace, *halves, act="silu"))
    kinds = [op.kind for op in fuse(case.program, lambda names: True).ops]
    assert kinds == ["linear_group", "linear_group", "glu"]

    async def test() -> None:
        async with opened(open_backend) as backend:
            found = await run_case(backend, case)
            for name, wanted in case.expected().items():
                assert_close(found[name], wanted, case)

    run(test)


def test_keys_and_values_are_halves_unless_the_exact_mode_is_asked_for(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend, opened(open_backend, exact=True) as exact:
            assert backend.limits.kv_dtype is DType.F16
            assert exact.limits.kv_dtype is DType.F32

    run(test)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("linear of a vocabulary", 1 << 20),
        ("linear of a dense vocabulary", 1 << 20),
        ("expert_linear of large matrices 1 rows", 1 << 20),
        ("expert_linear of large matrices 9 rows", 1 << 20),
        ("embed affine8g16-f32-z128", 4096),
    ],
)
def test_weights_beyond_the_binding_limit_are_split_and_give_the_same(
    open_backend: Opening, name: str, most: int
) -> None:
    async def test() -> None:
        async with opened(open_backend, max_binding=most) as backend:
            case = device_cases.build(name)
            (value,) = case.program.by_role(Role.WEIGHT)
            loaded = await backend.load(value, case.sources[value.name])
            assert isinstance(loaded.weight, Matrix)
            assert len(loaded.weight.parts) > 1
            assert all(part.region.nbytes <= most for part in loaded.weight.parts)
            ends = [part.first + part.rows for part in loaded.weight.parts]
            assert [part.first for part in loaded.weight.parts] == [0, *ends[:-1]]
            found = await run_case(backend, case)
            for output, expected in case.expected().items():
                assert_close(found[output], expected, case)

    run(test)


def test_outputs_beyond_the_binding_limit_are_computed_in_pieces(open_backend: Opening) -> None:
    async def test() -> None:
        case = cases.build("linear 576 61 rows")
        async with opened(open_backend, max_binding=1 << 18) as backend:
            for output, found in (await run_case(backend, case)).items():
                assert_close(found, case.expected()[output], case)

    run(test)


def test_what_ran_on_a_closed_backend_is_not_read(open_backend: Opening) -> None:
    async def test() -> None:
        backend = await asyncio.to_thread(open_backend)
        buffer = await backend.allocate(32, Role.STATE)
        ticket = backend.run(await backend.compile(doubling(), {"x": buffer}), {})
        await backend.close()
        with pytest.raises(DeviceLost, match="closed"):
            await backend.read(ticket)

    run(test)


def test_a_lost_device_fails_what_ran_and_serves_what_comes_next(open_backend: Opening, lose: Losing) -> None:
    """It is opened again with all its weights; states are zeros. One whose errors stick to the process stays lost."""

    async def test() -> None:
        async with opened(open_backend) as backend:
            case = cases.build("linear affine4g32-f16-min 7 rows")
            buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
            for value in case.program.by_role(Role.WEIGHT):
                buffers[value.name] = await backend.load(value, case.sources[value.name])
            executable, inputs = await backend.compile(case.program, buffers), {"step": case.block}
            await backend.read(backend.run(executable, inputs))
            before = backend.run(executable, inputs)
            with lose(backend):
                lost = backend.run(executable, inputs)
                download = backend.download([(buffers["x"], 0, 16)])
                for ticket in (lost, download):
                    with pytest.raises(DeviceLost, match="lost"):
                        await asyncio.wait_for(backend.read(ticket), 5)
                with suppress(DeviceLost):  # The device may have been done with it.
                    await asyncio.wait_for(backend.read(before), 5)
            if backend.limits.sticky:
                with pytest.raises(DeviceLost, match="lost"):
                    await asyncio.wait_for(backend.read(backend.run(executable, inputs)), 5)
                return
            assert not (await fetch(backend, buffers["x"], case.states["x"])).any()
            backend.write(buffers["x"], case.states["x"].tobytes())
            outputs = await backend.read(backend.run(executable, inputs))
            (value,) = case.results
            found = np.frombuffer(outputs[value.name], np.float32).reshape(value.shape)
            assert_close(found, case.expected()[value.name], case)

    run(test)
