"""Pages and working sets against a model: a dictionary of tokens per context, with plain copies instead of sharing."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pie_edge.control.pages import (
    UNMAPPED,
    Entry,
    PagePool,
    WorkingSet,
    discard,
    end_call,
    fork,
    make_writable,
    retire,
    span_bits,
)
from pie_edge.control.prefix import PrefixIndex
from pie_edge.control.queue import Placement
from pie_edge.errors import InvalidHandle, OutOfPages

PAGE = 8
TOTAL = 12


class Contexts(RuleBasedStateMachine):
    """``content`` plays the device: physical slot → token. Every context must read back what was written to it."""

    contexts: Bundle[int] = Bundle("contexts")

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(TOTAL, PAGE)
        self.index = PrefixIndex(self.pool)
        self.content: dict[int, int] = {}
        self.stored: dict[int, dict[int, int]] = {}
        self.pool.forget = self.stored.pop  # type: ignore[assignment]
        self.real: dict[int, WorkingSet] = {}
        self.model: dict[int, dict[int, int]] = {}
        self.clock = 0

    @rule(target=contexts, count=st.integers(0, 4))
    def create(self, count: int) -> int:
        self.clock += 1
        self.real[self.clock], self.model[self.clock] = WorkingSet([Entry() for _ in range(count)]), {}
        return self.clock

    @rule(target=contexts, parent=contexts)
    def fork(self, parent: int) -> int:
        self.clock += 1
        self.real[self.clock] = fork(self.pool, self.real[parent])
        self.model[self.clock] = dict(self.model[parent])
        return self.clock

    @rule(name=contexts, start=st.integers(0, 31), count=st.integers(1, 12), kind=st.integers(0, 2))
    def write(self, name: int, start: int, count: int, kind: int) -> None:
        """Tokens follow from ``kind`` and their place, so that contexts often have equal prefixes."""
        context = self.real[name]
        end = min(start + count, context.capacity(PAGE))
        if end <= start:
            return
        places = range(start, end)
        writes = Placement(tuple(context.entries), tuple(places), tuple(places)).writes(0, end - start, PAGE)
        before = [(entry.page, entry.written) for entry in context.entries]
        if any(entry.parked is not None for entry, _ in writes):
            return
        try:
            copies = make_writable(self.pool, writes, "test")
        except OutOfPages as error:
            assert f"of {self.pool.total} are free" in str(error)  # noqa: PT017  (being refused is right when pages ran out)
            assert [(entry.page, entry.written) for entry in context.entries] == before
            return
        for copy in copies:
            for slot in range(PAGE):
                if copy.source * PAGE + slot in self.content:
                    self.content[copy.target * PAGE + slot] = self.content[copy.source * PAGE + slot]
        self.pool.release(copy.source for copy in copies)
        tokens = [kind * 1000 + place for place in places]
        for place, token in zip(places, tokens, strict=True):
            self.content[context.entries[place // PAGE].page * PAGE + place % PAGE] = self.model[name][place] = token
        context.record(start, tokens, PAGE)
        self.index.insert(context)

    @rule(name=contexts, kind=st.integers(0, 2))
    def adopt(self, name: int, kind: int) -> None:
        context = self.real[name]
        start = len(context.history)
        room = context.entries[start // PAGE :]
        if start % PAGE or not context.plain or any(e.written or e.parked is not None for e in room):
            return
        tokens = [kind * 1000 + place for place in range(start, context.capacity(PAGE))]
        pages = self.index.match(context, tokens)
        self.pool.hold(pages)
        for index, (entry, page) in enumerate(zip(room, pages, strict=False)):
            self.pool.release([entry.page])
            entry.page, entry.written = page, (1 << PAGE) - 1
            for slot in range(PAGE):
                self.model[name][start + index * PAGE + slot] = tokens[index * PAGE + slot]
        context.record(start, tokens[: len(pages) * PAGE], PAGE)

    @rule(name=contexts)
    def park(self, name: int) -> None:
        for entry in self.real[name].entries:
            if entry.page != UNMAPPED and self.pool.holders(entry.page) == 1:
                self.clock += 1
                page = self.pool.park([entry], self.clock)
                self.stored[self.clock] = {s: self.content.get(page * PAGE + s, -1) for s in range(PAGE)}

    @rule(name=contexts)
    def restore(self, name: int) -> None:
        for entry in self.real[name].entries:
            if entry.parked is None or (self.pool.free == 0 and self.index.reclaimable == 0):
                continue
            (page,), stored = self.pool.take(1, "test"), dict(self.stored[entry.parked])
            self.pool.unpark(entry, page)
            self.content |= {page * PAGE + slot: token for slot, token in stored.items()}

    @rule(name=consumes(contexts), pending=st.booleans())
    def drop(self, name: int, pending: bool) -> None:
        context, free = self.real.pop(name), self.pool.free
        context.pending = int(pending)
        retire(self.pool, context)
        if pending:
            assert self.pool.free == free
            end_call(self.pool, context)
        del self.model[name]

    @rule(name=contexts, first=st.integers(0, 3), count=st.integers(0, 3))
    def discard(self, name: int, first: int, count: int) -> None:
        context = self.real[name]
        if first + count > len(context.entries):
            with pytest.raises(InvalidHandle, match="discarded"):
                discard(self.pool, context, first, count)
            return
        discard(self.pool, context, first, count)
        kept = {}
        for index, value in self.model[name].items():
            if index < first * PAGE:
                kept[index] = value
            elif index >= (first + count) * PAGE:
                kept[index - count * PAGE] = value
        self.model[name] = kept

    @invariant()
    def every_context_reads_what_was_written_to_it(self) -> None:
        for name, context in self.real.items():
            seen = {}
            for number, entry in enumerate(context.entries):
                for slot in range(PAGE):
                    if entry.visible >> slot & 1:
                        stored = self.stored.get(entry.parked or 0, {}).get(slot)
                        there = self.content[entry.page * PAGE + slot] if stored is None else stored
                        seen[number * PAGE + slot] = there
            assert seen == self.model[name]

    @invariant()
    def no_page_leaks(self) -> None:
        held = [e.page for context in self.real.values() for e in context.entries if e.page != UNMAPPED]
        cached = list(self.index._pages.values())
        assert self.pool.free == self.pool.total - len({*held, *cached})
        assert all(self.pool.holders(page) == held.count(page) + cached.count(page) for page in {*held, *cached})
        assert 0 not in {*held, *cached}
        parked = {e.parked for context in self.real.values() for e in context.entries if e.parked is not None}
        assert set(self.stored) == parked

    def teardown(self) -> None:
        for context in self.real.values():
            retire(self.pool, context)
        self.index.evict(TOTAL)
        assert self.pool.free == self.pool.total
        assert not self.stored


TestContexts = Contexts.TestCase
TestContexts.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


def test_span_bits_cover_each_token_once() -> None:
    for start in range(20):
        for end in range(start, 24):
            found = [e * PAGE + s for e in range(3) for s in range(PAGE) if span_bits(e, start, end, PAGE) >> s & 1]
            assert found == list(range(start, end))


def test_releasing_twice_is_noticed() -> None:
    pool = PagePool(4, PAGE)
    pages = pool.take(1, "test")
    pool.release(pages)
    with pytest.raises(AssertionError, match="released more often"):
        pool.release(pages)


def test_pages_in_use_are_not_discarded() -> None:
    pool = PagePool(4, PAGE)
    context = WorkingSet([Entry(), Entry()], pending=1)
    with pytest.raises(InvalidHandle, match="in use by 1 passes"):
        discard(pool, context, 0, 1)
