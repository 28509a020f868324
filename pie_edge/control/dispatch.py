"""When the next step is formed: work-conserving, and so that who belongs together shares it."""

from __future__ import annotations

from collections.abc import Sequence, Set

from pie_edge.control.batch import Batch
from pie_edge.control.calls import Calls
from pie_edge.control.pace import Pace
from pie_edge.control.pages import WorkingSet
from pie_edge.control.queue import Work
from pie_edge.control.space import Space


class Dispatch:
    """Remembers who was just answered."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._answered: list[tuple[Space, WorkingSet]] = []
        """The contexts whose passes the last step had."""
        self._until = 0.0
        """Until when others of their inferlets wait for them to ask again."""

    def answered(self, step: Batch, foreseen: Set[WorkingSet | None], now: float) -> None:
        """The results of a step are handed out."""
        self._until = now + self.pace.courtesy
        works = [part.work for part in step.slices if part.last]
        self._answered = [
            (work.space, work.context) for work in works if work.context is not None and work.context not in foreseen
        ]

    def delay(
        self, waiting: Sequence[Work], calls: Calls, running: Batch | None, alive: Set[Space], now: float
    ) -> float | None:
        """Seconds until a step should be formed of the calls that wait, 0 for now; None where the ``running`` step has to
        land first. At once when the device is idle. Behind a running step: when everybody who could ask has asked, or shortly
        before its predicted end."""
        if running is not None:
            foreseen = calls.foreseen | {work.context for work in waiting if work.context is not None}
            if all(_has_others_in(running, work, foreseen) for work in waiting):
                return None
        everything = calls.everything()
        asking = {work.space for work in everything}
        held = self.pace.hold(waiting, len(asking), alive, now)
        return max(held, self._companions_due(waiting, everything, now), 0.0)

    def _companions_due(self, waiting: Sequence[Work], everything: Sequence[Work], now: float) -> float:
        """Seconds to wait for the contexts that were just answered, if all that waits is of inferlets that have such."""
        if now >= self._until:
            return 0.0
        asking = {work.context for work in everything}
        due = {space for space, context in self._answered if context not in asking and not space.closed}
        return self._until - now if due and all(work.space in due for work in waiting) else 0.0


def _has_others_in(running: Batch, work: Work, foreseen: Set[WorkingSet | None]) -> bool:
    """Whether a work's inferlet has passes of other contexts in the running step, none of them foreseen: an inferlet that works
    on several contexts side by side is served best when they share steps, so what waits of it waits for those."""
    return any(
        part.work.space is work.space and part.work.context is not work.context and part.work.context not in foreseen
        for part in running.slices
    )
