"""Which contexts' recurrent state is on the device: slots for a step, and who makes room when they run out.

A context that has to make room goes on when it gets slots again, so unlike pages even one that waits for its turn can, and those
that share: first those that wait for something else, then those that were asked for last. Pure: the engine moves the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pie_edge.control.pages import UNMAPPED, Copy, Entry, WorkingSet
from pie_edge.control.recurrence import StatePool
from pie_edge.control.residency import Move, Resident
from pie_edge.control.scheduler import Slice
from pie_edge.control.space import Space
from pie_edge.errors import OutOfPages


class SlotResidency(Resident):
    def __init__(self, pool: StatePool, handles: Iterator[int]) -> None:
        super().__init__(pool, handles)
        self._model = pool.model

    def of(self, context: WorkingSet) -> Iterable[Entry]:
        return () if context.state is None else context.state.entries

    def own(self, entry: Entry) -> bool:
        return entry.page != UNMAPPED and self.pool.holders(entry.page) == 1

    def refusal(self, space: Space) -> OutOfPages:
        return OutOfPages(
            f"{space.name} was ended: all {self.pool.total} slots of {self._model}'s recurrent state are in use and it started "
            "last. Run fewer inferlets at once, keep fewer contexts, or raise state_memory in the configuration"
        )

    def has_all(self, part: Slice) -> bool:
        """Whether the slice needs no slot more."""
        context = part.work.context
        return context is None or all(map(self.own, self.of(context)))

    def restored(self, part: Slice) -> list[Move]:
        """Bring the state of the slice's context back to the device. Raises OutOfPages, having changed nothing."""
        context = part.work.context
        if context is None or not self.pool.any_parked:
            return []
        moves = self.restore((entry for entry in self.of(context) if entry.parked is not None), part.work.space.name)
        part.work.space.usage.restored_states += len(moves)
        return moves

    def claim(self, part: Slice) -> Sequence[Copy]:
        """Say what recurrent state the slice's rows run on, which by these copies is its own to write.

        Raises OutOfPages, or what ``State.check`` does; nothing that counts has changed then.
        """
        work, context = part.work, part.work.context
        if context is None or context.state is None:
            return ()
        start = work.placement.places[part.first]
        part.span, copies = context.state.claim(work.placement.places[0], start, part.end, work.space.name)
        return copies

    def commit(self, part: Slice) -> None:
        """The slice goes to the device next."""
        context = part.work.context
        if context is not None and context.state is not None and part.span is not None:
            context.state.commit(part.span, counts=part.work.confirmed)

    def park(
        self,
        asking: WorkingSet | None,
        owned: Iterable[tuple[Space | None, WorkingSet]],
        *,
        busy: bool,
    ) -> list[Move]:
        """Take the slots of a context so that the one that is ``asking`` gets some: of one that nobody waits for, or, unless
        the device is ``busy`` and will free some, of the one that was asked for last. ``owned`` are all, with whose they are.

        Those that it shares with others go, too, if none of these is ``asking``, or in a step.
        """
        sharers: dict[int, list[Entry]] = {}
        kept = set()
        candidates = []
        for number, (space, context) in enumerate(owned):
            pages = [entry.page for entry in self.of(context) if entry.page != UNMAPPED]
            for entry in self.of(context):
                sharers.setdefault(entry.page, []).append(entry)
            if context is asking or (context.users and busy):
                kept.update(pages)
            elif pages:
                used = -context.last_used if context.users else context.last_used
                candidates.append((bool(context.users), used, number, space, pages))
        for *_, space, pages in sorted(candidates, key=lambda found: found[:3]):
            # A slot that is about to be copied has a holder more.
            free = [page for page in pages if page not in kept and self.pool.holders(page) == len(sharers[page])]
            if free:
                if space is not None:
                    space.usage.parked_states += len(free)
                return self.take(sharers[page] for page in free)
        return []

    def _holds(self, context: WorkingSet) -> bool:
        return any(entry.page != UNMAPPED for entry in self.of(context))
