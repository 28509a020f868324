"""A step as one graph, of the model's Program and its epilogue's: what it costs and gives, and when such graphs come and go."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import together
from pie_edge.control.batch import CHECKED_EVERY
from pie_edge.errors import BackendError, DeviceLost, OutOfMemory
from pie_edge.program.ops import Role
from tests.backend import cases, cuda_emulated, openers
from tests.backend.device import put
from tests.backend.protocol_on_backend import doubling, opened, run
from tests.backend.test_engine import engine_on, expected, greedy
from tests.backend.test_run_ahead import settled

pytestmark = pytest.mark.skipif(cuda_emulated.ON_CARD, reason="counts and fails what the emulator does")
_LAUNCHES, _EVENTS, _UPLOADS, _DOWNLOADS = (
    "cuGraphLaunch",
    "cuEventRecord",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
)
_CAPTURES, _MADE, _GONE = "cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags", "cuGraphExecDestroy"
_INVALID, _NO_MEMORY, _ECC = 1, 2, 214


class Counts:
    """What the driver was called for since this was made."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._before = cuda_emulated.calls(*names)

    def now(self) -> list[int]:
        after = cuda_emulated.calls(*self._names)
        return [now - then for now, then in zip(after, self._before, strict=True)]


class Doublings:
    """Some executables that double, each what lies in a buffer of its own."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.made: list[Any] = []
        self.buffers: list[Any] = []

    async def make(self, count: int) -> Doublings:
        for _ in range(count):
            self.buffers.append(await self.backend.allocate(32, Role.STATE))
            self.made.append(await self.backend.compile(doubling(), {"x": self.buffers[-1]}))
        return self

    def start(self, number: int, which: Sequence[int] = (0, 1)) -> list[Any]:
        for place in which:
            self.backend.write(self.buffers[place], np.full(8, number + place, np.float32).tobytes())
        return list(self.backend.run_together([(self.made[place], {}) for place in which]))

    async def check(self, tickets: Sequence[Any], number: int, which: Sequence[int] = (0, 1)) -> None:
        for place, ticket in zip(which, tickets, strict=True):
            (found,) = (await self.backend.read(ticket)).values()
            assert found.tolist() == [2.0 * (number + place)] * 8

    async def pass_by(self, number: int, which: Sequence[int] = (0, 1)) -> None:
        await self.check(self.start(number, which), number, which)


@pytest.mark.parametrize("streams", [1, 2])
def test_a_greedy_step_is_one_launch_and_one_event(streams: int) -> None:
    """Its copies are in the graph; a step that is looked at for numbers that are none has one more, and an event of its own."""
    prompts = [[3, 1, 4], [9, 2, 6, 5]][:streams]

    async def test() -> None:
        async with engine_on(cuda_emulated.opened()) as engine:
            for turn in range(3):
                counts, before = Counts(_LAUNCHES, _EVENTS, _UPLOADS, _DOWNLOADS, _CAPTURES), engine.statistics.steps
                spaces = [engine.open_space(f"{turn} {n}", 0) for n in range(streams)]
                answers = await asyncio.gather(*(greedy(s, p, 20) for s, p in zip(spaces, prompts, strict=True)))
                await settled(engine)
                assert answers == [expected(prompt, 20) for prompt in prompts]
            steps = engine.statistics.steps - before
            launches, events, uploads, downloads, captures = counts.now()
            assert (launches, uploads, captures) == (steps, 0, 0)
            assert 0 < events - steps <= downloads <= streams * (1 + 24 // CHECKED_EVERY)

    run(test)


def test_runs_that_come_again_are_one_launch_however_many_are_in_flight() -> None:
    async def test() -> None:
        async with opened(openers.cuda) as backend:
            doublings = await Doublings(backend).make(2)
            found = []
            for turn in range(3):
                counts = Counts(_LAUNCHES, _EVENTS, _CAPTURES)
                tickets = [doublings.start(10 * turn + number) for number in range(4)]
                found.append(counts.now())
                for number, pair in enumerate(tickets):
                    await doublings.check(pair, 10 * turn + number)
            writes = 8  # an event each
            assert found == [[8, 8 + writes, 0], [4, 4 + writes, 4], [4, 4 + writes, 0]]

    run(test)


def test_what_is_on_its_way_keeps_its_slots_also_where_nothing_is_read() -> None:
    async def test() -> None:
        async with opened(openers.cuda) as backend:
            case = cases.build("store of a linear")
            buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
            for value in case.program.by_role(Role.WEIGHT):
                buffers[value.name] = await backend.load(value, case.sources[value.name])
            silent = [await backend.compile(case.program, buffers) for _ in range(2)]
            runs = [(one, {"step": case.block}) for one in silent]
            for _ in range(2):  # the second is captured
                backend.run_together(runs)
            assert [len(one.recorded.slots) for one in silent] == [1, 1]
            with cuda_emulated.emulated(lag=20):
                for _ in range(2):
                    backend.run_together(runs)
            assert [len(one.recorded.slots) for one in silent] == [2, 2]

    run(test)


def test_the_graph_of_two_goes_with_either() -> None:
    async def test() -> None:
        async with opened(openers.cuda) as backend:
            doublings = await Doublings(backend).make(3)
            for which in ((0, 1), (0, 1), (1, 2), (1, 2)):
                await doublings.pass_by(5, which)
            counts = Counts(_GONE)
            del doublings.made[0]
            gc.collect()
            await backend.allocate(32, Role.STATE)  # what was given back goes before there is more
            assert counts.now() == [2]  # its own, and that of the two
            counts = Counts(_LAUNCHES)
            doublings.made.insert(0, None)
            await doublings.pass_by(7, (1, 2))
            assert counts.now() == [1]

    run(test)


def test_what_was_used_last_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "MOST", 2)

    async def test() -> None:
        async with opened(openers.cuda) as backend:
            doublings = await Doublings(backend).make(3)
            pairs = [(0, 1), (1, 2), (0, 2)]
            counts = Counts(_MADE)
            for which in (*pairs, *pairs):  # each is forgotten before it comes again
                await doublings.pass_by(5, which)
            assert counts.now() == [0]
            counts = Counts(_MADE, _GONE)
            for which in (pairs[0], pairs[0], pairs[1], pairs[1], pairs[0], pairs[2], pairs[2], pairs[0]):
                await doublings.pass_by(6, which)
            await backend.allocate(32, Role.STATE)
            assert counts.now() == [3, 1]

    run(test)


def test_a_program_that_comes_twice_in_one_go_runs_twice() -> None:
    async def test() -> None:
        async with opened(openers.cuda) as backend:
            doublings = await Doublings(backend).make(1)
            for number in range(3):
                await doublings.pass_by(number, (0, 0))

    run(test)


def test_without_memory_for_a_graph_runs_go_one_after_the_other_and_it_is_tried_again() -> None:
    async def test() -> None:
        async with opened(openers.cuda) as backend:
            doublings = await Doublings(backend).make(2)
            await doublings.pass_by(1)
            cuda_emulated.fail(_MADE, _NO_MEMORY)
            found = []
            for number in range(2, 5):
                counts = Counts(_LAUNCHES)
                await doublings.pass_by(number)
                found += counts.now()
            assert found == [2, 2, 1]

    run(test)


@pytest.mark.parametrize("name", ["cuLaunchKernel", _UPLOADS.replace("HtoD", "DtoH"), _MADE])
def test_a_capture_that_fails_leaves_nothing_behind(name: str) -> None:
    async def test() -> None:
        async with opened(openers.cuda) as backend:
            doublings = await Doublings(backend).make(2)
            await doublings.pass_by(1)
            left = ("cuStreamCreate", "cuStreamEndCapture", "cuGraphDestroy", "cuStreamDestroy_v2")
            counts = Counts(*left)
            cuda_emulated.fail(name, _INVALID)
            with pytest.raises(BackendError, match="INVALID_VALUE") as raised:
                doublings.start(2)
            assert not isinstance(raised.value, DeviceLost)
            assert counts.now() == [1, 1, 1, 1]
            for number in range(3):
                await doublings.pass_by(number)

    run(test)


def test_a_launch_that_there_is_no_memory_for_fails_alone() -> None:
    async def test() -> None:
        async with opened(openers.cuda) as backend:
            doublings = await Doublings(backend).make(2)
            for number in range(2):
                await doublings.pass_by(number)
            cuda_emulated.fail(_LAUNCHES, _NO_MEMORY)
            with pytest.raises(OutOfMemory, match=r"run double and double.*the card has \d+\.\d MiB left"):
                doublings.start(2)
            await doublings.pass_by(3)

    run(test)


def test_both_are_told_what_the_card_was_lost_by() -> None:
    async def test() -> None:
        async with opened(openers.cuda) as backend:
            doublings = await Doublings(backend).make(2)
            for number in range(2):
                await doublings.pass_by(number)
            cuda_emulated.break_device(_ECC)
            for ticket in backend.run_together([(one, {}) for one in doublings.made]):
                with pytest.raises(DeviceLost, match="ECC_UNCORRECTABLE"):
                    await asyncio.wait_for(backend.read(ticket), 5)

    try:
        run(test)
    finally:
        cuda_emulated.mend()
