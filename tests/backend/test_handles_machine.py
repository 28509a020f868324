"""Level 1 against a model: pages are plain dictionaries of tokens, copied where the engine shares them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from pie_edge.control.handles import Handles, KvRange
from pie_edge.control.space import Space
from pie_edge.errors import InferletCancelled, InvalidHandle, OutOfPages
from tests.support.remembering_backend import RememberingBackend, answer
from tests.support.tiny import PAGE, SPEC, open_tiny

PAGES = 12
PAGE_BYTES = 2 * SPEC.layers * SPEC.kv_heads * SPEC.head_dim * 2 * PAGE
PROGRAMS = 2


@dataclass(eq=False)
class Page:
    space: Space
    handles: Handles
    handle: int
    tokens: dict[int, tuple[int, int]] = field(default_factory=dict)
    hidden: frozenset[int] = frozenset()

    @property
    def gone(self) -> bool:
        return self.space.closed

    @property
    def visible(self) -> list[tuple[int, int]]:
        return [key for slot, key in self.tokens.items() if slot not in self.hidden]


@dataclass(eq=False)
class Answer:
    space: Space
    results: Any
    row: int
    expected: int


class Programs(RuleBasedStateMachine):
    pages: Bundle[Page] = Bundle("pages")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.spaces: list[Space] = []
        self.answers: list[Answer] = []
        self.exports: dict[str, list[Page]] = {}
        self.position = 0

    def do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(what, 30))

    def inside(self, what: Callable[..., Any], *given: Any) -> Any:
        """Call it on the loop, as the host does."""

        async def call() -> Any:
            return what(*given)

        return self.do(call())

    def inside_of(self, page: Page, what: Callable[..., Any], *given: Any) -> Any:
        """The same, or nothing: its program may be ended for want of pages until the loop comes to it."""
        return self.inside(lambda: None if page.gone else what(*given))

    @initialize()
    def open(self) -> None:
        backend = RememberingBackend(SPEC.vocabulary, PAGE)
        self.engine = self.do(open_tiny(backend, kv_memory=PAGES * PAGE_BYTES, rows=12, shared_rows=6, sequences=3))

    def program(self, which: int) -> Space:
        while which >= len(self.spaces):
            self.spaces.append(self.engine.open_space(f"program {len(self.spaces)}", 0))
        if self.spaces[which].closed:
            self.spaces[which] = self.engine.open_space(f"program {which} again", 0)
        return self.spaces[which]

    @rule(target=pages, which=st.integers(0, PROGRAMS - 1), count=st.integers(1, 3))
    def allocate(self, which: int, count: int) -> Any:
        space = self.program(which)
        handles = self.engine.handles(space, top_k=2)
        if len(handles._pages) + count > PAGES:
            return multiple()
        return multiple(*(Page(space, handles, handle) for handle in handles.allocate_pages(count)))

    def pass_over(
        self, context: list[Page], into: Page, first: int, tokens: list[int], outputs: int, masked: bool
    ) -> None:
        """The mask shows every other token of what the pass names."""
        if into.gone:
            return
        context = [page for page in context if page.space is into.space]
        tokens = tokens[: PAGE - first]
        outputs, handles = min(outputs, len(tokens)), into.handles
        embeds, outs = handles.allocate_embeds(len(tokens)), handles.allocate_embeds(outputs)
        positions = list(range(self.position, self.position + len(tokens)))
        self.position = (self.position + len(tokens)) % 100
        handles.embed_text(embeds, tokens, positions)
        parts = [KvRange(page.handle, 0, PAGE) for page in context]
        written = [KvRange(into.handle, first, first + len(tokens))]
        named = [(page, slot) for page in context for slot in range(PAGE)]
        named += [(into, first + index) for index in range(len(tokens))]
        shown = [not masked or number % 2 == 0 for number in range(len(named))]

        def ask() -> list[tuple[Any, int]]:
            handles.forward(0, parts, embeds, written, outs, [shown] * len(tokens) if masked else None)
            asked = [handles.next_distribution(out) for out in outs]
            handles.free_embeds([*embeds, *outs])
            return asked

        asked = self.inside_of(into, ask)
        if asked is None:
            return
        new = {first + index: key for index, key in enumerate(zip(tokens, positions, strict=True))}
        into.tokens |= new
        places = {(page, slot) for (page, slot), seen in zip(named, shown, strict=True) if seen}
        for row, (results, index) in enumerate(asked, len(tokens) - outputs):
            later = {(into, slot) for slot in new if slot > first + row}
            seen = [page.tokens[slot] for page, slot in places - later if slot in page.tokens.keys() - page.hidden]
            self.answers.append(Answer(into.space, results, index, answer(seen, SPEC.vocabulary)))

    passes: ClassVar[dict[str, Any]] = {
        "context": st.lists(pages, max_size=4, unique=True),
        "into": pages,
        "first": st.integers(0, PAGE - 1),
        "tokens": st.lists(st.integers(0, SPEC.vocabulary - 1), min_size=1, max_size=PAGE),
        "outputs": st.integers(0, 2),
        "masked": st.booleans(),
    }
    # Most of what programs do are passes: rules are chosen evenly.
    forward = rule(**passes)(pass_over)
    forward_again = rule(**passes)(lambda self, **given: self.pass_over(**given))
    forward_once_more = rule(**passes)(lambda self, **given: self.pass_over(**given))
    forward_further = rule(**passes)(lambda self, **given: self.pass_over(**given))

    @rule(page=pages, hidden=st.frozensets(st.integers(0, PAGE - 1)))
    def mask(self, page: Page, hidden: frozenset[int]) -> None:
        if not page.gone:
            self.inside_of(page, page.handles.mask_page, 0, page.handle, [slot in hidden for slot in range(PAGE)])
            page.hidden = hidden

    @rule(
        source=pages,
        into=pages,
        first=st.integers(0, PAGE - 1),
        to=st.integers(0, PAGE - 1),
        count=st.integers(1, PAGE),
    )
    def copy(self, source: Page, into: Page, first: int, to: int, count: int) -> None:
        if source.gone or source.space is not into.space or source is into:
            return
        count = min(count, PAGE - first, PAGE - to)
        done = self.inside_of(source, source.handles.copy_tokens, 0, source.handle, into.handle, first, to, count)
        if done is None:
            return
        if any(first + i not in source.tokens for i in range(count)):
            self.do(self.end_of(done))
            assert isinstance(done.exception(), InvalidHandle | OutOfPages | InferletCancelled)
            return
        into.tokens |= {to + i: source.tokens[first + i] for i in range(count)}

    async def end_of(self, future: asyncio.Future[Any]) -> None:
        await asyncio.wait([future])

    @rule(some=st.lists(pages, min_size=1, max_size=3, unique=True), name=st.sampled_from("ab"))
    def export(self, some: list[Page], name: str) -> None:
        some = [page for page in some if page.space is some[0].space]
        if some[0].gone:
            return
        self.synchronize(some[0])
        if some[0].gone:
            return
        if name in self.exports:
            some[0].handles.withdraw(name)
        some[0].handles.export_pages([page.handle for page in some], name)
        self.exports[name] = [Page(p.space, p.handles, 0, dict(p.tokens), p.hidden) for p in some]

    @rule(target=pages, which=st.integers(0, PROGRAMS - 1), name=st.sampled_from("ab"))
    def take_export(self, which: int, name: str) -> Any:
        space = self.program(which)
        handles = self.engine.handles(space, top_k=2)
        if name not in self.exports:
            return multiple()
        pairs = zip(handles.import_pages(name), self.exports[name], strict=True)
        return multiple(*(Page(space, handles, h, dict(page.tokens), page.hidden) for h, page in pairs))

    @rule(page=consumes(pages))
    def free(self, page: Page) -> None:
        """At once, whatever still names it."""
        if not page.gone:
            self.inside_of(page, page.handles.free_pages, [page.handle])

    @rule(page=pages, what=st.sampled_from(("synchronize", "synchronize", "synchronize", "end")))
    def settle(self, page: Page, what: str) -> None:
        if what == "end":
            self.inside(page.space.close)
        else:
            self.synchronize(page)

    def synchronize(self, page: Page) -> None:
        done = self.inside_of(page, page.handles.synchronize, 0)
        if done is not None:
            self.do(self.end_of(done))

    @invariant()
    def answers_are_right(self) -> None:
        for one in [one for one in self.answers if one.results.done()]:
            self.answers.remove(one)
            error = one.results.exception()
            if error is None:
                assert one.results.result()[0].data[one.row * 2] == one.expected
            else:
                assert one.space.closed and isinstance(error, OutOfPages | InferletCancelled), error

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            try:
                self.do(self.finish())
            finally:
                self.do(self.engine.close())
        self.loop.close()

    async def finish(self) -> None:
        pending = [one.results for one in self.answers if not one.results.done()]
        if pending:
            _, late = await asyncio.wait(pending, timeout=20)
            assert not late
        self.answers_are_right()
        for space in self.spaces:
            space.close()
        while self.engine._flights or len(self.engine.calls):
            await asyncio.sleep(0)
        for name in list(self.engine.exports):
            self.engine.pool.give_back(self.engine.exports.pop(name))
        assert self.engine.pool.free + self.engine.prefixes.reclaimable == self.engine.pool.total
        assert not self.engine.pool.any_parked


TestPrograms = Programs.TestCase
TestPrograms.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
