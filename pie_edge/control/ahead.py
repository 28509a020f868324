"""Run-ahead: the next pass of an unmodified program, prepared and run before the program asks for it.

A program that decodes asks, pass after pass, for the token it was just given, one place further, with the same
epilogue. So while such a pass is on the device, the next one is put behind it, its token taken from the first one's cell.
When the program then asks for just that, the answer is there or under way (a *hit*); anything else it may ask
drops the prepared pass (a *miss*) and takes the ordinary path. Only time changes, never a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pie_edge.control.cells import Cell, Taken, number_of
from pie_edge.control.pages import WorkingSet
from pie_edge.control.queue import Placement, Work
from pie_edge.control.space import Request, Space
from pie_edge.sampling import Epilogue

DISTRUST = 16
"""Passes of a context that go unpredicted after a miss; doubled with each further one, up to sixteen times that."""

Make = Callable[[Space, Request, Epilogue | None, Iterable[int]], Work]
"""Makes the work of a request; the last argument is the outputs, by number, that later passes may take."""


class RunAhead:
    """At most one prepared pass a context. ``on_drop`` is told of a prepared pass that nobody will ask for."""

    def __init__(self, depth: int, on_drop: Callable[[Work], None]) -> None:
        self.hits = 0
        self.misses = 0
        self.enabled = depth > 0
        self._on_drop = on_drop
        self._prepared: dict[WorkingSet, Work] = {}

    def predict(self, work: Work, room: int, make: Make) -> Work | None:
        """The pass after ``work``, which was asked for and is launched; None where there is nothing to go by.

        ``room`` is how many tokens its context can hold.
        """
        context = work.context
        if context is None or context in self._prepared or not self._is_predictable(work, room):
            return None
        place = work.placement.places[-1] + 1
        token = work.cells[0]
        request = Request(
            queue=work.queue,
            tokens=(Taken(token, 0),),
            rows=(0,),
            placement=Placement(work.placement.entries, (place,), (place,)),
            context=context,
            epilogue=None,
            parameters=work.parameters,
            sources=(token,),
            adapter=work.adapter,
        )
        ahead = self._prepared[context] = make(work.space, request, work.epilogue, work.cells)
        ahead.confirmed, ahead.adopted = False, 0
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
        if not _matches(found, request, epilogue):
            self.drop(context)
            return None
        del self._prepared[context]
        self.hits += 1
        context.misses = 0
        found.confirmed = True
        if not request.sources:
            # Given by its number: from now on there is nothing to wait for, nor to look up.
            found.tokens, found.sources = request.tokens, ()
        return found

    def drop(self, context: WorkingSet) -> None:
        """The context goes another way than was foreseen, or changes in a way that no prepared pass knows of."""
        found = self._prepared.pop(context, None)
        if found is not None:
            self.misses += 1
            context.misses += 1
            context.distrust = DISTRUST << min(context.misses - 1, 4)
            self._on_drop(found)

    def forsake(self, work: Work) -> None:
        """A pass came to nothing: so does the one that was prepared behind it."""
        context = work.context
        found = None if context is None else self._prepared.get(context)
        if context is not None and found is not None and not set(found.sources).isdisjoint(work.cells.values()):
            self.drop(context)

    def wanted(self, work: Work) -> bool:
        """Whether somebody may still ask for a prepared pass."""
        return work.context is not None and self._prepared.get(work.context) is work

    def _is_predictable(self, work: Work, room: int) -> bool:
        """A single token at its own place whose epilogue chooses the next one, with room for that, in a context that somebody
        still has."""
        context = work.context
        if not (self.enabled and work.predictable) or context is None or work.epilogue is None:
            return False
        if context.distrust or context.retired:
            return False
        return (
            len(work.tokens) == 1
            and work.mask is None
            and work.observed is None
            and work.rows == (0,)
            and work.placement.positions == work.placement.places
            and work.epilogue.chooses_token
            and work.cells[0].ready
            and not any(isinstance(one, Cell) for one in work.parameters)
            and work.placement.places[-1] + 1 < room
        )


def _matches(ahead: Work, request: Request, epilogue: Epilogue | None) -> bool:
    return (
        _alike(epilogue, ahead.epilogue)
        and _asks_for(request, ahead)
        and request.mask is None
        and request.observed is None
        and request.adapter == ahead.adapter
        and request.rows == ahead.rows
        and request.parameters == ahead.parameters
        and request.placement.places == ahead.placement.places
        and request.placement.positions == ahead.placement.positions
        and request.placement.entries[: len(ahead.placement.entries)] == ahead.placement.entries
        and all(number in ahead.cells for number, _ in request.kept)
    )


def _alike(one: Epilogue | None, other: Epilogue | None) -> bool:
    """Whether the two compute and give back the same; the same text is the same object."""
    if one is None or other is None:
        return False
    return one is other or (one.digest == other.digest and one.returned == other.returned)


def _asks_for(request: Request, ahead: Work) -> bool:
    """Whether the token is the one that the pass before chooses: by its number, or by where it comes from."""
    if len(request.tokens) != 1:
        return False
    (asked,), (own,) = request.tokens, ahead.tokens
    token = number_of(own)
    return asked == own if token is None else number_of(asked) == token
