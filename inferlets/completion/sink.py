"""Events on their way to the client: all that are there when the program next waits go in one message."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from inferlet import errors, session

_LONGEST = 500_000  # characters of a message; the host takes twice as many


class Sink:
    def __init__(self) -> None:
        self._events: list[str] = []
        self._size = 0
        self._generated = self._told = 0

    def count(self, generated: int) -> None:
        """So many tokens more, in whatever answer; the next message says how many there are by then."""
        self._generated += generated

    def add(self, *event: Any) -> None:
        """One event: what it is, and its fields."""
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        if self._size + len(text) > _LONGEST:
            self.flush()
        if not self._events:
            asyncio.get_running_loop().call_soon(self.flush)
        self._events.append(text)
        self._size += len(text) + 1

    def flush(self) -> None:
        events, self._events, self._size = self._events, [], 0
        if events:
            if self._generated != self._told:
                self._told = self._generated
                events.append(f'["g",{self._told}]')
            session.send("[" + ",".join(events) + "]")

    def refuse(self, error: errors.PieError) -> None:
        """Last of all: why there is no answer, or no more of it."""
        counts = getattr(error, "counts", (None, None))
        self.add("x", error.code, str(error), *counts)
        self.flush()
