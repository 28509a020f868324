"""Inferlets for the endpoints, run in the engine's process."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pie_edge.errors import PieError
from pie_edge.protocol.connection import Connection, Event, Remote, error_of
from pie_edge.protocol.messages import Ended, Message
from pie_edge.server.admission import Admission
from pie_edge.server.exchange import current
from pie_edge.server.generation import Card
from pie_edge.server.supervisor import Supervisor

_WINDOW = 2**16
"""Characters of one answer on their way here. A client that reads slowly holds that much of this process, and then its inferlet
waits."""


_BRIEF_AT_ONCE = 4
"""Of what is no generation, and takes milliseconds: counting tokens, forgetting what was kept."""


class Link:
    """A ``Launcher`` (see ``completion``)."""

    def __init__(self, supervisor: Supervisor, admission: Admission) -> None:
        self._supervisor = supervisor
        self._admission = admission
        self._brief = admission.beside(_BRIEF_AT_ONCE)

    def card(self) -> Card:
        """Raises NotReady."""
        model = self._supervisor.connection.state.model
        assert model is not None, "a ready engine has a model"
        return Card(
            name=model.name,
            context=model.context,
            created=model.created,
            chat=model.chat,
            embeds=model.embeds,
            thinks=model.thinks,
            description=model.description,
            unpooled=model.unpooled,
            hidden=model.hidden,
            vocabulary=model.vocabulary,
            sampling=model.sampling,
            tools=model.tools,
        )

    async def run(self, program: str, input: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        """The messages of a built-in inferlet, until it ends; it waits its turn before. Closing the generator ends it. Raises
        what it ended with, NotReady, Overloaded, and Disconnected if the engine ends meanwhile."""
        # Before the wait: without an engine there is nothing to wait for.
        _ = self._supervisor.connection
        admission = self._brief if input.get("do", "generate") != "generate" else self._admission
        async with admission.turn():
            if (exchange := current.get()) is not None:
                exchange.started = exchange.started or time.perf_counter()
            stream = _Stream(self._supervisor.connection)
            try:
                await stream.launch(program, json.dumps(input, ensure_ascii=False))
                while (text := await stream.next()) is not None:
                    yield text
            finally:
                stream.close()


class _Stream:
    """What comes of one inferlet."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._remote = Remote(connection, _WINDOW, self._take, self._fail)
        self._texts: deque[str] = deque()
        self._ending: Ended | PieError | None = None
        self._changed = asyncio.Event()

    async def launch(self, program: str, document: str) -> None:
        exchange = current.get()
        # Whoever looks at logs, or at what runs, finds the request by it.
        name = "" if exchange is None else f"{program} {exchange.id}"
        await self._connection.launch(self._remote, document, program=program, name=name)

    async def next(self) -> str | None:
        while not self._texts:
            if isinstance(self._ending, PieError):
                raise self._ending
            if self._ending is not None:
                return None
            self._changed.clear()
            await self._changed.wait()
        text = self._texts.popleft()
        self._remote.grant(len(text))
        return text

    def close(self) -> None:
        """It ends, if it hasn't."""
        if self._remote.instance:
            self._remote.terminate()

    def _take(self, event: Event) -> None:
        match event:
            case Message():
                self._texts.append(event.text)
            case Ended():
                self._ending = event if event.result is not None else error_of(event)
            case _:
                return self._remote.grant(len(getattr(event, "text", "")))
        self._changed.set()
        return None

    def _fail(self, error: PieError) -> None:
        self._ending = error
        self._changed.set()
