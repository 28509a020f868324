"""When the next step is formed: work-conserving, and so that who belongs together shares it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

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
        self._answered: list[_Answered] = []

    def answered(self, step: Batch, foreseen: Set[WorkingSet | None], now: float) -> None:
        """The results of a step are handed out."""
        until = now + self.pace.courtesy
        self._answered = [
            _Answered(part.work.space, part.work.context, until)
            for part in step.slices
            if part.last and part.work.context is not None and part.work.context not in foreseen
        ]

    def delay(
        self, waiting: Sequence[Work], calls: Calls, running: Batch | None, alive: Set[Space], now: float
    ) -> float | None:
        """Seconds until a step should be formed of the calls that wait, 0 for now; None where the ``running`` step has to
        land first. At once when the device is idle. Behind a running step: when everybody who could ask has asked, or shortly
        before its predicted end."""
        foreseen = calls.foreseen | {work.context for work in waiting if work.context is not None}
        if running is not None and all(_has_others_in(running, work, foreseen) for work in waiting):
            return None
        asking = {work.space for work in calls.everything()}
        held = self.pace.hold(waiting, len(asking), alive, now)
        return max(held, self._companions_due(waiting, calls, now), 0.0)

    def _companions_due(self, waiting: Sequence[Work], calls: Calls, now: float) -> float:
        """Seconds to wait for the contexts that were just answered, if all that waits is of inferlets that have such."""
        asking = {work.context for work in calls.everything()}
        due = {c.space for c in self._answered if c.until > now and c.context not in asking and not c.space.closed}
        if not due or not all(work.space in due for work in waiting):
            return 0.0
        return max(companion.until for companion in self._answered) - now


def _has_others_in(running: Batch, work: Work, foreseen: Set[WorkingSet | None]) -> bool:
    """Whether a work's inferlet has passes of other contexts in the running step, none of them foreseen: an inferlet that works
    on several contexts side by side is served best when they share steps, so what waits of it waits for those."""
    return any(
        part.work.space is work.space and part.work.context is not work.context and part.work.context not in foreseen
        for part in running.slices
    )


@dataclass(frozen=True, slots=True)
class _Answered:
    """A context whose pass has just been answered, and until when others of its inferlet wait for it to ask again."""

    space: Space
    context: WorkingSet
    until: float
