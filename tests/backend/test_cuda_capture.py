"""Steps captured as graphs: which are captured when, and what is left where that fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from threading import Barrier, BrokenBarrierError
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda.backend import CudaBackend
from pie_edge.backends.cuda.launch import Kernel
from pie_edge.backends.cuda.session import Session
from pie_edge.backends.cuda.together import Together
from pie_edge.errors import BackendError, DeviceLost, OutOfMemory
from tests.backend import cuda_emulated
from tests.backend.device import put
from tests.backend.protocol_on_backend import doubling, run
from tests.backend.test_engine import expected, greedy
from tests.support.tiny import PAGE, open_tiny

pytestmark = pytest.mark.skipif(cuda_emulated.ON_CARD, reason="counts and fails what the emulator does")
_CAPTURES = "cuStreamBeginCapture_v2"
_NO_MEMORY, _CAPTURE_REFUSED = 2, 900


def captures() -> int:
    return cuda_emulated.calls(_CAPTURES)[0]


async def captured_over(backend: CudaBackend, prompt: list[int], count: int) -> int:
    """Captures of greedy steps after those that an engine of its own has made the backend ready for."""
    engine = await open_tiny(backend)
    try:
        space = engine.open_space("first", 0)
        await greedy(space, [1], 2)  # compiles what reads tokens out
        before = captures()
        assert await greedy(engine.open_space("growing", 0), prompt, count) == expected(prompt, count)
        return captures() - before
    finally:
        await engine.close()


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's Program and an epilogue's stay graphs of their own."""
    monkeypatch.setattr(Together, "run", lambda self, runs: [one.run(given) for one, given in runs])


@pytest.mark.usefixtures("apart")
def test_a_growing_context_runs_the_graphs_that_were_captured_when_it_was_compiled() -> None:
    """From one page to seven: a decode's grids name neither pages nor the longest sequence."""
    run(lambda: _grown(split=256, prompt=[3], count=6 * PAGE, more=0))


@pytest.mark.usefixtures("apart")
def test_a_context_longer_than_a_split_is_captured_again_when_it_has_twice_the_splits_only() -> None:
    """Splits of two pages, over 56 tokens: two of them from the 17th, and four from the 33rd."""
    run(lambda: _grown(split=2 * PAGE, prompt=[3], count=6 * PAGE, more=2))


async def _grown(split: int, prompt: list[int], count: int, more: int) -> None:
    backend = cuda_emulated.opened()
    tuning = replace(backend._live.tuning, split=split)
    await backend.close()
    assert await captured_over(cuda_emulated.opened(tuning=tuning), prompt, count) == more


@pytest.mark.parametrize("name", ["cuLaunchKernel", "cuGraphInstantiateWithFlags"])
def test_a_capture_that_fails_leaves_neither_the_thread_capturing_nor_its_graph(name: str) -> None:
    async def test() -> None:
        backend = cuda_emulated.opened()
        buffer = await put(backend, np.ones(8, np.float32))
        made = ("cuStreamCreate", "cuStreamEndCapture", "cuGraphDestroy", "cuStreamDestroy_v2")
        before = cuda_emulated.calls(*made)
        cuda_emulated.fail(name, 1)
        with pytest.raises(BackendError, match="INVALID_VALUE") as raised:
            await backend.compile(doubling(), {"x": buffer})
        assert not isinstance(raised.value, DeviceLost)
        assert [after - then for after, then in zip(cuda_emulated.calls(*made), before, strict=True)] == [1, 1, 1, 1]
        executable = await backend.compile(doubling(), {"x": buffer})
        await backend.read(backend.run(executable, {}))
        await backend.close()

    run(test)


def test_graphs_end_with_their_session_also_where_somebody_still_has_the_program() -> None:
    async def test() -> None:
        made = ("cuGraphInstantiateWithFlags", "cuGraphExecDestroy")
        before = cuda_emulated.calls(*made)
        backend = cuda_emulated.opened()
        buffer = await put(backend, np.ones(8, np.float32))
        kept = await backend.compile(doubling(), {"x": buffer})
        dropped = await backend.compile(doubling(), {"x": buffer})
        await backend.read(backend.run(dropped, {}))
        del dropped
        await backend.close()
        made_now, destroyed = (now - then for now, then in zip(cuda_emulated.calls(*made), before, strict=True))
        assert made_now == destroyed > 1
        del kept
        assert cuda_emulated.calls(made[1])[0] - before[1] == destroyed

    run(test)


def test_threads_that_want_the_same_kernels_load_them_once() -> None:
    async def test() -> None:
        together = Barrier(2)

        def compiled(*module: Any) -> bytes:
            with suppress(BrokenBarrierError):
                together.wait(timeout=5)  # both have found that it isn't there
            return cuda_emulated.ordinary(*module)

        backend = cuda_emulated.opened(compile_kernels=compiled)
        before = cuda_emulated.calls("cuModuleLoadData")[0]
        kernel = Kernel("norm.cu", "rms_norm")
        prepared = [asyncio.to_thread(backend._live.session.prepare, [kernel]) for _ in range(2)]
        await asyncio.gather(*prepared)
        assert cuda_emulated.calls("cuModuleLoadData")[0] - before == 1
        await backend.close()

    run(test)


def test_what_might_wait_is_refused_while_a_thread_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the stand-in, as by a driver: nothing that the backend captures comes to it."""
    enqueue, refused = Session.enqueue, []

    async def test() -> None:
        backend = cuda_emulated.opened()
        session = backend._live.session

        def also_waits(self: Session, *given: object) -> None:
            enqueue(self, *given)  # type: ignore[arg-type]
            for attempt in (lambda: session.pinned(64, "a test"), lambda: session.device_buffer(64, "a test")):
                with pytest.raises(BackendError, match=str(_CAPTURE_REFUSED)):
                    attempt()
                refused.append(attempt)

        monkeypatch.setattr(Session, "enqueue", also_waits)
        executable = await backend.compile(doubling(), {"x": await put(backend, np.ones(8, np.float32))})
        await backend.read(backend.run(executable, {}))
        await backend.close()

    run(test)
    assert refused


def test_a_step_that_the_driver_has_no_memory_for_fails_alone() -> None:
    async def test() -> None:
        backend = cuda_emulated.opened()
        executable = await backend.compile(doubling(), {"x": await put(backend, np.ones(8, np.float32))})
        cuda_emulated.fail("cuGraphLaunch", _NO_MEMORY)
        with pytest.raises(OutOfMemory, match=r"run .*OUT_OF_MEMORY.*the card has \d+\.\d MiB left"):
            backend.run(executable, {})
        await backend.read(backend.run(executable, {}))
        await backend.close()

    run(test)
