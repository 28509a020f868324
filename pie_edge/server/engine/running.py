"""An inferlet that was launched over a connection, and what of it goes to whoever is attached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from pie_edge.errors import InferletError, InferletFailed, PieError
from pie_edge.host.instance import Instance, Outcome
from pie_edge.host.mailbox import Item
from pie_edge.host.requests import told
from pie_edge.protocol.codec import PART
from pie_edge.protocol.messages import Ended, FilePart, FromServer, Message, Output, Row
from pie_edge.server.engine.transcript import Transcript

_LONGEST_RESULT = 4 * 2**20
Post = Callable[[FromServer], None]


class Running:
    """``ended`` is called when it is over. One client at a time is attached, and gets as much as it gave credit for."""

    def __init__(
        self,
        id: str,
        instance: Instance,
        transcript: Transcript,
        detached: bool,
        ended: Callable[[Running], None],
    ) -> None:
        self.id = id
        self.instance = instance
        self.detached = detached
        self.ending: Ended | None = None
        self.told = False
        """Whether somebody heard how it ended."""
        self._transcript = transcript
        self._outbox = instance.guest.mailbox.outbox
        self._ended = ended
        self._started = time.monotonic()
        self._over: float | None = None
        self._post: Post | None = None
        self._credit = 0
        self._parts: Iterator[FilePart] | None = None
        instance.guest.mailbox.takes_files = True
        self._watching = asyncio.create_task(self._watch())

    @property
    def attached(self) -> bool:
        return self._post is not None

    def attach(self, post: Post, credit: int) -> None:
        self._post, self._credit = post, credit
        self._transcript.deliver_to(self._give_output)
        self._outbox.deliver_to(self._give)
        self._go_on()

    def detach(self) -> None:
        """Nobody reads what comes until somebody attaches."""
        self._post = None
        self.detached = True
        self._transcript.deliver_to(None)
        self._outbox.deliver_to(None)

    def grant(self, credit: int) -> None:
        self._credit += credit
        self._go_on()

    def row(self) -> Row:
        return Row(
            self.id,
            self.instance.name,
            str(self.instance.state),
            (self._over or time.monotonic()) - self._started,
            self.attached,
            self.instance.guest.space.usage.counts(),
            self.instance.device,
        )

    def _go_on(self) -> None:
        """As far as the credit goes: output, then the rest of a file, then messages and files, then the end."""
        self._transcript.resume()
        while self._parts is not None and self._post is not None and self._credit > 0:
            self._give_part()
        self._outbox.resume()
        over = self.ending is not None and self._transcript.empty and self._parts is None and self._outbox.empty
        if over and self._post is not None and not self.told:
            assert self.ending is not None
            self.told = True
            self._post(self.ending)

    def _give_output(self, text: str, log: bool, dropped: int) -> bool:
        if self._post is None or self._credit <= 0:
            return False
        self._credit -= len(text)
        self._post(Output(self.id, text, log, dropped))
        return True

    def _give(self, item: Item) -> bool:
        if self._post is None or self._credit <= 0 or self._parts is not None:
            return False
        if isinstance(item, str):
            self._credit -= len(item)
            self._post(Message(self.id, item))
        else:
            self._parts = _parts(self.id, item.name, item.data)
            self._give_part()
        return True

    def _give_part(self) -> None:
        assert self._parts is not None
        assert self._post is not None
        part = next(self._parts)
        self._credit -= len(part.part)
        self._post(part)
        if part.last:
            self._parts = None

    async def _watch(self) -> None:
        try:
            outcome: Outcome | PieError = await self.instance.result()
        except Exception as error:
            outcome = told(error)
        self._over = time.monotonic()
        self.ending = _ended(self.id, outcome, self.instance.guest.space.usage.counts())
        self._go_on()
        self._ended(self)


def _parts(instance: str, name: str, data: bytes) -> Iterator[FilePart]:
    for start in range(0, max(len(data), 1), PART):
        yield FilePart(instance, name, data[start : start + PART], start + PART >= len(data))


def _ended(id: str, outcome: Outcome | PieError, counts: dict[str, int]) -> Ended:
    if isinstance(outcome, Outcome) and len(outcome.document) > _LONGEST_RESULT:
        outcome = InferletFailed(
            f"the result is {len(outcome.document):,} characters of JSON, the most is {_LONGEST_RESULT:,}; send it as messages"
        )
    if isinstance(outcome, Outcome):
        return Ended(id, outcome.document, usage=counts, timings=outcome.timings)
    traceback, cause = ("", None)
    if isinstance(outcome, InferletError):
        traceback, cause = outcome.traceback, outcome.cause
    return Ended(id, None, outcome.code, outcome.message, traceback, cause, counts)
