"""The process of llama.cpp behind ``/completions``, with what its own server does about prompts (``cache_prompt``, slots).

A slot is a sequence that keeps what it has read. A request goes to the idle slot that begins like it, if a tenth of the prompt
is there, else to the one that was idle longest; only what differs is read again. All slots share each pass: tokens first, then
prompts, up to a batch. The bindings' own server has one slot and serves one request at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.calling.loopback import Handler, serving
from benchmarks.sides.side import Job
from benchmarks.worker import resident

SLOTS, BATCH, ROOM = 32, 512, 1024
"""``ROOM`` is a slot's own part of the cache, in tokens: one cache for all makes each token pass over what idle slots keep."""
SIMILAR = 0.1
"""The share of a prompt that a slot has to begin with to be preferred."""
Row = tuple[int, int, int, bool]
"""Sequence, position, token, and whether it is read out."""


class Model(Protocol):
    def forward(self, entries: Sequence[Row]) -> Iterable[int]:
        """One pass; the likeliest token after each row that is read out."""

    def forget(self, sequence: int, first: int) -> None: ...


@dataclass(eq=False)
class Slot:
    """``tokens`` are those that it has read."""

    number: int
    tokens: list[int] = field(default_factory=list)
    used: int = 0
    request: Request | None = None


@dataclass(eq=False)
class Request:
    """``rest`` has still to be read."""

    prompt: list[int]
    count: int
    answer: asyncio.Future[list[int]]
    rest: list[int] = field(default_factory=list)
    made: list[int] = field(default_factory=list)


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens the two begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


class Slots:
    """``forwarded`` counts the tokens that were read. Make it inside of a running loop, and ``close`` it."""

    def __init__(self, model: Model, slots: int = SLOTS, batch: int = BATCH, room: int = ROOM) -> None:
        self.forwarded = 0
        self._model = model
        self._batch, self._room = batch, room
        self._slots = [Slot(number) for number in range(slots)]
        self._waiting: deque[Request] = deque()
        self._clock = itertools.count(1)
        self._wake = asyncio.Event()
        self._running = asyncio.get_running_loop().create_task(self._serve())

    @property
    def handlers(self) -> dict[str, Handler]:
        return {"/completions": self._complete, "/usage": self._usage}

    async def close(self) -> None:
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    async def _complete(self, asked: dict[str, Any]) -> list[int]:
        request = Request(asked["prompt"], asked["max_tokens"], asyncio.get_running_loop().create_future())
        if len(request.prompt) + request.count > self._room:
            raise ValueError(f"a slot has room for {self._room} tokens")
        self._waiting.append(request)
        self._wake.set()
        return await request.answer

    async def _usage(self, asked: dict[str, Any]) -> dict[str, int]:
        return {"forwarded": self.forwarded}

    async def _serve(self) -> None:
        while True:
            self._assign()
            rows = self.rows()
            if not rows:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                # It is the C side that takes the time, and it lets go of Python's lock.
                self._take(rows, await asyncio.to_thread(lambda rows: list(self._model.forward(rows)), rows))
            except RuntimeError as error:
                self._fail(error)

    def _fail(self, error: RuntimeError) -> None:
        """A pass came to nothing: who is in a slot hears of it, and the slots begin anew."""
        for slot in self._slots:
            self._cut(slot, 0)
            if slot.request is not None and not slot.request.answer.done():
                slot.request.answer.set_exception(error)
            slot.request = None

    def _assign(self) -> None:
        while self._waiting and (idle := [slot for slot in self._slots if slot.request is None]):
            request = self._waiting.popleft()
            slot = max(idle, key=lambda slot: shared(slot.tokens, request.prompt))
            if shared(slot.tokens, request.prompt) <= SIMILAR * len(request.prompt):
                slot = min(idle, key=lambda slot: slot.used)
            # At least one token is read, for there to be an answer.
            kept = min(shared(slot.tokens, request.prompt), len(request.prompt) - 1)
            self._cut(slot, kept)
            slot.request, request.rest = request, request.prompt[kept:]

    def _cut(self, slot: Slot, kept: int) -> None:
        del slot.tokens[kept:]
        self._model.forget(slot.number, kept)

    def rows(self) -> list[Row]:
        """The next pass."""
        rows: list[Row] = []
        busy = [(slot, slot.request) for slot in self._slots if slot.request is not None]
        for slot, request in sorted(busy, key=lambda pair: len(pair[1].rest)):
            part, last = request.rest[: self._batch - len(rows)], len(slot.tokens) + len(request.rest) - 1
            places = enumerate(part, len(slot.tokens))
            rows += [(slot.number, place, token, place == last) for place, token in places]
        return rows

    def _take(self, rows: Sequence[Row], chosen: Sequence[int]) -> None:
        self.forwarded += len(rows)
        answers = iter(chosen)
        for number, _, token, read_out in rows:
            slot = self._slots[number]
            assert slot.request is not None
            slot.tokens.append(token)
            del slot.request.rest[0]
            if read_out:
                self._made(slot, slot.request, next(answers))

    def _made(self, slot: Slot, request: Request, token: int) -> None:
        request.made.append(token)
        request.rest = [token]
        if len(request.made) == request.count:
            slot.request, slot.used = None, next(self._clock)
            if not request.answer.done():
                request.answer.set_result(request.made)


async def serve(job: Job) -> None:
    """Until standard input ends. What it is, and where, is told in a line."""
    from benchmarks.sides.llama_cpp import LlamaCppSide

    side = LlamaCppSide(job, SLOTS * ROOM, SLOTS, unified=False)
    slots = Slots(side)
    async with serving(slots.handlers) as url:
        print(json.dumps({"description": side.description, "url": url, "memory": resident()}), flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await slots.close()
    side.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.calling.llama_cpp", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    asked = parser.parse_args()
    try:
        asyncio.run(serve(Job(asked.model, "cpu", asked.threads)))
    except ImportError as error:
        print(json.dumps({"missing": str(error), "memory": None}), flush=True)


if __name__ == "__main__":
    main()
