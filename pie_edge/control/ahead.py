"""Run-ahead: the next pass of an unmodified program, prepared and run before the program asks for it.

A program that decodes asks, pass after pass, for the token it was just given, one place further, with the same
epilogue. So while such a pass is on the device, the next one is put behind it, its token read from the device's own
pool. When the program then asks for just that, the answer is there or under way (a *hit*); anything else it may ask
drops the prepared pass (a *miss*) and takes the ordinary path. Only time changes, never a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pie_edge.control.pages import WorkingSet
from pie_edge.control.queue import Placement, Work
from pie_edge.control.space import Request
from pie_edge.sampling import Epilogue

DISTRUST = 16
"""Passes of a context that go unpredicted after a miss; doubled with each further one, up to sixteen times that."""


@dataclass(slots=True, eq=False)
class _Ahead:
    """A prepared pass, and the one whose token it embeds."""

    work: Work
    parent: Work


class RunAhead:
    """At most one prepared pass a context. ``slots`` is the size of the device's token pool; ``on_drop`` is told of a
    prepared pass that nobody will ask for."""

    def __init__(self, slots: int, depth: int, on_drop: Callable[[Work], None]) -> None:
        self.hits = 0
        self.misses = 0
        self._enabled = depth > 0
        self._on_drop = on_drop
        self._free_slots = list(range(slots))
        self._prepared: dict[WorkingSet, _Ahead] = {}

    def reserve_slot(self, work: Work, room: int) -> None:
        """Before a pass is launched: a place for its token, if a next pass may be predicted from it.

        ``room`` is how many tokens its context can hold.
        """
        if work.slot is None and self._free_slots and self._predictable(work, room):
            work.slot = self._free_slots.pop()

    def predict(self, work: Work, make: Callable[[Request], Work]) -> Work | None:
        """The pass after ``work``, which was asked for and is launched; None where there is nothing to go by."""
        context = work.context
        if context is None or context.retired or work.slot is None or context in self._prepared:
            return None
        place = work.placement.places[-1] + 1
        placement = Placement(work.placement.entries, (place,), (place,))
        ahead = make(Request(work.queue, (0,), (0,), placement, context, None, work.parameters))
        ahead.epilogue, ahead.confirmed, ahead.adopted = work.epilogue, False, 0
        ahead.source, work.slot = work.slot, None
        self._prepared[context] = _Ahead(ahead, work)
        return ahead

    def confirm(self, request: Request, epilogue: Epilogue | None) -> Work | None:
        """The prepared pass, if it is what ``request`` asks for; otherwise what was prepared for its context is dropped."""
        context = request.context
        if context is None:
            return None
        found = self._prepared.get(context)
        if found is None:
            context.distrust = max(context.distrust - 1, 0)
            return None
        token = _answer(found.parent)
        if token is None or not _matches(found.work, request, epilogue, token):
            self.drop(context)
            return None
        del self._prepared[context]
        self.hits += 1
        context.misses = 0
        found.work.tokens, found.work.confirmed = (token,), True
        return found.work

    def drop(self, context: WorkingSet) -> None:
        """The context goes another way than was foreseen, or changes in a way that no prepared pass knows of."""
        found = self._prepared.pop(context, None)
        if found is not None:
            self.misses += 1
            context.misses += 1
            context.distrust = DISTRUST << min(context.misses - 1, 4)
            self._on_drop(found.work)

    def wanted(self, work: Work) -> bool:
        """Whether somebody may still ask for a prepared pass."""
        found = None if work.context is None else self._prepared.get(work.context)
        return found is not None and found.work is work

    def free_source(self, work: Work) -> None:
        """A prepared pass was launched, or never will be: the slot its token comes from is free for later steps."""
        if work.source is not None:
            self._free_slots.append(work.source)
            work.source = None

    def free_slot(self, work: Work) -> None:
        """A pass has ended, and none was prepared from it."""
        if work.slot is not None:
            self._free_slots.append(work.slot)
            work.slot = None

    def _predictable(self, work: Work, room: int) -> bool:
        """A single token at its own place whose epilogue chooses the next one, with room for that, and somebody to ask for it."""
        context = work.context
        if not self._enabled or context is None or context.retired or context.distrust or work.epilogue is None:
            return False
        return (
            len(work.tokens) == 1
            and work.mask is None
            and work.observed is None
            and work.rows == (0,)
            and work.placement.positions == work.placement.places
            and work.epilogue.chooses_token
            and work.placement.places[-1] + 1 < room
        )


def _answer(parent: Work) -> int | None:
    """The token that the pass before chose, once it is known."""
    future = parent.future
    if not future.done() or future.cancelled() or future.exception() is not None:
        return None
    return int(future.result()[0].data[0])


def _matches(ahead: Work, request: Request, epilogue: Epilogue | None, token: int) -> bool:
    return (
        epilogue is not None
        and ahead.epilogue is not None
        and epilogue.digest == ahead.epilogue.digest
        and request.tokens == (token,)
        and request.mask is None
        and request.observed is None
        and request.rows == ahead.rows
        and request.parameters == ahead.parameters
        and request.placement.places == ahead.placement.places
        and request.placement.positions == ahead.placement.positions
        and request.placement.entries[: len(ahead.placement.entries)] == ahead.placement.entries
    )
