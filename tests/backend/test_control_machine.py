"""The whole control layer against a model: every context is a plain dictionary of tokens, copied where the engine shares.

Programs ask what they like, in any order, while pages are scarce. Each answer is a hash of all that its row may see, so a page
that was shared, copied, parked, evicted or predicted wrongly shows in it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from pie_edge.control.batch import Batch
from pie_edge.control.engine import Engine
from pie_edge.control.loss import MOST
from pie_edge.control.pages import UNMAPPED
from pie_edge.control.queue import ForwardCall, OutputOf, Work
from pie_edge.control.space import Space
from pie_edge.errors import DeviceLost, InferletCancelled, Irreversible, OutOfPages
from tests.support.remembering_backend import RememberingBackend, answer
from tests.support.tiny import ARGMAX, PAGE, SPEC, open_tiny

PAGES = 14
PAGE_BYTES = 2 * SPEC.layers * SPEC.kv_heads * SPEC.head_dim * 2 * PAGE
SPACES = 5
ROOM = 6
"""Pages of the largest context."""


@dataclass(eq=False)
class Context:
    """What a working set ought to hold: (token, position) by place, None where a pass failed or was given up."""

    space: Space
    handle: int
    tokens: dict[int, tuple[int, int]] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    reached: int = 0
    """The furthest place that a pass was asked for."""
    doubtful: bool = False
    lost: bool = False
    """There never was such a working set."""
    high: int = 0
    """The place after its last token that there ever was."""
    calls: list[Call] = field(default_factory=list)

    @property
    def gone(self) -> bool:
        return self.lost or self.space.closed


@dataclass(eq=False)
class Call:
    context: Context
    name: int
    future: asyncio.Future[Any]
    expected: int
    far: bool
    """Whether it takes more back than can be counted on."""
    source: Call | None = None
    """Whose token it embeds, from the device."""

    @property
    def is_far(self) -> bool:
        """Whether it or one before it takes too much back."""
        return self.far or (self.source is not None and self.source.is_far)

    @property
    def given_up(self) -> bool:
        """Whether it or one before it was cancelled."""
        return self.future.cancelled() or (self.source is not None and self.source.given_up)


def prompt(kind: int, start: int, count: int) -> list[int]:
    return [(kind * 20 + place) % SPEC.vocabulary for place in range(start, start + count)]


class Programs(RuleBasedStateMachine):
    contexts: Bundle[Context] = Bundle("contexts")
    recurrent = False
    """Whether the model has more than keys and values: then no token can be hidden."""
    window = 0
    """Tokens that every layer sees; 0: all."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.backend = RememberingBackend(SPEC.vocabulary, PAGE, self.window)
        self.spaces: list[Space] = []
        self.calls: list[Call] = []
        self.names = itertools.count()
        self.waited: Counter[Work] = Counter()
        self.ahead_of: dict[Work, int] = {}
        self.failed = False

    def do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(what, 30))

    def inside(self, what: Callable[..., Any], *given: Any) -> Any:
        """Call it on the loop, as the host does; None if the program was ended by then, since pages ran out."""

        async def call() -> Any:
            space = getattr(what, "__self__", None)
            return None if isinstance(space, Space) and space.closed else what(*given)

        return self.do(call())

    @initialize(depth=st.sampled_from((0, 1)), disk=st.booleans())
    def open(self, depth: int, disk: bool) -> None:
        self.engine: Engine = self.do(self.opened(depth, (1 << 20) if disk else 3 * PAGE_BYTES))
        launch = self.engine._device.launch

        async def watched(step: Batch, opened: int, landed: Any) -> Any:
            self.watch(step)
            return await launch(step, opened, landed)

        self.engine._device.launch = watched  # type: ignore[method-assign]

    async def opened(self, depth: int, park_memory: int) -> Engine:
        return await open_tiny(
            self.backend,
            spec=replace(SPEC, window=self.window),
            kv_memory=PAGES * PAGE_BYTES,
            rows=24,
            shared_rows=8,
            sequences=3,
            speculation_depth=depth,
            park_memory=park_memory,
        )

    # ---- what the model is like

    def answer(self, seen: list[tuple[int, int]], context: Context) -> int:
        """What follows the tokens of a context, of which these are seen."""
        return answer(seen, SPEC.vocabulary)

    def is_far(self, context: Context, start: int) -> bool:
        return False

    def may_fail(self, call: Call, error: BaseException, doubtful: bool) -> bool:
        """Whether a call may end so that nobody gave up, and whose device wasn't lost. Was its context doubtful before?"""
        return call.context.space.closed and isinstance(error, InferletCancelled | OutOfPages)

    # ---- what must hold of every step

    def watch(self, step: Batch) -> None:
        """No page has two writers, a queue's calls run in order, and nobody waits for longer than those before it take."""
        owners = Counter(
            entry.page for space in self.engine.spaces for entry in space.entries() if entry.page != UNMAPPED
        )
        written = Counter(entry.page for part in step.slices for entry, _ in part.writes)
        for page, writers in written.items():
            assert writers == 1, f"{writers} passes of a step write page {page}"
            assert owners[page] <= 1, f"page {page} is written, and {owners[page]} contexts read it"
            assert page not in self.engine.prefixes._names, f"page {page} is written and in the prefix index"
        running = {part.work for part in step.slices}
        ample = self.ample
        heads = self.engine.calls.queues.waiting()
        for work in heads:
            self.waited[work] = 0 if work in running else self.waited[work] + ample
            # Each step has one of those before it, or a chunk of it; those that come later don't pass it for ever.
            bound = self.ahead_of.setdefault(work, sum(max(w.remaining, 1) for w in heads) + SPACES)
            assert self.waited[work] <= bound, f"a call waits for {self.waited[work]} steps beside {len(heads)}"

    @property
    def ample(self) -> bool:
        """Whether nobody has to wait for room."""
        return self.engine.pool.free + self.engine.prefixes.reclaimable >= ROOM

    # ---- what programs do

    @rule(
        target=contexts,
        room=st.integers(2, ROOM),
        which=st.integers(0, SPACES - 1),
        count=st.integers(1, 40),
        kind=st.integers(0, 2),
        moved=st.sampled_from((0, 0, 0, 3)),
    )
    def begin(self, room: int, which: int, count: int, kind: int, moved: int) -> Any:
        """A context with a prompt. Tokens follow from ``kind`` and their place, so that prompts often begin alike."""
        if which >= len(self.spaces):
            self.spaces.append(self.engine.open_space(f"program {len(self.spaces)}", 0))
            which = len(self.spaces) - 1
        space = self.spaces[which]
        if space.closed:
            self.spaces[which] = space = self.engine.open_space(f"program {which} again", 0)
        context = Context(space, space.create_working_set(room * PAGE))
        self.submit(context, prompt(kind, 0, count), 0, moved)
        return context

    @rule(
        context=contexts,
        back=st.integers(0, 4),
        count=st.integers(1, 30),
        kind=st.integers(0, 2),
        moved=st.sampled_from((0, 0, 0, 3)),
        masked=st.sampled_from((False, False, False, True)),
    )
    def ask(self, context: Context, back: int, count: int, kind: int, moved: int, masked: bool) -> None:
        """More tokens, which may replace the last ones. All after them is forgotten."""
        if not context.gone:
            start = max(len(context.tokens) - back, 0)
            self.submit(context, prompt(kind, start, count), start, moved, masked and not self.recurrent)

    @rule(some=st.lists(contexts, min_size=1, max_size=6, unique=True), count=st.integers(1, 12))
    def decode(self, some: list[Context], count: int) -> None:
        """Side by side, and as run-ahead foresees it."""
        self.do(self.all_decode(some, count))

    async def all_decode(self, some: list[Context], count: int) -> None:
        await asyncio.gather(*(self.decode_one(context, count) for context in some))

    async def decode_one(self, context: Context, count: int) -> None:
        for _ in range(count):
            if context.gone or not context.calls or context.doubtful:
                return
            last = context.calls[-1]
            await asyncio.wait([last.future])
            if context.gone or last.future.cancelled() or last.future.exception() is not None:
                return
            self.ask_now(context, [last.expected], len(context.tokens))

    @rule(context=contexts, source=contexts, count=st.integers(1, 8))
    def take(self, context: Context, source: Context, count: int) -> None:
        """Passes that embed what another, or the one before, has computed: nobody awaits it."""
        if context.gone or not source.calls or source.space is not context.space:
            return
        context.doubtful |= source.doubtful
        last: Call | None = source.calls[-1]
        for _ in range(count):
            if last is not None:
                last = self.inside(self.ask_now, context, [last.expected], len(context.tokens), 0, False, last)

    def submit(self, *call: Any) -> None:
        self.inside(self.ask_now, *call)

    def ask_now(
        self,
        context: Context,
        tokens: list[int],
        start: int,
        moved: int = 0,
        masked: bool = False,
        source: Call | None = None,
    ) -> Call | None:
        if context.gone:
            return None
        tokens = tokens[: context.space.capacity(context.handle) - start]
        if not tokens:
            return None
        end = start + len(tokens)
        far = self.is_far(context, start)
        context.high = max(context.high, end) if start else end
        kept = {place: key for place, key in context.tokens.items() if place < start}
        new = {place: (token, place + moved) for place, token in enumerate(tokens, start)}
        # The mask lets each token see every other place, and itself.
        masks = tuple(sum(1 << p for p in range(place + 1) if not (place - p) % 2) for place in new) if masked else None
        call = ForwardCall(
            context.handle,
            () if source else tuple(tokens),
            start,
            end,
            (len(tokens) - 1,),
            ARGMAX,
            positions=tuple(position for _, position in new.values()) if moved else None,
            mask=masks,
            embeds=((0, OutputOf(source.name, 0)),) if source else (),
            name=next(self.names),
        )
        assert call.name is not None
        submitted = self.submitted(context, call)
        if submitted is None:
            return None
        context.tokens = kept | new
        context.reached = max(context.reached, end)
        last = new[end - 1][1]
        seen = [
            key
            for place, key in context.tokens.items()
            if place not in context.hidden
            and (masks is None or masks[-1] >> place & 1)
            and (not self.window or last - key[1] < self.window)
        ]
        made = Call(context, call.name, submitted, self.answer(seen, context), far, source)
        context.calls.append(made)
        self.calls.append(made)
        return made

    def submitted(self, context: Context, call: ForwardCall) -> asyncio.Future[Any] | None:
        """Nothing is refused, unless it goes back by more than a page, to where keys are missed."""
        try:
            return context.space.submit(call)
        except Irreversible as error:
            refused = str(error)
        assert self.window
        assert "were released" in refused
        assert min(call.positions or range(call.start, call.end)) < context.reached - PAGE
        return None

    @rule(target=contexts, context=contexts)
    def fork(self, context: Context) -> Any:
        if not context.gone:
            self.do(self.all_of(context))
        if context.gone or context.doubtful:
            return Context(context.space, -1, doubtful=True, lost=True)
        handle = self.inside(context.space.fork, context.handle)
        if handle is None:
            return Context(context.space, -1, doubtful=True, lost=True)
        return self.copied(context, context.space, handle)

    def copied(self, context: Context, space: Space, handle: int, length: int = 1000) -> Context:
        tokens = {place: key for place, key in context.tokens.items() if place < length}
        hidden = {place for place in context.hidden if place < length}
        return Context(space, handle, tokens, hidden, context.reached, high=context.high)

    @rule(context=contexts, place=st.integers(0, 40), count=st.integers(1, 9), hide=st.booleans())
    def hide(self, context: Context, place: int, count: int, hide: bool) -> None:
        if context.gone:
            return
        self.do(self.all_of(context))
        if context.gone or place + count > context.space.capacity(context.handle) or self.recurrent:
            return
        self.inside(context.space.hide, context.handle, place, (hide,) * count)
        places = set(range(place, place + count))
        context.hidden = context.hidden | places if hide else context.hidden - places

    @rule(context=contexts, first=st.integers(0, 3))
    def discard(self, context: Context, first: int) -> None:
        """The pages from one on: what is before stays, and later tokens are written anew."""
        if context.gone:
            return
        self.do(self.all_of(context))
        if context.gone or context.doubtful:
            return
        held = context.space.capacity(context.handle) // PAGE
        if first > held:
            return
        self.inside(context.space.discard, context.handle, first, held - first)
        context.tokens = {place: key for place, key in context.tokens.items() if place < first * PAGE}
        context.hidden = {place for place in context.hidden if place < first * PAGE}
        self.inside(context.space.reserve, context.handle, held - first)

    @rule(context=consumes(contexts))
    def drop(self, context: Context) -> None:
        if not context.gone:
            self.inside(context.space.drop, context.handle)

    @rule(context=contexts, priority=st.integers(-1, 1))
    def prefer(self, context: Context, priority: int) -> None:
        context.space.set_priority(context.handle, priority)

    @rule(context=contexts, what=st.sampled_from(("give up", "end", "lose the device")))
    def mishap(self, context: Context, what: str) -> None:
        if what == "give up" and context.calls and not context.calls[-1].future.done():
            context.calls[-1].future.cancel()
            context.doubtful = True  # whether the pass has run or not, nobody knows
        elif what == "end":
            self.inside(context.space.close)
        elif what == "lose the device" and self.engine.losses._in_a_row < MOST - 2:  # more in a row, and it is given up
            self.failed = True
            self.backend.fail_next = DeviceLost("the device went away")

    @rule(turns=st.integers(1, 20))
    def go_on(self, turns: int) -> None:
        async def turn() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.do(turn())

    # ---- what they get

    async def all_of(self, context: Context) -> None:
        pending = [call.future for call in context.calls if not call.future.done()]
        if pending:
            await asyncio.wait(pending)
        self.check()

    def check(self) -> None:
        """Those that were answered, were answered right; or with what happened."""
        for call in [call for call in self.calls if call.future.done()]:
            self.calls.remove(call)
            if call.future.cancelled():
                call.context.doubtful = True
                continue
            error, doubtful = call.future.exception(), call.context.doubtful
            if error is not None:
                call.context.doubtful = True
                expected = call.given_up and isinstance(error, InferletCancelled)
                if not (expected or (self.failed and isinstance(error, DeviceLost))):
                    assert self.may_fail(call, error, doubtful), error
            elif not call.context.doubtful:
                assert int(call.future.result()[0].data[0]) == call.expected

    @invariant()
    def answers_are_right(self) -> None:
        self.check()

    @invariant()
    def pages_are_all_accounted_for(self) -> None:
        if not hasattr(self, "engine"):
            return
        pool, cached = self.engine.pool, list(self.engine.prefixes._pages.values())
        assert pool.free + len({page for page in range(1, pool.total + 1) if pool.holders(page)}) == pool.total
        assert all(pool.holders(page) >= 1 for page in cached)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            self.loop.close()
            return
        try:
            self.do(self.finish())
        finally:
            self.do(self.engine.close())
            self.loop.close()

    async def finish(self) -> None:
        """Every call completes or errors, and nothing stays behind."""
        pending = [call.future for call in self.calls if not call.future.done()]
        if pending:
            _, late = await asyncio.wait(pending, timeout=20)
            assert not late
        self.check()
        for space in self.spaces:
            space.close()
        engine = self.engine
        while engine._flights or engine.calls.prepared or len(engine.calls):
            await asyncio.sleep(0)
        assert engine.pool.free + engine.prefixes.reclaimable == engine.pool.total
        assert not engine.pool.any_parked
        assert engine.calls.slots.free == engine._device.cache.token_slots


