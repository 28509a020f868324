"""Where a decode step on a Vulkan device goes: the host's stages, and each kernel against the memory's speed."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bandwidth import read_rate
from benchmarks.engines import Stream, open_engine
from benchmarks.trace import Tracer, own_seconds

STAGES = {
    "pie_edge.control.engine:Engine.enqueue": "plan: take the call, check its epilogue",
    "pie_edge.control.batch:build": "plan: build the batch",
    "pie_edge.program.step:StepLayout.pack": "pack: the step's block",
    "pie_edge.backends.shared.inputs:Inputs.fill": "pack: into the slot's mapped memory",
    "pie_edge.backends.vulkan.executable:Recorded._step": "pack: choose a recording, its grids",
    "pie_edge.backends.vulkan.executable:Recorded.run": "submit: choose a slot",
    "pie_edge.backends.vulkan.timeline:Timeline.submit": "submit: one vkQueueSubmit for model and epilogue",
    "pie_edge.backends.vulkan.executable:Recorded.outputs": "read: outputs from mapped memory",
}
REST, OWN = "the rest: asyncio, queues, tasks", "Python's share: all of these"
WAIT = "wait: the device, and waking up"
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8]
_MANY = 64
"""Command buffers that are never in flight all at once."""


Stages = dict[str, float]


def breakdown(model: Path, tokens: int, rounds: int) -> tuple[Stages, Stages]:
    """Microseconds a step by stage, of the round with the least of Python's: as it is, and beside a device that has nothing to
    do. Stages and Python's share are processor time of the event loop's thread, so that others don't count; clocks add about
    1 µs a stage.

    A software device runs where Python does, and leaves it cold caches and a share of a core, which costs a multiple. A card
    does not: what it sees of Python is the second, in which all is as always but that command buffers are empty.
    """
    return asyncio.run(_breakdown(model, tokens, rounds))


async def _breakdown(model: Path, tokens: int, rounds: int) -> tuple[Stages, Stages]:
    async with open_engine(model, "vulkan") as opened:
        await _decode(opened.engine, tokens)
        tracer = Tracer(time.thread_time)
        tracer.wrap(STAGES)
        busy = await _least(opened.engine, tracer, tokens, rounds)
        with idle_device(opened.backend):
            return busy, await _least(opened.engine, tracer, tokens, rounds)


async def _least(engine: Any, tracer: Tracer, tokens: int, rounds: int) -> Stages:
    best: Stages = {}
    for _ in range(rounds):
        tracer.spans.clear()
        whole, own = await _decode(engine, tokens)
        found = {title: own_seconds(tracer.spans).get(title, 0.0) for title in STAGES.values()}
        found |= {REST: own - sum(found.values()), OWN: own, WAIT: whole - own, "a step": whole}
        found = {title: 1e6 * seconds / tokens for title, seconds in found.items()}
        best = min(best or found, found, key=lambda stages: stages[OWN])
    return best


@contextmanager
def idle_device(backend: Any) -> Iterator[None]:
    """Within it the device is given empty command buffers: tokens are what they were, or nothing."""
    session = backend._live.session
    empty = itertools.cycle([session.commands.begin().end() for _ in range(_MANY)])
    submit = session.timeline.submit
    session.timeline.drain()
    session.timeline.submit = lambda commands, hold=False: submit(next(empty), hold=hold)
    try:
        yield
    finally:
        session.timeline.submit = submit
        session.timeline.drain()


async def _decode(engine: Any, tokens: int) -> tuple[float, float]:
    """Seconds of so many steps, and of this thread's processor time."""
    stream = Stream(engine.open_space("steps", 0), len(PROMPT) + tokens + 1)
    first = await stream.next_token(PROMPT)
    start, spent = time.perf_counter(), time.thread_time()
    await stream.generate([first], tokens)
    seconds = time.perf_counter() - start, time.thread_time() - spent
    stream.close()
    return seconds


@dataclass
class _Cost:
    launches: int = 0
    seconds: float = 0.0
    weights: int = 0


def kernels(model: Path) -> tuple[float, list[list[str]]]:
    """Bytes a second that one thread reads, and a row for each kernel of a decode step, the costliest first."""
    costs = asyncio.run(_kernels(model))
    rate = read_rate(1)
    rows = []
    for name, cost in sorted(costs.items(), key=lambda item: -item[1].seconds):
        speed = cost.weights / cost.seconds
        of_limit = [f"{cost.weights / 1e6:.1f}", f"{speed / 1e9:.2f}", f"{speed / rate:.2f}"]
        rows.append([name, str(cost.launches), f"{1e6 * cost.seconds:.0f}", *(of_limit if cost.weights else "–––")])
    return rate, rows


async def _kernels(model: Path) -> dict[str, _Cost]:
    """Each launch of the last model pass by itself, on a software device in processor time of all threads."""
    from pie_edge.backends.vulkan.executable import Recorded

    async with open_engine(model, "vulkan") as opened:
        device: Any = opened.backend
        seen: list[Any] = []
        run: Callable[..., Any] = Recorded.run
        Recorded.run = lambda self, inputs: (seen.append(self), run(self, inputs))[1]  # type: ignore[method-assign,assign]
        await _decode(opened.engine, 2)
        recorded = next(found for found in reversed(seen) if len(_launches(found)) > 100)
        clock = time.process_time if device.limits.software else time.perf_counter
        costs: dict[str, _Cost] = {}
        for bound, indirect in _launches(recorded):
            launch = bound.launch
            cost = costs.setdefault(str(launch.kernel), _Cost())
            cost.launches += 1
            cost.seconds += min(_time(device._live.session, bound, indirect, clock) for _ in range(3))
            if launch.kernel.module.name.startswith("linear"):
                cost.weights += launch.bindings[0].region.nbytes
    return costs


def _launches(recorded: Any) -> list[tuple[Any, Any]]:
    """The launches of a decode of one sequence, with the place of each one's grid."""
    recording = next(iter(recorded._recordings.values()))
    first = recorded._wiring.inputs.block.nbytes
    places = {grid: recorded._wiring.inbox.part(first + 16 * i, 12) for i, grid in enumerate(recording.grids)}
    return [(bound, places.get(bound.launch.grid)) for bound in recording.bound.items]


def _time(session: Any, bound: Any, indirect: Any, clock: Callable[[], float], repeats: int = 4) -> float:
    """The grids and inputs are those of the last step."""
    commands = session.commands.begin()
    for _ in range(repeats):
        commands.dispatch(bound, indirect)
        commands.barrier()
    handle = commands.end()
    start = clock()
    session.timeline.wait(session.timeline.submit(handle))
    seconds = (clock() - start) / repeats
    session.commands.free(handle)
    return seconds
