"""Pages and working sets against a model: a dictionary of tokens per context, with plain copies instead of sharing."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pie_edge.control.pages import (
    PagePool,
    WorkingSet,
    discard,
    end_call,
    fork,
    make_writable,
    retire,
    slots_of,
    span_bits,
)
from pie_edge.errors import InvalidHandle, OutOfPages

PAGE = 8
TOTAL = 12


class Contexts(RuleBasedStateMachine):
    """``content`` plays the device: physical slot → token. Every context must read back what was written to it."""

    contexts: Bundle[int] = Bundle("contexts")

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(TOTAL, PAGE)
        self.content: dict[int, int] = {}
        self.real: dict[int, WorkingSet] = {}
        self.model: dict[int, dict[int, int]] = {}
        self.clock = 0

    @rule(target=contexts, count=st.integers(0, 4))
    def create(self, count: int) -> int:
        self.clock += 1
        free = self.pool.free
        try:
            pages = self.pool.take(count, "test")
        except OutOfPages as error:
            assert count > free
            assert f"asked for {count} KV pages" in str(error)  # noqa: PT017  (being refused is right when too many were asked for)
            pages = []
        self.real[self.clock], self.model[self.clock] = WorkingSet(pages, [0] * len(pages)), {}
        return self.clock

    @rule(target=contexts, parent=contexts)
    def fork(self, parent: int) -> int:
        self.clock += 1
        self.real[self.clock] = fork(self.pool, self.real[parent])
        self.model[self.clock] = dict(self.model[parent])
        return self.clock

    @rule(name=contexts, where=st.tuples(st.integers(0, 31), st.integers(1, 12)))
    def write(self, name: int, where: tuple[int, int]) -> None:
        context, start = self.real[name], where[0]
        end = min(start + where[1], context.capacity(PAGE))
        if end <= start:
            return
        before = list(context.pages), list(context.written)
        try:
            copies = make_writable(self.pool, context, start, end, "test")
        except OutOfPages:
            assert (context.pages, context.written) == before
            return
        for copy in copies:
            for slot in range(PAGE):
                if copy.source * PAGE + slot in self.content:
                    self.content[copy.target * PAGE + slot] = self.content[copy.source * PAGE + slot]
        for index, slot in zip(range(start, end), slots_of(context.pages, start, end, PAGE), strict=True):
            self.clock += 1
            self.content[slot] = self.model[name][index] = self.clock

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
        if first + count > len(context.pages):
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
            bits = context.visible(context.capacity(PAGE), PAGE)
            seen = {
                entry * PAGE + slot: self.content[page * PAGE + slot]
                for entry, page in enumerate(context.pages)
                for slot in range(PAGE)
                if bits[entry] >> slot & 1
            }
            assert seen == self.model[name]

    @invariant()
    def no_page_leaks(self) -> None:
        held = [page for context in self.real.values() for page in context.pages]
        assert self.pool.free == self.pool.total - len(set(held))
        assert all(self.pool.holders(page) == held.count(page) for page in set(held))
        assert 0 not in held


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
    context = WorkingSet(pool.take(2, "test"), [0, 0], pending=1)
    with pytest.raises(InvalidHandle, match="in use by 1 passes"):
        discard(pool, context, 0, 1)
