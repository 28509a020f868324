"""What every open device is made of, whatever its API: the session, the loader, the compiler, and how they are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pie_edge.backend import WeightSource
from pie_edge.backends.shared.region import Region
from pie_edge.backends.shared.weights import Weight
from pie_edge.errors import DeviceLost
from pie_edge.program.ops import Program, Value


class OpenDevice:
    """The part of ``device_backend.Live`` that the APIs have in common. Each one makes the five, of its own kinds."""

    facts: Any
    session: Any
    tuning: Any
    loader: Any
    compiler: Any
    closed = False

    @property
    def name(self) -> str:
        return str(self.facts.name)

    @property
    def software(self) -> bool:
        return bool(self.facts.software)

    @property
    def memory_limit(self) -> int:
        return int(self.session.memory.limit)

    @property
    def odd_bits(self) -> bool:
        return bool(self.tuning.odd_bits)

    def footprint(
        self, buffers: Sequence[int], weights: Sequence[Value], largest: Program | None, count: int, memory: int
    ) -> int:
        made = [*buffers, *self.loader.buffer_sizes(weights)]
        if largest is not None:
            made += [self.compiler.arena_bytes(largest), *self.compiler.own_bytes(largest) * count]
        return int(self.session.settled(memory) + sum(map(self.session.memory.rounded, made)))

    def expect(self, weights: Sequence[Value], largest: Program) -> None:
        self.loader.expect(weights)
        self.compiler.reserve(largest)

    def free(self, region: Region[Any]) -> None:
        self.session.free(region.buffer)

    def load(self, value: Value, source: WeightSource) -> Weight:
        weight: Weight = self.loader.load(value, source)
        return weight

    def unload(self, weight: Weight) -> None:
        self.loader.free(weight)

    def compile(self, program: Program, states: Mapping[str, Region[Any]], weights: Mapping[str, Weight]) -> Any:
        return self.compiler.compile(program, states, weights)

    def reached(self) -> int:
        return int(self.session.timeline.reached())

    def drain(self) -> None:
        """Wait until nothing runs any more, for whatever reason."""
        with suppress(DeviceLost):
            self.session.timeline.drain()
