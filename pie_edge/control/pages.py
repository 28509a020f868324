"""KV pages: the pool, and the working sets that map an inferlet's tokens onto it.

Pure bookkeeping: it knows no device. Physical page 0 is never given out: it stands for "no page yet", and padding rows of
a step write there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pie_edge.control.cells import Token
from pie_edge.control.gone import Gone, part_of, without
from pie_edge.errors import InvalidHandle, OutOfPages

if TYPE_CHECKING:
    from pie_edge.control.recurrence import State

UNMAPPED = 0


class PagePool:
    """Reference-counted physical pages. ``reclaim(count)`` is asked to let go of cached pages before a taker is refused, who is
    told ``growth``: what would make the pool larger."""

    def __init__(self, total: int, page_size: int, growth: str = "raise kv_memory in the configuration") -> None:
        self.growth = growth
        self.total = total - 1
        self.page_size = page_size
        self.reclaim: Callable[[int], None] = lambda count: None
        self.forget: Callable[[int], None] = lambda handle: None
        """Told of parked content that nobody holds any more."""
        self._parked: dict[int, int] = {}
        self._counts = [0] * total
        self._counts[UNMAPPED] = 1
        self._free = list(range(total - 1, 0, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def any_parked(self) -> bool:
        """Whether some entry's content is swapped out."""
        return bool(self._parked)

    def holders(self, page: int) -> int:
        return self._counts[page]

    def take(self, count: int, who: str) -> list[int]:
        """``count`` fresh pages with one holder each. Raises OutOfPages and takes none when there are too few."""
        if count > len(self._free):
            self.reclaim(count - len(self._free))
        if count > len(self._free):
            raise self.refusal(count, who)
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._counts[page] = 1
        return taken

    def refusal(self, count: int, who: str) -> OutOfPages:
        return OutOfPages(
            f"{who} asked for {count} KV pages of {self.page_size} tokens; {self.free} of {self.total} are free. "
            f"Ask for fewer tokens, drop a context, or {self.growth}"
        )

    def hold(self, pages: Iterable[int]) -> None:
        for page in pages:
            if page != UNMAPPED:
                self._counts[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        for page in pages:
            if page == UNMAPPED:
                continue
            self._counts[page] -= 1
            if self._counts[page] == 0:
                self._free.append(page)
            elif self._counts[page] < 0:
                raise AssertionError(f"page {page} was released more often than held")

    def park(self, entries: Sequence[Entry], handle: int) -> int:
        """Entries of one page, those that hold it, give it up; ``handle`` names its content from now on. The page."""
        page = entries[0].page
        for entry in entries:
            self.release([page])
            entry.page, entry.parked = UNMAPPED, handle
        self._parked[handle] = len(entries)
        return page

    def hold_parked(self, entry: Entry, handle: int) -> None:
        """The entry, which has no page, gets content that ``handle`` names."""
        entry.parked = handle
        self._parked[handle] = 1

    def unpark(self, entry: Entry, page: int) -> None:
        """The entry's content is on ``page`` again."""
        self._let_go(entry)
        entry.page = page

    def share(self, entry: Entry) -> Entry:
        """Another entry with the same content."""
        self.hold([entry.page])
        if entry.parked is not None:
            self._parked[entry.parked] += 1
        return Entry(entry.page, entry.written, entry.hidden, entry.parked)

    def give_back(self, entries: Iterable[Entry]) -> None:
        """The entries are no longer used."""
        for entry in entries:
            self.release([entry.page])
            entry.page, entry.written = UNMAPPED, 0
            self._let_go(entry)

    def retire(self, entry: Entry) -> None:
        """Its owner is done with it: give it back now, or when the last call that names it ends."""
        entry.retired = True
        if entry.users == 0:
            self.give_back([entry])

    def end_use(self, entry: Entry) -> None:
        entry.users -= 1
        if entry.retired and entry.users == 0:
            self.give_back([entry])

    def _let_go(self, entry: Entry) -> None:
        handle, entry.parked = entry.parked, None
        if handle is not None:
            self._parked[handle] -= 1
            if self._parked[handle] == 0:
                del self._parked[handle]
                self.forget(handle)


@dataclass(slots=True, eq=False)
class Entry:
    """One place of a page table. ``written`` has a bit per token whose key is there, ``hidden`` one per masked token.

    ``parked`` names the content while it is swapped out; then no physical page is held. ``users`` counts the calls that
    name this very entry; a ``retired`` one gives its page back when the last of them ends.
    """

    page: int = UNMAPPED
    written: int = 0
    hidden: int = 0
    parked: int | None = None
    users: int = 0
    retired: bool = False

    @property
    def visible(self) -> int:
        return self.written & ~self.hidden


@dataclass(slots=True, eq=False)
class WorkingSet:
    """The page table of one context, in order.

    ``history`` is the tokens from the first on that are known to have made the keys, or will be once an earlier pass has
    landed, for as long as the context is *plain*: nothing hidden, nothing moved, positions equal to places. Only plain contexts
    share prefixes. ``keys`` names the whole pages of the history as the prefix index does, which was told of the first
    ``indexed`` ones. ``pending`` counts the calls that still use it; a ``retired`` one gives its pages back when the last of
    them ends. ``users`` counts the passes that name its entries, those included that run-ahead prepared. ``last_used`` orders
    contexts by their last call. ``misses`` and ``distrust`` are run-ahead's: how often it guessed wrong in a row, and how many
    passes it won't guess. ``adapter`` is what the history went through: a context isn't plain that mixes them.
    """

    entries: list[Entry] = field(default_factory=list)
    history: list[Token] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    indexed: int = 0
    plain: bool = True
    pending: int = 0
    users: int = 0
    retired: bool = False
    last_used: int = 0
    misses: int = 0
    distrust: int = 0
    adapter: int = 0
    seed: int | None = None
    """What draws over this context derive from; None is its space's."""
    state: State | None = None
    """What it has beside pages, where the model is recurrent."""
    gone: list[Gone] = field(default_factory=list)
    """Places whose pages were released, being behind every layer's window."""
    answered: float = 0.0
    """When its last pass was, as ``time.perf_counter`` has it; 0 before the first."""

    def capacity(self, page_size: int) -> int:
        return len(self.entries) * page_size

    def record(self, start: int, tokens: Sequence[Token], page_size: int, adapter: int = 0) -> None:
        """``tokens`` are being written from place ``start`` on: what was known after it is no longer."""
        if start == 0:
            self.adapter = adapter
        if not self.plain or start > len(self.history) or adapter != self.adapter:
            self.plain = False
            return
        if start < len(self.history):
            del self.history[start:]
            del self.keys[start // page_size :]
            self.indexed = min(self.indexed, len(self.keys))
        self.history += tokens


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


def make_writable(
    pool: PagePool, writes: Iterable[tuple[Entry, int]], who: str, *, mark: bool = True
) -> tuple[Copy, ...]:
    """Give each entry a page of its own (mapped on first use, copied on write) and, with ``mark``, mark its bits written.

    ``writes`` pairs an entry with the bits of the tokens to be written there. The sources of the copies stay held: release
    them once the copying is on the device. Raises OutOfPages and changes nothing when the pool can't supply the pages.
    """
    wanted = list(writes)
    needing = [(entry, bits) for entry, bits in wanted if entry.page == UNMAPPED or pool.holders(entry.page) > 1]
    copies = []
    taken = pool.take(len(needing), who) if needing else ()
    for (entry, bits), page in zip(needing, taken, strict=True):
        # A page that is written whole needs no copy of what it replaces.
        if entry.written & ~bits:
            copies.append(Copy(entry.page, page))
        else:
            pool.release([entry.page])
        entry.page = page
    if mark:
        for entry, bits in wanted:
            entry.written |= bits
    return tuple(copies)


def retire(pool: PagePool, context: WorkingSet) -> None:
    """Its owner is done with it: give the pages back now, or when its last pending call ends."""
    context.retired = True
    if context.pending == 0:
        give_back(pool, context)


def give_back(pool: PagePool, context: WorkingSet) -> None:
    """All that a context holds."""
    pool.give_back(context.entries)
    if context.state is not None:
        context.state.give_back()


def begin_use(context: WorkingSet | None, entries: Iterable[Entry]) -> None:
    """A pass names the entries of a context, or single ones. A context, which may have thousands, counts for all of them."""
    if context is not None:
        context.users += 1
        return
    for entry in entries:
        entry.users += 1


def end_use(pool: PagePool, context: WorkingSet | None, entries: Iterable[Entry]) -> None:
    """The pass needs them no longer."""
    if context is not None:
        context.users -= 1
        return
    for entry in entries:
        pool.end_use(entry)


def end_call(pool: PagePool, context: WorkingSet) -> None:
    """A pending call has ended, well or not."""
    context.pending -= 1
    if context.retired and context.pending == 0:
        give_back(pool, context)


def fork(
    pool: PagePool, context: WorkingSet, first: int = 0, count: int | None = None, seed: int | None = None
) -> WorkingSet:
    """The same tokens on the same pages, or those of ``count`` pages from ``first``; who writes a shared page gets a copy."""
    copied = [pool.share(entry) for entry in context.entries[first : None if count is None else first + count]]
    whole = first == 0
    history = context.history[: len(copied) * pool.page_size] if whole else []
    keys, plain = context.keys[: len(copied)] if whole else [], context.plain and whole
    seed = context.seed if seed is None else seed
    indexed = min(context.indexed, len(keys))
    size = pool.page_size
    return WorkingSet(
        copied,
        history,
        keys,
        indexed,
        plain,
        adapter=context.adapter,
        seed=seed,
        state=None if context.state is None else context.state.share(len(copied) * size),
        gone=part_of(context.gone, first * size, (first + len(copied)) * size),
    )


def discard(pool: PagePool, context: WorkingSet, first: int, count: int) -> None:
    """Give back ``count`` pages from entry ``first``; later entries move down and keep their positions."""
    if first < 0 or count < 0 or first + count > len(context.entries):
        raise InvalidHandle(
            f"pages {first}…{first + count} were asked to be discarded; the working set has {len(context.entries)}"
        )
    if context.pending:
        raise InvalidHandle(
            f"the working set is in use by {context.pending} passes; await them before discarding pages"
        )
    pool.give_back(context.entries[first : first + count])
    del context.history[first * pool.page_size :]
    del context.keys[first:]
    context.indexed = min(context.indexed, first)
    context.gone = without(context.gone, first * pool.page_size, (first + count) * pool.page_size, closing=True)
    context.plain = context.plain and not any(entry.written for entry in context.entries[first + count :])
    if context.state is not None:
        context.state.truncate(first * pool.page_size)
    del context.entries[first : first + count]
