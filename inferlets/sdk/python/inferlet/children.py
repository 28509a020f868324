"""Inferlets that this one starts. They end with it, unless they are detached."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import PurePath
from typing import Any

from inferlet import _loop
from inferlet._host import ChildMessage, ChildResult, host
from inferlet._inbox import Inbox
from inferlet.errors import UsageError

_MOST_SECONDS = 2**33


class Child(AsyncIterator[str]):
    """A running child. ``async for text in child`` gives the messages that it sends to its client, which this program is."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.id: str = handle.instance_id()
        """Unique among the instances of this host."""
        self._inbox: Inbox[str | None] = Inbox(lambda: ChildMessage(handle.id))
        self._ending: asyncio.Future[str] | None = None

    async def result(self) -> Any:
        """What its ``main`` returned. Raises the InferletError it ended with; whoever is cancelled here leaves it running."""
        if self._ending is None:
            self._ending = _loop.current().submit(ChildResult(self._handle.id))
        return json.loads(await asyncio.shield(self._ending))

    def send(self, text: str) -> None:
        """A message, which its ``session.receive`` gives. Raises ResourceError if it is too long or too much is unread,
        InferletError if the child has ended."""
        self._handle.send(text)

    async def receive(self) -> str | None:
        """The next message it sent; None when it has ended and all were taken."""
        return await self._inbox.receive()

    async def __anext__(self) -> str:
        text = await self.receive()
        if text is None:
            raise StopAsyncIteration
        return text

    def cancel(self) -> None:
        """Ends it: its result is InferletCancelled. Does nothing if it has ended."""
        self._handle.cancel()


def launch(
    program: str | PurePath,
    input: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    seed: int | None = None,
    time: float | None = None,
    memory: int | None = None,
    detached: bool = False,
) -> Child:
    """Starts ``program``: a source text, or a file beside this program's own, given as a ``Path`` or as a text that ends with
    ``.py``. Its ``main`` gets ``input``.

    It has this program's limits, or less: ``time`` in seconds, ``memory`` in bytes. Its random numbers follow from this program's
    seed, or from ``seed``. Raises InferletInvalid for a source that can't be read, ResourceError for too many children.
    """
    text = str(program)
    is_path = isinstance(program, PurePath) or (text.endswith(".py") and "\n" not in text)
    if seed is not None and not 0 <= seed < 2**64:
        raise UsageError(f"the seed {seed} was given; it must be from 0 to 2**64 - 1")
    if time is not None and not 0 < time < _MOST_SECONDS:
        raise UsageError(f"{time} seconds were given for a child; it must be above 0")
    if memory is not None and not 0 < memory < 2**64:
        raise UsageError(f"{memory} bytes of memory were given for a child; it must be above 0")
    try:
        document = json.dumps(dict(input or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the input of a child has no JSON form: {error}") from None
    nanoseconds = None if time is None else int(time * 1e9)
    kind = "path" if is_path else "text"
    return Child(host().launch(kind, text, document, name, seed, nanoseconds, memory, detached))
