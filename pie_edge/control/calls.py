"""Calls from being asked to being answered: what is queued, what run-ahead has prepared, and how each ends."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Sequence

from pie_edge.control import pages
from pie_edge.control.ahead import RunAhead
from pie_edge.control.batch import Batch
from pie_edge.control.cells import Cell, Slots
from pie_edge.control.pages import PagePool, WorkingSet
from pie_edge.control.queue import HostTensor, Queues, Work
from pie_edge.control.residency import Residency
from pie_edge.control.space import Request, Space
from pie_edge.control.statistics import Statistics
from pie_edge.errors import BackendError, InferletCancelled, InvalidHandle, NotFinite, PieError
from pie_edge.sampling import Epilogue

Results = tuple[HostTensor, ...]


class Calls:
    """Each call is answered once, with results or an error, and then holds nothing. ``wake`` is called when one may run."""

    def __init__(
        self,
        residency: Residency,
        slots: Slots,
        vocabulary: int,
        context_limit: int,
        speculation_depth: int,
        wake: Callable[[], None],
        statistics: Statistics,
    ) -> None:
        self.queues = Queues()
        self.prepared: list[Work] = []
        self.ahead = RunAhead(speculation_depth, self.unwanted)
        self.slots = slots
        self._vocabulary = vocabulary
        self._context_limit = context_limit
        self._pool: PagePool = residency.pool
        self._residency = residency
        self._wake = wake
        self._statistics = statistics
        self._arrivals = itertools.count(1)

    def __len__(self) -> int:
        return len(self.queues) + len(self.prepared)

    @property
    def foreseen(self) -> set[WorkingSet | None]:
        """The contexts whose next pass is prepared: nobody has to wait for them to ask."""
        return {ahead.context for ahead in self.prepared}

    def everything(self) -> list[Work]:
        return [*self.queues, *self.prepared]

    def waiting(self) -> list[Work]:
        """Those that may run now, in no order."""
        return [*self.queues.waiting(), *self.prepared]

    def heads(self) -> list[Work]:
        """Calls that may run now and that somebody still waits for, as they deserve it."""
        found = [work for work in self.queues.heads() if not work.future.done()]
        for work in found:
            self._use(work)
        return found

    def ask(self, space: Space, request: Request, epilogue: Epilogue | None) -> Work:
        """Take a checked call: a new one, or one that was prepared."""
        ahead = self.ahead.confirm(request, epilogue)
        if ahead is not None:
            self._take_up(ahead)
            return ahead
        work = self._work(space, request, epilogue, _kept(request, epilogue))
        work.asked = time.perf_counter()
        self._admit(work)
        self.queues.push(work)
        self._wake()
        return work

    def _work(self, space: Space, request: Request, epilogue: Epilogue | None, kept: Iterable[int]) -> Work:
        """``kept`` are the outputs, by number, that later passes may take."""
        work = Work(
            space=space,
            queue=request.queue,
            tokens=request.tokens,
            rows=request.rows,
            placement=request.placement,
            context=request.context,
            epilogue=epilogue,
            parameters=request.parameters,
            future=asyncio.get_running_loop().create_future(),
            arrival=next(self._arrivals),
            action=request.action,
            mask=request.mask,
            observed=request.observed,
            adapter=request.adapter,
            predictable=request.predictable,
            sources=request.sources,
            using=False,
        )
        if epilogue is not None:
            for number in kept:
                work.cells[number] = Cell(*epilogue.described(number))
        # One that waits for another pass leaves its pages to that one, should they be needed.
        if work.ready:
            self._use(work)
        return work

    def _use(self, work: Work) -> None:
        if not work.using:
            work.using = True
            pages.begin_use(work.context, work.placement.entries)

    def _admit(self, work: Work) -> None:
        """From now on the work counts as its space's."""
        if work.context is not None:
            work.context.pending += 1
            work.context.last_used = work.arrival
        work.space.waiting += 1

    def _take_up(self, ahead: Work) -> None:
        """What a program asks for was prepared: it waits, is under way, or is done."""
        self._admit(ahead)
        ahead.space.usage.predicted += 1
        if not ahead.done:
            ahead.asked = time.perf_counter()
            self.prepared.remove(ahead)
            self.queues.push(ahead)
            self._wake()
            return
        self._statistics.queued.add(0.0)
        self._residency.mark(ahead)
        if ahead.flying:
            # It keeps its place in the queue until it lands, so that what follows it is known.
            self.queues.push(ahead)
        self.predict([ahead])
        if not ahead.flying:
            self._answer(ahead, ahead.future.result())

    def predict(self, works: Sequence[Work]) -> None:
        """Prepare the passes that will follow these, unless they were asked for."""
        for work in works if self.ahead.enabled else ():
            if self.queues.is_followed(work):
                continue
            room = min(self._context_limit, len(work.placement.entries) * self._pool.page_size)
            ahead = self.ahead.predict(work, room, self._work)
            if ahead is not None:
                self.prepared.append(ahead)
                self._wake()

    def launch(self, works: Sequence[Work]) -> None:
        """Their last rows are about to be put on the device: their values get places there."""
        for work in works:
            for cell in work.cells.values():
                self.slots.hold(cell)
        self.prepared = [work for work in self.prepared if not work.flying]

    # ---- ends

    def deliver(self, work: Work, tensors: Results) -> None:
        """The results of its last rows are there."""
        if work.sources and (refusal := self._settle(work)) is not None:
            self.refuse(work, refusal)
            return
        for number, cell in work.cells.items():
            self.slots.release(cell)
            if cell.pending:
                cell.set(tensors[number].data.tobytes())
        if work.epilogue is not None and work.epilogue.returned < len(work.epilogue.outputs):
            # What is observed comes after all outputs.
            tensors = tensors[: work.epilogue.returned] + tensors[len(work.epilogue.outputs) :]
        if work.confirmed:
            self._answer(work, tensors)
        else:
            self._keep(work, tensors)

    def _answer(self, work: Work, tensors: Results) -> None:
        """Somebody asked for it, and here it is."""
        usage, now, adopted = work.space.usage, time.perf_counter(), work.adopted or 0
        usage.passes += 1
        usage.forwarded_tokens += len(work.tokens) - adopted
        if work.rows:
            usage.read_rows += len(work.rows)
            if not usage.first_result:
                usage.first_result = now
                self._statistics.first_results.add(now - work.space.opened)
            usage.last_result = now
        if len(work.tokens) >= self._pool.page_size:
            self._statistics.cached_shares.add(adopted / len(work.tokens))
        if work.context is not None:
            if len(work.tokens) == 1 and work.context.answered:
                self._statistics.intervals.add(now - work.context.answered)
            work.context.answered = now
        if self._statistics.tokens is not None:
            self._statistics.tokens.answered(work, tensors)
        self.finish(work, tensors)

    def finish(self, work: Work, tensors: Results) -> None:
        if not work.future.done():
            work.future.set_result(tensors)
        self._end(work)

    def fail(self, work: Work, error: Exception) -> None:
        """End it with an error, unless it was answered."""
        known = told(error)
        self._end(work, known)
        _refuse(work, known)

    def _settle(self, work: Work) -> PieError | None:
        """Once what a pass takes is known, it has that like anything else. Why it is worth nothing, if a source failed or is no
        token."""
        for cell in work.sources:
            if cell.error is not None:
                why, message = f"{work.space.name} takes a value of a pass that failed: ", str(cell.error)
                return type(cell.error)(why + message.removeprefix(why))
            if cell.value is None:
                return None
        for token in work.tokens:
            if not isinstance(token, int) and token.token is not None and token.token >= self._vocabulary:
                return InvalidHandle(
                    f"{token.cell.line}{work.space.name} embeds token {token.token}, which was computed on the device; the "
                    f"vocabulary has ids 0…{self._vocabulary - 1}"
                )
        work.settle()
        return None

    def refuse(self, work: Work, error: PieError) -> None:
        """A pass came to nothing: whoever asked for it hears of it, and its context is no example for others."""
        if work.context is not None:
            work.context.plain = False
        if work.confirmed:
            self.fail(work, error)
            return
        self._close(work, error)
        if work.context is not None and self.ahead.wanted(work):
            self.ahead.drop(work.context)
        else:
            self._release(work)

    def crash(self, step: Batch, error: Exception) -> None:
        """The step came to nothing: its calls fail."""
        for work in (part.work for part in step.slices):
            work.flying -= 1
            self.refuse(work, told(error))

    def fail_all(self, error: Exception) -> None:
        """Nothing on the device counts any more."""
        for work in list(self.prepared):
            self.unwanted(work)
        for work in list(self.queues):
            self.fail(work, error)

    def fail_waiting(self, error: Exception) -> None:
        """Those that aren't on the device: what comes of the others is told there."""
        for work in [work for work in self.queues if not work.flying]:
            self.fail(work, error)

    def forget(self, space: Space, reason: PieError) -> None:
        """The space is closed: what it asked ends with ``reason``."""
        for context in space.contexts():
            self.ahead.drop(context)
        for work in [work for work in self.queues if work.space is space]:
            # One under way ends when its step does: its pages are being written.
            if work.flying:
                _refuse(work, reason)
            else:
                self.fail(work, reason)

    def drop_hopeless(self) -> None:
        """End those that nobody waits for any more, and those that take what there won't be."""
        still = [work for work in self.queues if not work.flying and (work.sources or work.future.done())]
        # In the order they were asked in: one that ends may be another one's hope.
        for work in sorted(still, key=lambda work: work.arrival):
            if work.future.done():
                self._end(work, InferletCancelled(f"{work.space.name}: nobody waited for the pass any more"))
            elif (refusal := self._settle(work)) is not None:
                self.fail(work, refusal)

    def unwanted(self, work: Work) -> None:
        """Nobody will ask for a prepared pass. One that is on the device runs to its end unseen."""
        if work in self.prepared:
            self.prepared.remove(work)
        if not work.flying:
            self._release(work)
        work.space.usage.mispredicted += 1

    def _keep(self, work: Work, tensors: Results) -> None:
        """A prepared pass is done before anybody asked for it, or when nobody will any more."""
        self._release(work)
        if not work.future.done():
            work.future.set_result(tensors)

    def _end(self, work: Work, error: PieError | None = None) -> None:
        self.queues.finish(work)
        if work.ended:
            return
        work.ended = True
        work.space.waiting -= 1
        self._release(work)
        if error is not None:
            self._close(work, error)
        if work.context is not None:
            pages.end_call(self._pool, work.context)

    def _close(self, work: Work, error: PieError) -> None:
        """What it would have computed won't be known."""
        for cell in work.cells.values():
            self.slots.release(cell)
            cell.fail(error)
        self.ahead.forsake(work)

    def _release(self, work: Work) -> None:
        if work.using:
            work.using = False
            pages.end_use(self._pool, work.context, work.placement.entries)


