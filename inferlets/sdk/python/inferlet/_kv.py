"""The keys and values of a context: which of its tokens have been forwarded, on pages that grow as they are needed."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Awaitable, Sequence
from typing import Any

from inferlet import _loop, model
from inferlet.errors import ContextOverflow, Irreversible, PieError, UsageError
from inferlet.eta import ForwardPass, WorkingSet
from inferlet.eta.trace import Traced

_SPARE_PAGES = 4
"""Asked for beyond what is needed now, so that not every page costs a call. A page that isn't written takes no memory."""


class _Trunk:
    """What forks have in common while it is still being forwarded. Once it is, all of its ``users`` get their copies at once:
    if each made its own when it first runs, the first would be a step ahead of the others from then on."""

    def __init__(self, pages: WorkingSet, ready: asyncio.Future[Any]) -> None:
        self.pages = pages
        self.ready = ready
        self.users: list[weakref.ref[KV]] = []
        ready.add_done_callback(self._share)

    def _share(self, ready: asyncio.Future[Any]) -> None:
        # Whoever waits hears of a failure. The others start anew, so asyncio needn't complain that nobody looked.
        failed = ready.cancelled() or ready.exception() is not None
        for user in self.users:
            kv = user()
            if kv is not None:
                # A copy that can't be had is no loss either.
                with contextlib.suppress(PieError):
                    kv.leave(self, None if failed else self.pages)
        self.pages.close()


class KV:
    """The first ``seen`` tokens of a context are in it. One pass at a time: the caller sees to that."""

    def __init__(self, seed: int, adapter: str | None = None) -> None:
        self.seen = 0
        self.adapter = adapter
        self._seed = seed
        self._pages: WorkingSet | None = None
        self._trunk: _Trunk | None = None
        self._running = False
        self._valid = 0
        """How many of the tokens that are being forwarded are still those of the context."""
        self._closed = False

    async def forward(self, tokens: Sequence[int], epilogue: Traced | None) -> Any:
        """Forwards ``tokens[seen:]``, and again what ``epilogue`` reads; gives what it made of the last logits."""
        try:
            return await self._forward(tokens, epilogue)
        except Irreversible:
            # What was truncated is in a recurrent state for good: all of the others are forwarded anew.
            self.rewind(0)
            return await self._forward(tokens, epilogue)

    async def _forward(self, tokens: Sequence[int], epilogue: Traced | None) -> Any:
        pages = await self.pages()
        if not tokens:
            raise UsageError("the context is empty, so there are no logits to read; fill it first")
        if epilogue is not None:
            self.rewind(max(len(tokens) - epilogue.rows, 0))
        step = self._pass(pages, tokens)
        output = None if epilogue is None else step.epilogue(epilogue)
        answer: Awaitable[Any] | None = step.launch(_loop.current()) or output
        assert answer is not None
        self._running, self._valid = True, len(tokens)
        try:
            found = await answer
        finally:
            self._running = False
        # Only now: what failed or was cancelled has to be forwarded again.
        if self._pages is pages:
            self.seen = self._valid
        return found

    def fork(self, tokens: Sequence[int], seed: int) -> KV:
        """A copy that shares pages. Of ``tokens``, those that weren't forwarded yet are, once for all forks, but the last one:
        each needs its logits for itself."""
        self._check_open()
        unseen = len(tokens) - 1 - self.seen
        if unseen > 0 and self._trunk is None and not self._running and _loop.running() is not None:
            self._start_trunk(tokens[:-1])
        return self._copy(seed)

    def hold(self, pages: WorkingSet, seen: int) -> None:
        """Pages that were filled elsewhere with the first ``seen`` tokens, in place of its own."""
        self._release()
        self._pages, self.seen = pages, seen

    async def share(self, key: str, seconds: float | None) -> None:
        (await self.pages()).add(key, seconds=seconds)

    def resume(self, key: str, seen: int) -> bool:
        """Holds what was shared, if it is there: ``seen`` tokens, and the room for them."""
        found = WorkingSet.find(key)
        if found is None:
            return False
        try:
            self.hold(found.fork(seed=self._seed), seen)
        finally:
            found.close()
        return True

    def adopt(self, other: KV) -> None:
        """Takes over what ``other`` holds, in place of its own."""
        other._check_open()
        copy = other._copy(self._seed)
        self._release()
        self.seen, self._pages = copy.seen, copy._pages
        if copy._trunk is not None:
            self._join(copy._trunk)

    def rewind(self, count: int) -> None:
        """Only the first ``count`` tokens still count."""
        self.seen, self._valid = min(self.seen, count), min(self._valid, count)

    def close(self) -> None:
        self._release()
        self._closed = True

    def _start_trunk(self, tokens: Sequence[int]) -> None:
        pages = self._pages or WorkingSet(0, seed=self._seed)
        ready = self._pass(pages, tokens).launch(_loop.current())
        assert ready is not None
        self._join(_Trunk(pages, ready))
        self._pages, self.seen = None, len(tokens)

    def _copy(self, seed: int) -> KV:
        copy = KV(seed, self.adapter)
        copy.seen = self.seen
        if self._trunk is not None:
            copy._join(self._trunk)
        elif self._pages is not None:
            copy._pages = self._pages.fork(seed=seed)
        return copy

    async def pages(self) -> WorkingSet:
        """Those of this context alone, to write to."""
        if self._trunk is not None:
            # Others wait for it too: one that is cancelled must not cancel it for them.
            await asyncio.shield(self._trunk.ready)
        self._check_open()
        if self._pages is None:
            self._pages = WorkingSet(0, seed=self._seed)
        return self._pages

    def leave(self, trunk: _Trunk, pages: WorkingSet | None) -> None:
        """The trunk is ready, on ``pages``, or has failed."""
        if self._trunk is not trunk:
            return
        seen, self.seen, self._trunk = self.seen, 0, None
        if pages is not None:
            self._pages, self.seen = pages.fork(seed=self._seed), seen

    def _join(self, trunk: _Trunk) -> None:
        self._trunk = trunk
        trunk.users.append(weakref.ref(self))

    def _pass(self, pages: WorkingSet, tokens: Sequence[int]) -> ForwardPass:
        _reserve(pages, len(tokens))
        step = ForwardPass()
        step.embed(tokens[self.seen :])
        step.bind_state(pages, pages.geometry(self.seen, len(tokens)))
        step.adapt(self.adapter)
        return step

    def _release(self) -> None:
        """Start from nothing."""
        pages, self._pages, self._trunk, self.seen = self._pages, None, None, 0
        if pages is not None:
            pages.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this context was closed; make another one, or fork it before closing")


def check_length(tokens: int) -> None:
    """Raises ContextOverflow for a context longer than the model can read."""
    limit = model.context_size()
    if tokens > limit:
        raise ContextOverflow(
            f"the context would be {tokens} tokens long, and {model.name()} can read {limit}: {tokens - limit} too many. "
            "Shorten the prompt, or truncate the context"
        )


def _reserve(pages: WorkingSet, tokens: int) -> None:
    check_length(tokens)
    if tokens > pages.capacity:
        size = model.page_size()
        most = -(-model.context_size() // size)
        wanted = min(-(-tokens // size) + _SPARE_PAGES, most)
        pages.reserve(wanted - pages.capacity // size)
