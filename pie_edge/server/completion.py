"""What endpoints do their work with, done by the inferlets ``completion`` and ``embedding`` wherever inferlets run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from pie_edge import resources
from pie_edge.errors import InferletFailed, Unsupported
from pie_edge.server import events
from pie_edge.server.generation import Card, Conversation, Event, Request, Text, Usage

PROGRAM = "completion"
EMBEDDING = "embedding"
"""Built-in inferlets: folders of ``resources.inferlets()``."""


class Launcher(Protocol):
    """Runs an inferlet."""

    def run(self, program: str, input: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        """The messages of a built-in one, until it ends. Closing the generator ends it. Raises what it ended with."""


class CompletionService:
    """A ``Service`` (see ``generation``). ``card`` is asked each time: it raises NotReady while the model loads."""

    def __init__(self, launcher: Launcher, card: Callable[[], Card]) -> None:
        self._launcher = launcher
        self._card = card

    @property
    def card(self) -> Card:
        return self._card()

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        last: Usage | None = None
        async with aclosing(self._launcher.run(PROGRAM, request.as_input())) as messages:
            async for message in messages:
                for event in events.read(message):
                    if isinstance(event, Usage):
                        last = event
                    else:
                        yield event
        if last is None:
            raise InferletFailed(f"{PROGRAM} ended without an answer")
        # Not before the inferlet has ended: whoever has all events may stop listening.
        yield last

    async def count(self, prompt: Conversation | Text) -> int:
        async with aclosing(self._launcher.run(PROGRAM, {"do": "count", "prompt": asdict(prompt)})) as messages:
            async for message in messages:
                return events.read_count(message)
        raise InferletFailed(f"{PROGRAM} ended without an answer")

    async def forget(self, name: str) -> None:
        async with aclosing(self._launcher.run(PROGRAM, {"do": "forget", "name": name})) as messages:
            async for _ in messages:
                pass

    async def embed(
        self, texts: Sequence[str | Sequence[int]], dimensions: int | None = None
    ) -> tuple[list[Sequence[float]], int]:
        card = self.card
        if not card.embeds:
            raise Unsupported(f"{card.name} gives no embeddings: {card.unpooled}")
        vectors: list[Sequence[float]] = []
        tokens: int | None = None
        given = {"inputs": list(texts), "dimensions": dimensions}
        async with aclosing(self._launcher.run(EMBEDDING, given)) as messages:
            async for message in messages:
                for found in events.read_vectors(message):
                    if isinstance(found, int):
                        tokens = found
                    else:
                        vectors.append(found)
        if tokens is None or len(vectors) != len(texts):
            raise InferletFailed(f"{EMBEDDING} ended without an answer")
        return vectors, tokens


def program_folder(program: str) -> Path:
    """Where a built-in inferlet lies."""
    return resources.inferlets() / program
