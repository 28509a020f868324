"""The control layer of models with recurrent state against a model: programs as in ``test_control_machine``, whose answers follow
from all tokens in their order, and which take tokens back, save and load contexts, and share them, while slots are scarce.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from pie_edge.control.engine import Engine
from pie_edge.errors import DeviceLost, InferletCancelled, InvalidHandle, Irreversible, OutOfPages
from tests.backend import test_control_machine as machine
from tests.backend.test_control_machine import PAGES, SPACES, Call, Context, prompt
from tests.support.remembering_backend import answer
from tests.support.remembering_states import advance, remembered
from tests.support.tiny import PAGE
from tests.support.tiny_hybrid import CONVOLVED, DELTA, KV_PAGE_BYTES, open_hybrid


class Recurrent(machine.Programs):
    contexts = machine.Programs.contexts
    recurrent = True

    @initialize(depth=st.sampled_from((0, 1)), disk=st.booleans(), recurs=st.booleans(), scarce=st.booleans())
    def open(self, depth: int, disk: bool, recurs: bool, scarce: bool) -> None:  # type: ignore[override]
        self.spec = DELTA if recurs else CONVOLVED
        self.scarce = scarce
        machine.Programs.open(self, depth, disk)

    async def opened(self, depth: int, park_memory: int) -> Engine:
        engine = await open_hybrid(
            self.backend,
            self.spec,
            kv_memory=PAGES * KV_PAGE_BYTES // 2,
            state_memory=int(self.scarce),
            rows=24,
            shared_rows=8,
            sequences=3,
            speculation_depth=depth,
            park_memory=park_memory,
        )
        assert engine.abilities.reversible is not None
        self.reversible = engine.abilities.reversible
        return engine

    # ---- what the model is like

    def answer(self, seen: list[tuple[int, int]], context: Context) -> int:
        keys = [context.tokens[place] for place in sorted(context.tokens)]
        return answer(seen, 64, remembered(keys, self.spec.kernel, recurs=self.spec is DELTA))

    def is_far(self, context: Context, start: int) -> bool:
        return 0 < start < context.high - self.reversible

    def may_fail(self, call: Call, error: BaseException, doubtful: bool) -> bool:
        if isinstance(error, Irreversible) and (call.is_far or doubtful or self.failed):
            return True
        return super().may_fail(call, error, doubtful) or (doubtful and isinstance(error, InvalidHandle))

    @property
    def ample(self) -> bool:
        slots = self.engine.slots
        assert slots is not None
        return super().ample and slots.free >= 4

    async def some_turns(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    # ---- what programs do

    @rule(context=contexts, back=st.integers(1, 24), count=st.integers(1, 20), kind=st.integers(0, 2))
    def take_back(self, context: Context, back: int, count: int, kind: int) -> None:
        """Other tokens in place of the last ones, which may be too many."""
        self.ask(context, back, count, kind, 0, False)

    @rule(context=contexts, drafts=st.integers(1, 8), accepted=st.integers(0, 8), turns=st.integers(1, 6))
    def speculate(self, context: Context, drafts: int, accepted: int, turns: int) -> None:
        """Passes of drafts that are rejected but for the first ones."""
        for turn in range(turns):
            if not context.gone:
                start = len(context.tokens)
                self.submit(context, prompt(turn % 3, start, drafts), start)
                kept = min(start + accepted, len(context.tokens))
                context.tokens = {place: key for place, key in context.tokens.items() if place < kept}

    @rule(context=contexts, count=st.integers(1, 30), kind=st.integers(0, 2))
    def restart(self, context: Context, count: int, kind: int) -> None:
        """From its first token on: whatever was, is known again."""
        if not context.gone:
            self.do(self.all_of(context))
        if not context.gone:
            context.doubtful = False
            self.submit(context, prompt(kind, 0, count), 0)

    @rule(target=contexts, context=contexts, which=st.integers(0, SPACES - 1), cut=st.integers(0, 8))
    def keep(self, context: Context, which: int, cut: int) -> Any:
        """Save a context, or its first tokens, and go on with what was saved in a program that may be another."""
        return self.moved_to(context, which, self.saved, max(len(context.tokens) - cut, 0))

    @rule(target=contexts, context=contexts, which=st.integers(0, SPACES - 1))
    def share(self, context: Context, which: int) -> Any:
        """Under a key, for whoever finds it."""
        return self.moved_to(context, which, self.shared, len(context.tokens))

    @rule(target=contexts, context=contexts, pages=st.integers(0, 4))
    def slice(self, context: Context, pages: int) -> Any:
        """Its first pages."""
        pages = min(pages, 0 if context.gone else context.space.capacity(context.handle) // PAGE)
        return self.moved_to(context, -1, self.sliced, min(pages * PAGE, len(context.tokens)), pages)

    def moved_to(self, context: Context, which: int, how: Any, length: int, *more: Any) -> Context:
        nothing = Context(context.space, -1, doubtful=True, lost=True)
        if not context.gone:
            self.do(self.all_of(context))
        space = self.spaces[which] if 0 <= which < len(self.spaces) else context.space
        if context.gone or context.doubtful or space.closed:
            return nothing
        try:
            handle = self.do(how(context, space, length, *more))
        except (OutOfPages, InferletCancelled, Irreversible, DeviceLost) as error:
            if isinstance(error, Irreversible) and not (self.failed or self.is_far(context, length)):
                raise
            return nothing
        return nothing if handle is None else self.copied(context, space, handle, length)

    async def saved(self, context: Context, space: Any, length: int) -> int:
        content = await self.engine.save_context(context.space, context.handle, length)
        handle: int = space.create_working_set(context.space.capacity(context.handle))
        self.engine.load_context(space, handle, content)
        return handle

    async def shared(self, context: Context, space: Any, length: int) -> int | None:
        context.space.share(context.handle, "key")
        try:
            await self.some_turns()
            found: int | None = space.adopt("key")
            return found
        finally:
            context.space.unshare("key")

    async def sliced(self, context: Context, space: Any, length: int, pages: int) -> int:
        handle: int = space.slice(context.handle, 0, pages)
        space.reserve(handle, 2)
        return handle

    # ---- what must hold

    @invariant()
    def slots_are_all_accounted_for(self) -> None:
        slots = self.engine.slots if hasattr(self, "engine") else None
        if slots is not None:
            held = {entry.page for state in self.states() for entry in state.entries} - {0}
            assert slots.free + len(held) <= slots.total
            assert slots.free + sum(bool(slots.holders(slot)) for slot in range(1, slots.total + 1)) == slots.total

    def states(self) -> list[Any]:
        return [context.state for space in self.engine.spaces for context in space.contexts() if context.state]

    async def finish(self) -> None:
        await super().finish()
        slots = self.engine.slots
        assert slots is not None
        assert slots.free == slots.total
        assert not slots.any_parked


TestRecurrent = Recurrent.TestCase
TestRecurrent.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


def test_the_order_of_tokens_shows_in_what_is_remembered() -> None:
    """The machine can fail: an answer follows from all tokens, those beyond the convolution too, and from their order."""
    keys = [(3, 0), (1, 1), (4, 2), (1, 3), (5, 4), (9, 5)]
    swapped = [keys[1], keys[0], *keys[2:]]
    assert remembered(keys, 4, recurs=True) != remembered(swapped, 4, recurs=True)
    assert remembered(keys, 4, recurs=False) == remembered(swapped, 4, recurs=False)
    assert remembered(keys, 4, recurs=False) != remembered([*keys[:2], keys[3], keys[2], *keys[4:]], 4, recurs=False)
    assert advance(0, keys[0]) != 0
