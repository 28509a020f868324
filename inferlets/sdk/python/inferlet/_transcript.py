"""The tokens of a context and their keys and values, kept together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from inferlet import _loop, model
from inferlet._host import LoadSnapshot, SaveSnapshot, host
from inferlet._kv import KV, check_length
from inferlet._seeds import derived
from inferlet.errors import InvalidHandle, Irreversible, UsageError
from inferlet.eta import WorkingSet
from inferlet.eta.trace import Traced


class Transcript:
    """``revision`` counts the changes, so that whoever builds on it notices somebody else's."""

    def __init__(self, seed: int, adapter: str | None = None) -> None:
        self.tokens: list[int] = []
        self.revision = 0
        self.seed = seed
        self._kv = KV(seed, model.checked_adapter(adapter))
        self._forks = 0
        self._lock = asyncio.Lock()

    @property
    def adapter(self) -> str | None:
        """What its tokens go through."""
        return self._kv.adapter

    @property
    def cached(self) -> int:
        """How many of the first tokens have been forwarded."""
        return self._kv.seen

    def fill(self, tokens: Sequence[int]) -> None:
        """Raises ContextOverflow, having changed nothing, beyond what the model can read."""
        check_length(len(self.tokens) + len(tokens))
        self.append(tokens)

    def append(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens
        self.revision += 1

    def truncate(self, length: int) -> None:
        """Back to its first ``length`` tokens."""
        del self.tokens[length:]
        self._kv.rewind(length)
        self.revision += 1

    async def forward(self, epilogue: Traced, extra: Sequence[int] = ()) -> Any:
        """What ``epilogue`` makes of the logits after the last token, or after the ``extra`` ones that follow it for this
        pass alone. Forwards what wasn't yet, and at least as many tokens as the epilogue reads."""
        async with self._lock:
            tokens = [*self.tokens, *extra] if extra else self.tokens
            found = await self._kv.forward(tokens, epilogue)
            self._kv.rewind(len(tokens) - len(extra))
            return found

    async def save(self, name: str, note: Callable[[int], str]) -> None:
        """Keeps it under ``name``, forwarding what wasn't yet, but the last token. ``note`` is told how many were."""
        async with self._lock:
            try:
                await self._save(name, note)
            except Irreversible:
                # As when tokens are forwarded.
                self._kv.rewind(0)
                await self._save(name, note)

    async def _save(self, name: str, note: Callable[[int], str]) -> None:
        if self._kv.seen < len(self.tokens) - 1:
            await self._kv.forward(self.tokens[:-1], None)
        pages = await self._kv.pages()
        await _loop.current().submit(SaveSnapshot(pages.handle(), name, self._kv.seen, note(self._kv.seen)))

    async def load(self, name: str) -> str:
        """Fills it, empty as it is, with what was kept under ``name``: the note. ``restore`` says what the tokens are."""
        handle = host().create_working_set(0, self.seed)
        note: str = await _loop.current().submit(LoadSnapshot(handle, name))
        self._kv.hold(WorkingSet(handle.capacity(), _handle=handle), 0)
        return note

    def restore(self, tokens: Sequence[int], seen: int, adapter: str | None = None) -> None:
        """What was loaded: ``seen`` of the tokens are in the pages, and came through ``adapter``."""
        self._kv.adapter = model.checked_adapter(adapter)
        self.fill(tokens)
        self._kv.seen = seen

    def fork(self, seed: int | None) -> Transcript:
        child = Transcript(derived(self.seed, self._forks) if seed is None else seed, self.adapter)
        self._forks += 1
        child._kv = self._kv.fork(self.tokens, child.seed)
        child.tokens = list(self.tokens)
        return child

    def adopt(self, other: Transcript) -> None:
        """The tokens of ``other``, which begin with these, and what it has forwarded of them."""
        self._kv.adopt(other._kv)
        self.append(other.tokens[len(self.tokens) :])

    async def share(self, key: str, seconds: float | None) -> None:
        """Forwards what wasn't yet, but the last token."""
        if len(self.tokens) < 2:
            raise UsageError(f"a context of {len(self.tokens)} tokens leaves nothing under {key!r}; fill it first")
        async with self._lock:
            if self._kv.seen < len(self.tokens) - 1:
                await self._kv.forward(self.tokens[:-1], None)
            await self._kv.share(key, seconds)

    def resume(self, key: str, tokens: list[int]) -> int:
        """What a shared context is sure to hold are all of its tokens but the last one."""
        if self.tokens:
            raise UsageError(f"a context of {len(self.tokens)} tokens can't resume {key!r}; do it in an empty one")
        check_length(len(tokens))
        if len(tokens) < 2 or not self._kv.resume(key, len(tokens) - 1):
            return 0
        self.append(tokens)
        return self._kv.seen

    def close(self) -> None:
        self._kv.close()


def check_tokens(tokens: Iterable[int]) -> list[int]:
    """Raises InvalidHandle for what is no token of the model."""
    found = list(tokens)
    size = model.vocabulary_size()
    wrong = [token for token in found if type(token) is not int or not 0 <= token < size]
    if wrong:
        raise InvalidHandle(f"{wrong[0]!r} is no token of this model; its ids are 0 to {size - 1}")
    return found
