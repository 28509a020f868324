"""A generation, told as events while it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inferlet import session
from inferlet.generation import Generation
from parts import Logprobs, Parts
from sink import Sink


class Phase:
    """Of the answer ``number``. One that only ``thinks`` ends where text begins, and tells none."""

    def __init__(
        self, number: int, generation: Generation, parts: Parts, sink: Sink, *, scored: bool, thinks: bool
    ) -> None:
        self.generation = generation
        self.parts = parts
        self._number = number
        self._sink = sink
        self._thinks = thinks
        self._logprobs = Logprobs(parts) if scored else None
        self._told = 0
        self._counted = 0

    @property
    def is_cut(self) -> bool:
        """Whether it had no room to go on."""
        return self.generation.finish_reason in ("length", "context")

    async def run(self, begin: Callable[[], None]) -> None:
        while await self.generation.step():
            begin()
            self._tell()
            await session.drain()

    def _tell(self) -> None:
        """What the last step gave."""
        parts, text = self.parts, self.generation.text
        self._sink.count(self.generation.usage.generated - self._counted)
        self._counted = self.generation.usage.generated
        if parts.thoughts:
            self._sink.add("t", self._number, parts.thoughts)
            parts.thoughts = ""
        if len(text) > self._told and not self._thinks:
            self._sink.add("p", self._number, text[self._told :], *self._scores(len(text)))
            self._told = len(text)
        if parts.calls:
            for kind, *fields in parts.calls:
                self._sink.add(kind, self._number, *fields)
            parts.calls.clear()

    def _scores(self, length: int) -> list[Any]:
        if self._logprobs is None:
            return []
        last = self.generation.finish_reason is not None
        return [self._logprobs.upto(self.generation.logprobs, length, last=last)]
