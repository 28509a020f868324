"""KV pages: the pool, and the working sets that map an inferlet's tokens onto it.

Pure bookkeeping: it knows no device. Physical page 0 is never given out; padding rows of a step write there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pie_edge.errors import InvalidHandle, OutOfPages


class PagePool:
    """Reference-counted physical pages. A page is free when nobody holds it."""

    def __init__(self, total: int, page_size: int) -> None:
        self.total = total - 1
        self.page_size = page_size
        self._counts = [0] * total
        self._counts[0] = 1
        self._free = list(range(total - 1, 0, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    def holders(self, page: int) -> int:
        return self._counts[page]

    def take(self, count: int, who: str) -> list[int]:
        """``count`` fresh pages with one holder each. Raises OutOfPages and takes none when there are too few."""
        if count > len(self._free):
            raise OutOfPages(
                f"{who} asked for {count} KV pages of {self.page_size} tokens; {self.free} of {self.total} are free. "
                "Ask for fewer tokens, drop a context, or raise kv_memory in the configuration"
            )
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._counts[page] = 1
        return taken

    def hold(self, pages: Iterable[int]) -> None:
        for page in pages:
            self._counts[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        for page in pages:
            self._counts[page] -= 1
            if self._counts[page] == 0:
                self._free.append(page)
            elif self._counts[page] < 0:
                raise AssertionError(f"page {page} was released more often than held")


@dataclass(slots=True)
class WorkingSet:
    """The pages of one context, in order; ``written[i]`` has a bit per token of entry ``i`` that holds a key.

    ``pending`` counts the calls that still use it; a ``retired`` one gives its pages back when the last of them ends.
    """

    pages: list[int]
    written: list[int]
    pending: int = 0
    retired: bool = False

    def capacity(self, page_size: int) -> int:
        return len(self.pages) * page_size

    def visible(self, end: int, page_size: int) -> list[int]:
        """Bits of the written tokens before ``end``, for the entries that reach it."""
        entries = -(-end // page_size)
        return [self.written[i] & span_bits(i, 0, end, page_size) for i in range(entries)]


def span_bits(entry: int, start: int, end: int, page_size: int) -> int:
    """The bits of tokens ``start … end`` (of the context) that lie in page-table entry ``entry``."""
    first = min(max(start - entry * page_size, 0), page_size)
    last = min(max(end - entry * page_size, 0), page_size)
    return (1 << last) - (1 << first) if last > first else 0


@dataclass(frozen=True, slots=True)
class Copy:
    """A page whose content must be duplicated on the device before the pass that writes it."""

    source: int
    target: int


def make_writable(pool: PagePool, context: WorkingSet, start: int, end: int, who: str) -> tuple[Copy, ...]:
    """Give the context pages of its own for tokens ``start … end`` (copy-on-write) and mark them written.

    Raises OutOfPages and changes nothing when the pool can't supply the copies.
    """
    entries = range(start // pool.page_size, -(-end // pool.page_size))
    shared = [entry for entry in entries if pool.holders(context.pages[entry]) > 1]
    fresh = pool.take(len(shared), who)
    copies = []
    for entry, page in zip(shared, fresh, strict=True):
        old = context.pages[entry]
        # A page that is written whole needs no copy of what it replaces.
        if context.written[entry] & ~span_bits(entry, start, end, pool.page_size):
            copies.append(Copy(old, page))
        context.pages[entry] = page
        pool.release([old])
    for entry in entries:
        context.written[entry] |= span_bits(entry, start, end, pool.page_size)
    return tuple(copies)


def retire(pool: PagePool, context: WorkingSet) -> None:
    """Its owner is done with it: give the pages back now, or when its last pending call ends."""
    context.retired = True
    if context.pending == 0:
        pool.release(context.pages)


def end_call(pool: PagePool, context: WorkingSet) -> None:
    """A pending call has ended, well or not."""
    context.pending -= 1
    if context.retired and context.pending == 0:
        pool.release(context.pages)


def fork(pool: PagePool, context: WorkingSet) -> WorkingSet:
    """The same tokens on the same pages; whoever writes a shared page first gets a copy."""
    pool.hold(context.pages)
    return WorkingSet(list(context.pages), list(context.written))


def discard(pool: PagePool, context: WorkingSet, first: int, count: int) -> None:
    """Give back ``count`` pages from entry ``first``; later entries move down and keep their positions."""
    if first < 0 or count < 0 or first + count > len(context.pages):
        raise InvalidHandle(
            f"pages {first}…{first + count} were asked to be discarded; the working set has {len(context.pages)}"
        )
    if context.pending:
        raise InvalidHandle(
            f"the working set is in use by {context.pending} passes; await them before discarding pages"
        )
    pool.release(context.pages[first : first + count])
    del context.pages[first : first + count]
    del context.written[first : first + count]


def slots_of(pages: Sequence[int], start: int, end: int, page_size: int) -> list[int]:
    """Physical slot (page · page size + offset) of each token ``start … end``."""
    return [pages[i // page_size] * page_size + i % page_size for i in range(start, end)]
