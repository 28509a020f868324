"""The prefix index: pages whose keys follow from known tokens, shared by whoever starts with the same ones.

A page's key is a hash chain over its tokens and all tokens before it, so equal keys mean equal prefixes. The index holds
a reference of its own to each page; what only it holds can be evicted, least recently used first, ends of chains before
their beginnings.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

from pie_edge.control.cells import Token, known, known_part
from pie_edge.control.pages import UNMAPPED, PagePool, WorkingSet

Key = bytes
ROOT: Key = b""
REMEMBERED = 65536
"""Evicted pages whose keys are kept, to tell what has to be computed again."""


def root(context: WorkingSet) -> Key:
    """What a context's chain begins with: keys that came through different adapters differ from the first page on."""
    return context.adapter.to_bytes(4, "little") if context.adapter else ROOT


def chain(parent: Key, tokens: Sequence[int]) -> Key:
    """The key of the page that holds ``tokens`` after the prefix ``parent``."""
    return hashlib.blake2b(parent + array("I", tokens).tobytes(), digest_size=16).digest()


def chained(tokens: Sequence[int], page_size: int, adapter: int) -> list[Key]:
    """The keys of the whole pages of tokens that begin a context."""
    key, keys = root(WorkingSet(adapter=adapter)), []
    for first in range(0, len(tokens) - page_size + 1, page_size):
        key = chain(key, tokens[first : first + page_size])
        keys.append(key)
    return keys


class PrefixIndex:
    """``evictions`` counts pages it gave up under pressure."""

    def __init__(self, pool: PagePool) -> None:
        self.evictions = 0
        self._evicted: OrderedDict[Key, None] = OrderedDict()
        self._pool = pool
        self._pages: OrderedDict[Key, int] = OrderedDict()
        self._names: dict[int, Key] = {}
        pool.reclaim = self.evict

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def reclaimable(self) -> int:
        return sum(self._pool.holders(page) == 1 for page in self._pages.values())

    def match(self, context: WorkingSet, tokens: Sequence[int]) -> list[int]:
        """Pages that hold the longest prefix of ``tokens`` in whole pages, after the context's history (whole pages too).

        They belong to the index until the caller holds them.
        """
        size, key = self._pool.page_size, self._end_of(context)
        if key is None:
            return []
        keys = []
        for first in range(0, len(tokens) - size + 1, size):
            key = chain(key, tokens[first : first + size])
            if key not in self._pages:
                break
            keys.append(key)
        self._touch(keys)
        return [self._pages[used] for used in keys]

    def covered(self, keys: Sequence[Key]) -> int:
        """How many of these, a chain from its beginning on, are here. They don't count as used for that."""
        return next((count for count, key in enumerate(keys) if key not in self._pages), len(keys))

    def key(self, context: WorkingSet, place: int, more: Sequence[Token]) -> Key | None:
        """Names the page that ``place`` is on, if the context's history, and ``more`` tokens after it, fill it and are known;
        else None."""
        if not context.plain:
            return None
        size, keys = self._pool.page_size, self._keys(context)
        number = place // size
        if number != len(keys):
            return keys[number] if number < len(keys) else None
        tokens = known_part([*context.history[number * size :], *more][:size])
        return chain(keys[-1] if keys else root(context), tokens) if len(tokens) == size else None

    def forgotten(self, context: WorkingSet, tokens: Sequence[int]) -> int:
        """How many of the whole pages that ``match`` was asked for had been here before, and were evicted lately."""
        size, key = self._pool.page_size, self._end_of(context) if self._evicted else None
        if key is None:
            return 0
        count = 0
        for first in range(0, len(tokens) - size + 1, size):
            key = chain(key, tokens[first : first + size])
            count += key in self._evicted
        return count

    def insert(self, context: WorkingSet) -> None:
        """Remember the context's pages that hold its history whole."""
        if not context.plain or context.indexed == len(context.history) // self._pool.page_size:
            return
        keys = self._keys(context)
        context.indexed = len(keys)
        for key, entry in zip(keys, context.entries, strict=False):
            if key not in self._pages and entry.page != UNMAPPED:
                self._pages[key] = entry.page
                self._evicted.pop(key, None)
                self._names[entry.page] = key
                self._pool.hold([entry.page])
        self._touch(keys)

    def evict(self, count: int) -> None:
        """Let go of up to ``count`` pages that nobody else holds."""
        idle = [key for key, page in self._pages.items() if self._pool.holders(page) == 1]
        for key in idle[:count]:
            self.remove(self._pages[key])
            self.evictions += 1
            self._evicted[key] = None
        while len(self._evicted) > REMEMBERED:
            self._evicted.popitem(last=False)

    def clear(self) -> None:
        """Nothing is there any more."""
        for page in list(self._names):
            self.remove(page)

    def others(self, page: int) -> int:
        """How many hold the page beside the index."""
        return self._pool.holders(page) - (page in self._names)

    def remove(self, page: int) -> None:
        """No longer share the page, if it is."""
        key = self._names.pop(page, None)
        if key is not None:
            del self._pages[key]
            self._pool.release([page])

    def _end_of(self, context: WorkingSet) -> Key | None:
        """The chain of a history of whole pages; None where it isn't one, or isn't known by now."""
        size = self._pool.page_size
        if not context.plain or len(context.history) % size:
            return None
        keys = self._keys(context)
        if len(keys) < len(context.history) // size:
            return None
        return keys[-1] if keys else root(context)

    def _keys(self, context: WorkingSet) -> list[Key]:
        """The chain of the history's whole pages, computed as far as it grew and its tokens are known."""
        size = self._pool.page_size
        for first in range(len(context.keys) * size, len(context.history) - size + 1, size):
            tokens = known(context.history[first : first + size])
            if tokens is None:
                break
            context.history[first : first + size] = tokens
            context.keys.append(chain(context.keys[-1] if context.keys else root(context), tokens))
        return context.keys

    def _touch(self, keys: Sequence[Key]) -> None:
        """Used now. The end of a chain becomes the older one, so that eviction shortens chains from their ends."""
        for key in reversed(keys):
            if key in self._pages:
                self._pages.move_to_end(key)
