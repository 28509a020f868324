"""A ``Service`` that gives the events a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from pie_edge.errors import PieError
from pie_edge.server.generation import Began, Card, Conversation, Ended, Event, Piece, Request, Text, Usage

CARD = Card(
    name="tiny",
    context=512,
    created=1_700_000_000,
    chat=True,
    embeds=False,
    description="A tiny one",
    vocabulary=1000,
)


def answer(*events: Event, prompt: int = 10, cached: int = 4, reason: str = "stop", **ended: str) -> list[Event]:
    """A whole generation of one choice: what comes in it, between its beginning and its end."""
    end = Ended(0, reason, **ended)  # type: ignore[arg-type]
    return [Began(prompt, cached), *events, end, Usage(prompt, cached, 7, reasoning=2)]


@dataclass
class Told:
    """An exception among the events is raised there; a number is a pause, in seconds."""

    events: Sequence[Event | PieError | float] = field(default_factory=lambda: answer(Piece(0, "Hi")))
    card: Card = CARD
    asked: list[Request] = field(default_factory=list)
    counted: list[Conversation | Text] = field(default_factory=list)
    ended: int = 0
    """Generations that have come to their end, or were closed."""

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        self.asked.append(request)
        try:
            for event in self.events:
                if isinstance(event, PieError):
                    raise event
                if isinstance(event, float):
                    await asyncio.sleep(event)
                else:
                    yield event
        finally:
            self.ended += 1

    async def count(self, prompt: Conversation | Text) -> int:
        self.counted.append(prompt)
        return 42

    async def embed(
        self, texts: Sequence[str | Sequence[int]], dimensions: int | None = None
    ) -> tuple[list[Sequence[float]], int]:
        return [[0.6, 0.8] for _ in texts], len(texts)

    async def forget(self, name: str) -> None: ...

    def thinking(self, how: str) -> Told:
        """The same with a model that thinks so."""
        return replace(self, card=replace(self.card, thinks=how))  # type: ignore[arg-type]