def _kept(request: Request, epilogue: Epilogue | None) -> Sequence[int]:
    """The outputs, by number, that later passes may take: those that could be tokens, and those that go into channels."""
    if epilogue is None or request.context is None:
        return ()
    if not request.kept:
        return epilogue.embeddable
    return sorted({*epilogue.embeddable, *(number for number, _ in request.kept)})


def _refuse(work: Work, error: PieError) -> None:
    if not work.future.done():
        work.future.set_exception(error)
        work.future.exception()  # a caller that has gone doesn't make asyncio complain


def not_finite(work: Work, model: str) -> NotFinite:
    """The error of a pass whose logits, hidden states or attention are no numbers."""
    read = work.rows or (() if work.observed is None else work.observed.rows) or (len(work.tokens) - 1,)
    position = work.placement.positions[read[-1]]
    return NotFinite(
        f"{model} computed NaN or infinity for {work.space.name}'s token at position {position}: its weights are damaged, or its "
        "numbers overflow on this device; import the model again, or try `--backend cpu` and the setting exact"
    )


def told(error: Exception) -> PieError:
    """The error as callers see it."""
    if isinstance(error, PieError):
        return error
    found = BackendError(
        f"a step failed with {type(error).__name__}: {error}; this is a fault of pie-edge, please report it"
    )
    found.__cause__ = error
    return found
