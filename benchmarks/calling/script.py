"""What agents are told, in tokens: how long it is follows from ``Sizes``, what it is from the number of the session.

A session begins with its own number, so no agent finds what an earlier one has left in a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

SHAPES = ("react", "codeact", "swarm")
RING = 4
"""Agents of a swarm."""


class Tokenizer(Protocol):
    def prefix(self) -> list[int]: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...


@dataclass(frozen=True)
class Sizes:
    """Tokens: ``prompt`` of an agent and ``turn`` of what it writes at a time, by numbers of ``calls``, with ``together`` agents
    at once for throughput. For the ladder, at so many ``agents``: one API's ``document``, an agent's ``own`` words beside
    those, and its ``errand_turn``."""

    prompt: int
    turn: int
    calls: Sequence[int]
    together: int
    together_calls: Sequence[int]
    document: int
    own: int
    errand_turn: int
    agents: Sequence[int]


APIS = 2
FULL = Sizes(
    96, 8, (0, 1, 2, 4, 8, 16, 32), 3, (0, 2, 8, 32), document=128, own=24, errand_turn=9, agents=(1, 8, 32, 128)
)
QUICK = Sizes(40, 4, (0, 2, 5), 2, (2,), document=32, own=20, errand_turn=6, agents=(1, 3))


@dataclass(frozen=True)
class Task:
    """One agent's, or one swarm's with a prompt for each of its agents."""

    session: int
    prompts: Sequence[Sequence[int]]
    calls: int
    turn: int


@dataclass(frozen=True)
class Errand:
    """An agent that reads the documents of some APIs and calls each of them. ``first``: it reads them before its own words."""

    own: Sequence[int]
    documents: Sequence[Sequence[int]]
    turn: int
    first: bool

    @property
    def prompt(self) -> list[int]:
        read = [token for document in self.documents for token in document]
        return [*read, *self.own] if self.first else [*self.own, *read]


class Scripts:
    def __init__(self, tokenizer: Tokenizer, sizes: Sizes) -> None:
        self._tokenizer = tokenizer
        self._sizes = sizes

    def task(self, shape: str, session: int, calls: int) -> Task:
        agents = RING if shape == "swarm" else 1
        prompts = [self._prompt(session, f"{shape} agent {number}", self._sizes.prompt) for number in range(agents)]
        return Task(session, prompts, calls, self._sizes.turn)

    def errand(self, session: int, first: bool) -> Errand:
        own = self._prompt(session, "agent with functions", self._sizes.own)
        return Errand(own, self.documents(), self._sizes.errand_turn, first)

    def documents(self) -> list[list[int]]:
        """What each API can do, the same for all agents."""
        return [self._document(api) for api in range(APIS)]

    def _document(self, api: int) -> list[int]:
        lines = (
            f"GET /v{api + 1}/items/{i}: the price in coins and the weight in grams of item {i * 7 % 53}, as JSON.\n"
            for i in range(self._sizes.document)
        )
        return self._cut("".join(lines), self._sizes.document)

    def _prompt(self, session: int, who: str, length: int) -> list[int]:
        lines = (f"Rule {i}: think, then call a tool about item {i * 31 % 97}.\n" for i in range(length))
        prefix = self._tokenizer.prefix()
        return prefix + self._cut(f"{session}. You are a {who}.\n" + "".join(lines), length - len(prefix))

    def _cut(self, text: str, length: int) -> list[int]:
        return list(self._tokenizer.encode(text)[:length])
