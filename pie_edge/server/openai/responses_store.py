"""Responses that are kept for a time, to be read again and to go on from."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pie_edge.server.openai.errors import BadRequest

KEEP_SECONDS = 1800.0
"""By default."""
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Stored:
    """``messages`` are the conversation without instructions, its answer included; ``tokens`` all that the model has read and
    written of it, with these instructions, tools and way of thinking."""

    response: Mapping[str, Any]
    input: Sequence[Mapping[str, Any]]
    messages: Sequence[Mapping[str, Any]]
    instructions: str | None
    tools: Sequence[Mapping[str, Any]]
    thinking: bool | None
    tokens: Sequence[int] | None

    @property
    def id(self) -> str:
        return str(self.response["id"])


class Store:
    """Each for ``seconds``. The oldest go when there are too many."""

    def __init__(self, seconds: float = KEEP_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._stored: OrderedDict[str, tuple[float, Stored]] = OrderedDict()

    def add(self, one: Stored) -> None:
        self._expire()
        self._stored[one.id] = (self._clock() + self.seconds, one)
        if len(self._stored) > _MOST:
            self._stored.popitem(last=False)

    def has(self, id: str) -> bool:
        self._expire()
        return id in self._stored

    def find(self, id: str) -> Stored:
        """Raises BadRequest, of status 404."""
        return self._find(id, "Response", "id", "response_not_found", 404)

    def previous(self, id: str) -> Stored:
        """To go on from. Raises BadRequest."""
        return self._find(id, "Previous response", "previous_response_id", "previous_response_not_found", 400)

    def _find(self, id: str, what: str, param: str, reason: str, status: int) -> Stored:
        if not self.has(id):
            told = f"{what} with id '{id}' not found: it wasn't stored, or more than {self.seconds:g} s ago."
            raise BadRequest(told, param, reason, status)
        return self._stored[id][1]

    def remove(self, id: str) -> None:
        """Raises BadRequest, of status 404."""
        self.find(id)
        del self._stored[id]

    def _expire(self) -> None:
        now = self._clock()
        while self._stored and next(iter(self._stored.values()))[0] <= now:
            self._stored.popitem(last=False)
