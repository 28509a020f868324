"""Runs that belong together, a model's and its epilogues', as one graph with their copies in and out: a launch is all that they
cost Python.

Such a graph is of what the runs consist of, slots included: it reads and writes their pinned memory. Slots of one number go
together, so that there are as many such graphs as steps are in flight. What comes once isn't worth capturing: a combination's
first run goes one after the other, and its second is captured.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_void_p
from functools import partial
from itertools import count

from pie_edge.backend import BytesLike
from pie_edge.backends.cuda import graphs
from pie_edge.backends.cuda.executable import PinnedSlot, Recorded, Step
from pie_edge.backends.cuda.session import Session
from pie_edge.backends.shared.slots import Flight
from pie_edge.errors import OutOfMemory

MOST = 32
"""Combinations that are remembered: two steps in flight, of sixteen kinds."""

Combination = tuple[Step, ...]
Kept = tuple[c_void_p, Callable[[], None]]
"""A graph, and what gives it back."""


class Together:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._launch = session.gpu.raw("cuGraphLaunch")
        self._graphs: dict[Combination, Kept | None] = {}
        """What was used last comes last; None for what ran once. They keep slots, and no executable."""
        self._known: weakref.WeakSet[Recorded] = weakref.WeakSet()
        """Executables that are told of when nobody has them any more."""

    def run(self, runs: Sequence[tuple[Recorded, Mapping[str, BytesLike]]]) -> list[Flight[PinnedSlot]]:
        """Enqueue these, in order. Raises as ``Recorded.run`` does."""
        recorded = [one for one, _ in runs]
        if len(runs) == 1 or len(set(recorded)) < len(runs):  # a slot is free until what it is for is enqueued
            return [one.run(given) for one, given in runs]
        number = next(number for number in count() if all(one.is_free(number) for one in recorded))
        steps = tuple(one.fill(one.slot(number), given) for one, given in runs)
        graph = self._graph_of(recorded, steps)
        if graph is None:
            return [one.launch(step) for one, step in zip(recorded, steps, strict=True)]
        timeline = self._session.timeline
        self._session.gpu.enter()
        with self._session.lock:
            timeline.checked(self._launch(graph, timeline.stream), f"run {' and '.join(one.name for one in recorded)}")
            value = timeline.mark()
        return [one.enqueued(step, value) for one, step in zip(recorded, steps, strict=True)]

    def _graph_of(self, recorded: Sequence[Recorded], steps: Combination) -> c_void_p | None:
        """None if they are to go one after the other."""
        if steps not in self._graphs:
            self._remember(recorded, steps)
            return None
        kept = self._graphs.pop(steps)
        if kept is None:
            self._session.collect()
            try:
                graph = graphs.captured(self._session.gpu, partial(_enqueue, recorded, steps))
            except OutOfMemory:  # the graphs of each are there
                return None
            kept = graph, self._session.keep(graph)
        self._graphs[steps] = kept
        return kept[0]

    def _remember(self, recorded: Sequence[Recorded], steps: Combination) -> None:
        for one in recorded:
            if one not in self._known:
                self._known.add(one)
                weakref.finalize(one, self._forget, one.slots).atexit = False
        self._graphs[steps] = None
        if len(self._graphs) > MOST:
            self._drop(next(iter(self._graphs)))

    def _forget(self, slots: Sequence[PinnedSlot]) -> None:
        """Whose executable nobody has any more."""
        for steps in list(self._graphs):
            if any(step.slot in slots for step in steps):
                self._drop(steps)

    def _drop(self, steps: Combination) -> None:
        kept = self._graphs.pop(steps, None)
        if kept is not None:
            kept[1]()


def _enqueue(recorded: Sequence[Recorded], steps: Combination, stream: c_void_p) -> None:
    for one, step in zip(recorded, steps, strict=True):
        one.enqueue(step, stream)
