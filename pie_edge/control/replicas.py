"""One model on several devices: an engine on each, and the choice of one for every space.

A space is on no engine until its first pass, whose tokens say where it does best, or until it takes what another one left on
some engine. From then on it stays there, and the spaces that it is the parent of come to it: what inferlets of a family hand
each other are pages.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from pie_edge.control import snapshot
from pie_edge.control.carrier import Submitter
from pie_edge.control.cells import Token, known_part
from pie_edge.control.engine import Engine
from pie_edge.control.handles import Handles
from pie_edge.control.prefix import chained
from pie_edge.control.space import Space
from pie_edge.control.statistics import Timeline
from pie_edge.errors import DeviceLost, PieError

WORTH = 64
"""How many tokens of a prompt one more inferlet on a device weighs: a prefix that both could have isn't worth a queue."""


class Replicas:
    """Made of engines that were opened alike. ``close`` closes all. What an Engine tells of its model is the first one's."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = tuple(engines)
        self.facts = engines[0].facts
        self.abilities = replace(
            engines[0].abilities,
            longest=min(engine.abilities.longest for engine in engines),
            observable_layers=min(engine.abilities.observable_layers for engine in engines),
        )
        self.page_states = engines[0].page_states
        self.slot_states = engines[0].slot_states
        self.less = [f"{engine.device_name}: {sentence}" for engine in engines for sentence in engine.less]
        self._numbers = itertools.count(1)
        self._unsettled: set[Space] = set()
        for engine in engines:
            engine.engines = self.engines

    @property
    def lost(self) -> str:
        """Why all devices are given up; nothing while one serves."""
        reasons = [engine.lost for engine in self.engines]
        return "; ".join(reasons) if all(reasons) else ""

    def open_space(self, name: str, seed: int, parent: Space | None = None) -> Space:
        """``parent`` is whose child it is for: it goes where that is, if that is anywhere."""
        usual = next((engine for engine in self.engines if not engine.lost), self.engines[0])
        space = Space(name, seed, next(self._numbers), usual, self._forget, router=self._route)
        self._unsettled.add(space)
        if parent is not None and parent.router is None:
            space.settle(home=parent.engine)
        return space

    def handles(self, space: Space, top_k: int) -> Handles:
        return self._of(space).handles(space, top_k)

    def save_context(self, space: Space, working_set: int, length: int) -> Coroutine[Any, Any, snapshot.Content]:
        space.settle()
        return self._of(space).save_context(space, working_set, length)

    def load_context(self, space: Space, working_set: int, content: snapshot.Content) -> None:
        space.settle(content.history)
        self._of(space).load_context(space, working_set, content)

    async def close(self) -> None:
        ended = await asyncio.gather(*(engine.close() for engine in self.engines), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    def _of(self, space: Space) -> Engine:
        return next(engine for engine in self.engines if engine is space.engine)

    def _route(self, space: Space, tokens: Sequence[Token], adapter: int, home: Submitter | None) -> None:
        """A Router."""
        found = next((engine for engine in self.engines if engine is home), None) or self._best(tokens, adapter)
        self._unsettled.discard(space)
        found.take(space)

    def _best(self, tokens: Sequence[Token], adapter: int) -> Engine:
        """Where the fewest of the tokens have to be computed, counting each inferlet that is there as some more."""
        serving = [engine for engine in self.engines if not engine.lost]
        if not serving:
            raise DeviceLost(f"{self.facts.name} is on {len(self.engines)} devices, and all are lost: {self.lost}")
        keys = chained(known_part(tokens), self.facts.page_size, adapter)

        def cost(engine: Engine) -> int:
            return WORTH * len(engine.spaces) - engine.prefixes.covered(keys) * self.facts.page_size

        return min(serving, key=cost)

    def _forget(self, space: Space, reason: PieError) -> None:
        """One that ended before it was anywhere."""
        self._unsettled.discard(space)


def follow(engines: Sequence[Engine], timeline: Timeline) -> None:
    """From now on what happens on them is written down there."""
    for number, engine in enumerate(engines):
        engine.statistics.timeline = timeline if len(engines) == 1 else _Tracks(timeline, number)


class _Tracks:
    """A Timeline whose tracks are those of one device."""

    def __init__(self, timeline: Timeline, number: int) -> None:
        self._timeline = timeline
        self._number = number

    def span(self, track: str, name: str, began: float, ended: float, key: int | None = None, **details: Any) -> None:
        self._timeline.span(f"{track} {self._number}", name, began, ended, key, **details)
