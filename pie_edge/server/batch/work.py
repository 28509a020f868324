"""A batch from its beginning to its end: many requests under way, each answer written as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pie_edge.errors import Disconnected
from pie_edge.server.batch import lines
from pie_edge.server.batch.calls import Call
from pie_edge.server.batch.lines import Answer, Bad, Item

_TRIES = 8
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_LATER = (429, 503)


@dataclass(slots=True)
class Tally:
    """Lines of the input: all of them, those that were done before, those that have been done since, and how many of these last
    failed."""

    total: int = 0
    before: int = 0
    done: int = 0
    failed: int = 0


class Batch:
    """``report`` hears of every line that is done. ``pause`` is how long to wait before a request is tried again, which a server
    was too busy for."""

    def __init__(
        self,
        call: Call,
        parallel: int,
        report: Callable[[Tally], None] = lambda tally: None,
        pause: float = _FIRST_PAUSE,
    ) -> None:
        self.tally = Tally()
        self._call = call
        self._parallel = parallel
        self._report = report
        self._pause = pause

    async def run(self, source: Path, target: Path) -> Tally:
        """Goes on where an earlier run into the same file has ended. Raises UsageError for files that can't be used, and
        Disconnected, once what is under way has ended, when no server answers any more; what was written stays."""
        self.tally.total = sum(1 for _ in lines.read(source))
        done = lines.resume(target)
        # Never two at a time in the generator: between its steps nothing waits.
        coming = (one for one in lines.read(source) if not self._is_done(done, one))
        with target.open("a", encoding="utf-8") as file:

            def write(line: str, failed: bool) -> None:
                file.write(line)
                file.flush()
                self.tally.done += 1
                self.tally.failed += failed
                self._report(self.tally)

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._parallel):
                        group.create_task(self._work(coming, write))
            except BaseExceptionGroup as failed:
                raise failed.exceptions[0] from None
        return self.tally

    def _is_done(self, done: lines.Done, one: Item | Bad) -> bool:
        found = done.has(one)
        self.tally.before += found
        return found

    async def _work(self, coming: Iterable[Item | Bad], write: Callable[[str, bool], None]) -> None:
        for one in coming:
            if isinstance(one, Bad):
                write(lines.failed(one), True)
            else:
                answer = await self._answer(one)
                write(lines.answered(one, answer), answer.status >= 400)

    async def _answer(self, item: Item) -> Answer:
        """A server that is too busy, or is started anew, is asked again."""
        pause = self._pause
        for attempt in range(1, _TRIES + 1):
            try:
                answer = await self._call(item.url, item.body)
                if answer.status not in _LATER or attempt == _TRIES:
                    return answer
            except Disconnected:
                if attempt == _TRIES:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("the last try returns or raises")