TestPrograms = Programs.TestCase
TestPrograms.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


class WindowedPrograms(Programs):
    """Every layer sees little, so that pages behind it are released all the time: no answer may change by that."""

    window = 6

    @rule(context=Programs.contexts, back=st.integers(5, 40), count=st.integers(1, 30), kind=st.integers(0, 2))
    def go_back(self, context: Context, back: int, count: int, kind: int) -> None:
        """Further than a window reaches, or to the beginning."""
        if not context.gone:
            start = max(len(context.tokens) - back, 0)
            self.submit(context, prompt(kind, start, count), start)

    @rule(target=Programs.contexts, context=Programs.contexts, first=st.integers(0, 3), count=st.integers(1, 6))
    def slice(self, context: Context, first: int, count: int) -> Any:
        """Some pages, whose tokens keep their positions."""
        lost = Context(context.space, -1, doubtful=True, lost=True)
        if not context.gone:
            self.do(self.all_of(context))
        if context.gone or context.doubtful or len(context.tokens) <= first * PAGE:
            return lost
        held = context.space.capacity(context.handle) // PAGE
        count = min(count, held - first)
        handle = self.inside(context.space.slice, context.handle, first, count)
        if handle is None:
            return lost
        inside = range(first * PAGE, (first + count) * PAGE)
        tokens = {place - inside.start: key for place, key in context.tokens.items() if place in inside}
        hidden = {place - inside.start for place in context.hidden if place in inside}
        return Context(context.space, handle, tokens, hidden, reached=SPEC.context)

    @invariant()
    def released_pages_are_nobodys(self) -> None:
        if hasattr(self, "engine"):
            for space in self.engine.spaces:
                for context in space.contexts():
                    for one in context.gone:
                        for entry in context.entries[-(-one.first // PAGE) : one.end // PAGE]:
                            assert entry.page == UNMAPPED and not entry.written and entry.parked is None


TestWindowedPrograms = WindowedPrograms.TestCase
TestWindowedPrograms.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


def test_a_wrong_working_set_is_noticed_by_the_model_too() -> None:
    """The device's answers depend on what is seen: the machine can fail."""
    seen = [(3, 0), (1, 1), (4, 2)]
    assert len({answer(seen[:n], SPEC.vocabulary) for n in range(4)}) == 4
    assert answer(seen, SPEC.vocabulary) != answer([(3, 0), (1, 2), (4, 1)], SPEC.vocabulary)
