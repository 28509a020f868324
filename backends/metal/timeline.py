"""Work in order on one thread, which alone builds MLX's graphs, and another one that waits for what they give.

MLX's streams belong to a thread, and an array can only be scheduled by the thread whose stream it is on. A run's graph is built
while the run before it still computes, and given to the device when that one has ended: as long as a kernel that reads an
array is on its way MLX takes the array for being in use, and an op that writes it would copy all of it.
"""

from __future__ import annotations

import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import mlx.core as mx

from pie_edge.backend import BytesLike
from pie_edge.backends.metal.failures import is_the_devices, translated
from pie_edge.backends.shared.work_queue import Ticket, WorkQueue
from pie_edge.errors import BackendUnavailable, DeviceLost, PieError

T = TypeVar("T")
Outputs = dict[str, memoryview]
_TITLE = "Metal"


@dataclass(eq=False)
class Flight:
    """Something enqueued: done when the timeline has reached its number."""

    value: int
    outputs: Outputs | None = None
    error: Exception | None = None

    def result(self) -> Outputs:
        """Of a flight that is done. Raises what went wrong."""
        if self.error is not None:
            raise self.error
        return self.outputs or {}


@dataclass
class Graph:
    """What a run computes, not yet scheduled: all that changes, and what its outputs are once that is there."""

    arrays: tuple[mx.array, ...]
    collect: Callable[[], Outputs]

    def finish(self) -> Outputs:
        """Wait for it, and let go of the arrays, also where it fails: the next run may be given their memory."""
        arrays, collect = self.arrays, self.collect
        self.drop()
        mx.eval(*arrays)
        del arrays
        return collect()

    def drop(self) -> None:
        """Nobody will ask for what it computes."""
        self.arrays, self.collect = (), dict


class Recorded(ABC):
    """A compiled Program, whose runs the timeline does."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    @abstractmethod
    def run(self, given: Mapping[str, BytesLike]) -> Flight:
        """Raises ValueError for inputs that aren't the Program's, DeviceLost once closed."""

    def run_slowly(self, given: Mapping[str, BytesLike], between: Callable[[int, int], None]) -> Flight:
        """As ``run``, but waits for its end, which ``between`` hears of: a graph is one piece of work."""
        flight = self.run(given)
        self._timeline.drain()
        between(1, 1)
        return flight

    def outputs(self, flight: Flight) -> Outputs:
        return flight.result()


class Timeline:
    def __init__(self, enter: Callable[[], None]) -> None:
        """``enter`` is the building thread's first work. Raises BackendUnavailable if it fails."""
        self._building = WorkQueue("pie-edge-metal-0", _TITLE)
        self._landing = WorkQueue("pie-edge-metal-1", _TITLE)
        self._lock = threading.Lock()
        self._enqueued = self._reached = 0
        self._tickets: dict[int, Ticket] = {}
        self._latest: Ticket | None = None
        """Of what was scheduled last; only the building thread looks."""
        self.failed: PieError | None = None
        """What a run ended with that nothing may run after."""
        self.start: Callable[..., None] = mx.async_eval
        """Gives arrays to the device."""
        try:
            self.call(enter)
        except Exception as error:
            self.close()
            raise BackendUnavailable(
                f"MLX can't use its device: {type(error).__name__}: {error}; `pie-edge doctor` tells what it finds"
            ) from error

    def run(self, build: Callable[[], Graph]) -> Flight:
        """Enqueue a run. Raises DeviceLost once closed."""
        return self._enqueue(lambda flight: self._schedule(flight, build))

    def read(self, collect: Callable[[], Outputs]) -> Flight:
        """Enqueue looking at arrays, once all that was enqueued before has ended."""
        return self._enqueue(lambda flight: self._look(flight, collect))

    def call(self, work: Callable[[], T]) -> T:
        """What ``work`` gives on the building thread, all that was enqueued before having ended. Blocks. Raises its error."""
        done = threading.Event()
        found: list[T] = []
        raised: list[BaseException] = []

        def job() -> None:
            try:
                self._settle()
                found.append(work())
            except BaseException as error:
                _let_go(error)
                raised.append(error)
            finally:
                done.set()

        self._building.put(job)
        done.wait()
        if raised:
            raise raised[0]
        return found[0]

    def do(self, work: Callable[[], None]) -> None:
        """Enqueue something that gives nothing: nothing once closed. If it fails, so does all that comes after."""

        def job() -> None:
            self._settle()
            try:
                work()
            except Exception as error:
                self.failed = self.failed or translated(error)

        with suppress(DeviceLost):
            self._building.put(job)

    def reached(self) -> int:
        return self._reached

    async def wait(self, value: int) -> None:
        ticket = self._tickets.get(value)
        if ticket is not None and self._reached < value:
            await ticket.wait()

    def drain(self) -> None:
        """Block until all that was enqueued has ended."""
        self.call(lambda: None)

    def close(self) -> None:
        self._building.close()
        self._landing.close()

    def _enqueue(self, job: Callable[[Flight], None]) -> Flight:
        with self._lock:
            self._enqueued += 1
            flight = Flight(self._enqueued)
            self._tickets[flight.value] = Ticket()
            self._building.put(lambda: job(flight))
        return flight

    def _settle(self) -> None:
        """Wait for what was scheduled."""
        latest, self._latest = self._latest, None
        if latest is not None:
            latest.join()

    def _schedule(self, flight: Flight, build: Callable[[], Graph]) -> None:
        try:
            graph = self._built(build)
        except Exception as error:
            self._settle()
            self._fail(flight, error)
            return
        try:
            self.start(*graph.arrays)
        except Exception as error:
            graph.drop()
            self._fail(flight, error, begun=True)
            return
        self._latest = self._landing.put(lambda: self._await(flight, graph))

    def _built(self, build: Callable[[], Graph]) -> Graph:
        """The run's graph, once what came before has ended."""
        self._check()
        graph = build()
        try:
            self._settle()
            self._check()
        except BaseException:
            graph.drop()
            raise
        return graph

    def _await(self, flight: Flight, graph: Graph) -> None:
        try:
            self._land(flight, graph.finish())
        except Exception as error:
            self._fail(flight, error, begun=True)

    def _look(self, flight: Flight, collect: Callable[[], Outputs]) -> None:
        try:
            self._settle()
            self._check()
            self._land(flight, collect())
        except Exception as error:
            self._fail(flight, error)

    def _check(self) -> None:
        if self.failed is not None:
            raise self.failed

    def _fail(self, flight: Flight, error: Exception, begun: bool = False) -> None:
        """What isn't the device's is told as it is, and ends this flight alone: a step that can't be built changes no state. Once
        it has ``begun``, states are half changed, or wait for what won't be: nothing can run after it, whatever went wrong."""
        if error is not self.failed:
            _let_go(error)
        if begun or is_the_devices(error):
            error = translated(error)
            self.failed = self.failed or error
        self._land(flight, error=error)

    def _land(self, flight: Flight, outputs: Outputs | None = None, error: Exception | None = None) -> None:
        flight.outputs, flight.error = outputs, error
        self._reached = flight.value
        self._tickets.pop(flight.value).finish(None, None)


def _let_go(error: BaseException) -> None:
    """Of the arrays in the frames that the error went through: who holds it would hold a whole graph, with weights and states.
    Only of an error that nobody else has yet: it may have gone through coroutines that go on."""
    traceback.clear_frames(error.__traceback__)
