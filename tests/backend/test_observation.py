"""Passes that observe their attention: what comes back is what whole passes say, whatever else the step has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pie_edge.backends.cpu.backend import open_cpu
from pie_edge.control.engine import Engine
from pie_edge.control.handles import Handles
from pie_edge.control.observation import Observation
from pie_edge.control.queue import ForwardCall, HostTensor
from pie_edge.control.space import Space
from pie_edge.errors import ContextOverflow, InvalidHandle, NotFinite, Unsupported
from pie_edge.model import llama
from pie_edge.program.observe import KIND
from tests.backend.test_engine import engine_on, expected, greedy, next_token, nothing_held, run
from tests.backend.test_handles import distribution, ranges
from tests.support import attention_oracle, tiny
from tests.support.oracle_run import Loaded
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import ARGMAX, PAGE, SPEC, random_weights

MODEL = Loaded(SPEC, llama, random_weights())
LONG = [(7 * i + i * i) % 64 for i in range(100)]
TOLERANCE = 1e-5


async def _reference() -> ReferenceBackend:
    return ReferenceBackend()


async def _cpu() -> Any:
    return await open_cpu(threads=2, memory=256 << 20)


on_both = pytest.mark.parametrize("opened", [_reference, _cpu], ids=["reference", "cpu"])


def on(opened: Callable[[], Any], test: Callable[[Engine], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def body() -> None:
        async with engine_on(await opened(), **settings) as engine:
            await test(engine)

    run(body)


def values(tensor: HostTensor) -> Any:
    assert tensor.dtype == "f32"
    return np.array(tensor.data).reshape(tensor.shape)


async def observe(
    space: Space, context: int, tokens: Sequence[int], start: int, layers: Sequence[int], rows: Sequence[int] = (-1,)
) -> Any:
    """[rows, pages]"""
    count = len(tokens)
    observed = Observation(tuple(layers), tuple(row % count for row in rows))
    (masses,) = await space.submit(ForwardCall(context, tuple(tokens), start, start + count, observed=observed))
    return values(masses)


def masses(
    tokens: Sequence[int], layers: Sequence[int], rows: Sequence[int] = (-1,), hidden: Sequence[int] = ()
) -> Any:
    return attention_oracle.masses(MODEL, list(tokens), layers, PAGE, hidden)[list(rows)]


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, atol=TOLERANCE)


@on_both
@pytest.mark.parametrize("layers", [(0,), (1,), (0, 1)])
def test_rows_of_a_prompt_are_observed_as_whole_passes_say(opened: Any, layers: tuple[int, ...]) -> None:
    async def test(engine: Engine) -> None:
        space = engine.open_space("one", 0)
        context = space.create_working_set(64)
        rows = (0, 3, 8, 20)
        close(await observe(space, context, LONG[:21], 0, layers, rows), masses(LONG[:21], layers, rows))
        space.close()
        assert nothing_held(engine)

    on(opened, test)


@on_both
def test_masses_come_after_what_the_epilogue_gives(opened: Any) -> None:
    async def test(engine: Engine) -> None:
        space = engine.open_space("both", 0)
        context = space.create_working_set(64)
        call = ForwardCall(context, tuple(LONG[:21]), 0, 21, (20,), ARGMAX, observed=Observation((1,), (5, 19)))
        token, found = await space.submit(call)
        assert [token.data[0]] == expected(LONG[:21], 1)
        close(values(found), masses(LONG[:21], (1,), (5, 19)))

    on(opened, test)


@on_both
def test_a_prompt_in_chunks_gives_what_a_whole_one_would(opened: Any) -> None:
    async def test(engine: Engine) -> None:
        space = engine.open_space("long", 0)
        context = space.create_working_set(128)
        rows = tuple(range(90, 100))
        close(await observe(space, context, LONG, 0, (0, 1), rows), masses(LONG, (0, 1), rows))
        assert engine.statistics.steps > 3

    on(opened, test)


@on_both
def test_pages_of_a_shared_prefix_are_in_the_masses(opened: Any) -> None:
    async def test(engine: Engine) -> None:
        first, second = engine.open_space("first", 0), engine.open_space("second", 0)
        await next_token(first, first.create_working_set(64), LONG[:40], 0)
        tokens = [*LONG[:33], 5, 6, 7]
        found = await observe(second, second.create_working_set(64), tokens, 0, (0, 1), (34, 35))
        close(found, masses(tokens, (0, 1), (34, 35)))
        assert second.usage.cached_tokens == 32

    on(opened, test)


@on_both
def test_passes_of_one_step_observe_what_each_asked_for(opened: Any) -> None:
    asked = [(LONG[:9], (0,)), (LONG[3:30], (1,)), (LONG[50:58], (0, 1)), (LONG[20:21], (1,)), (LONG[5:30], None)]

    async def ask(engine: Engine, tokens: list[int], layers: tuple[int, ...] | None) -> None:
        space = engine.open_space("some", 0)
        context = space.create_working_set(64)
        if layers is None:
            assert [await next_token(space, context, tokens, 0)] == expected(tokens, 1)
        else:
            close(await observe(space, context, tokens, 0, layers), masses(tokens, layers))

    async def test(engine: Engine) -> None:
        await asyncio.gather(*(ask(engine, *one) for one in asked))
        assert engine.statistics.largest_step > 2

    on(opened, test, rows=128, shared_rows=128)


@on_both
def test_a_fork_and_its_original_are_each_observed_over_their_own_pages(opened: Any) -> None:
    async def test(engine: Engine) -> None:
        space = engine.open_space("fork", 0)
        context = space.create_working_set(64)
        await next_token(space, context, LONG[:20], 0)
        branch = space.fork(context)
        one, two = await asyncio.gather(
            observe(space, context, [1, 2], 20, (0, 1)), observe(space, branch, [3, 4, 5], 20, (1,))
        )
        close(one, masses([*LONG[:20], 1, 2], (0, 1)))
        close(two, masses([*LONG[:20], 3, 4, 5], (1,)))

    on(opened, test)


@on_both
def test_hidden_tokens_have_no_mass_and_discarded_pages_are_none_of_the_pass_s(opened: Any) -> None:
    async def test(engine: Engine) -> None:
        space = engine.open_space("hide", 0)
        context = space.create_working_set(64)
        await next_token(space, context, LONG[:20], 0)
        space.hide(context, 0, (True,) * PAGE)
        found = await observe(space, context, LONG[20:21], 20, (0,))
        close(found, masses(LONG[:21], (0,), hidden=range(PAGE)))
        assert found[0, 0] == 0
        space.discard(context, 0, 1)
        observed = Observation((0,), (0,))
        call = ForwardCall(context, (LONG[20],), 12, 13, positions=(20,), observed=observed)
        (found,) = await space.submit(call)
        close(values(found), masses(LONG[:21], (0,), hidden=range(PAGE))[:, 1:])

    on(opened, test)


@on_both
def test_a_decoding_program_that_observes_now_and_then_gets_its_tokens_and_masses(opened: Any) -> None:
    async def test(engine: Engine) -> None:
        space = engine.open_space("now and then", 0)
        context, tokens, answer = space.create_working_set(128), [3, 1, 4], []
        for step in range(40):
            pending = tokens[-1:] if step else tokens
            start = len(tokens) - len(pending)
            observed = Observation((0, 1), (len(pending) - 1,)) if step % 20 == 15 else None
            call = ForwardCall(
                context, tuple(pending), start, len(tokens), (len(pending) - 1,), ARGMAX, observed=observed
            )
            token, *found = await space.submit(call)
            assert len(found) == (observed is not None)
            if found:
                close(values(found[0]), masses(tokens, (0, 1)))
            answer.append(int(token.data[0]))
            tokens.append(answer[-1])
        assert answer == expected([3, 1, 4], 40)
        assert space.usage.predicted
        assert space.usage.mispredicted == engine.calls.ahead.misses == 2

    on(opened, test)


def test_attention_that_is_no_number_is_an_error_of_the_pass_that_observes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = random_weights()
    damaged["1.q"][3] = np.nan
    monkeypatch.setattr(tiny, "random_weights", lambda: damaged)

    async def test(engine: Engine) -> None:
        space = engine.open_space("bad", 0)
        context = space.create_working_set(64)
        close(await observe(space, context, LONG[:20], 0, (0,)), masses(LONG[:20], (0,)))
        with pytest.raises(NotFinite, match="bad's token at position 18: its weights are damaged"):
            await observe(space, context, LONG[:20], 0, (1,), (3, 18))

    on(_reference, test)


@on_both
def test_passes_that_read_no_row_may_come_first_and_are_not_checked_by_the_rows_of_others(opened: Any) -> None:
    async def test(engine: Engine) -> None:
        first, second = engine.open_space("first", 0), engine.open_space("second", 0)
        contexts = [space.create_working_set(64) for space in (first, second)]
        unread = first.submit(ForwardCall(contexts[0], tuple(LONG[:9]), 0, 9))
        assert [await next_token(second, contexts[1], LONG[40:52], 0)] == expected(LONG[40:52], 1)
        assert await unread == ()
        assert engine.statistics.largest_step == 2

    on(opened, test)


def test_nothing_is_compiled_for_observing_until_somebody_observes_and_then_once() -> None:
    backend = ReferenceBackend()

    async def opened() -> ReferenceBackend:
        return backend

    async def test(engine: Engine) -> None:
        space = engine.open_space("cost", 0)
        await greedy(space, [3, 1, 4], 4)
        assert not any(bucket.observed for bucket in engine._device._models)
        for layers in ((0,), (1,), (0, 1)):
            context = space.create_working_set(64)
            await observe(space, context, LONG[:8], 0, layers)
        assert sum(bucket.observed > 0 for bucket in engine._device._models) == 1

    on(opened, test)


def level1(test: Callable[[Engine, Handles], Coroutine[Any, Any, None]], opened: Any = _reference) -> None:
    async def body(engine: Engine) -> None:
        await test(engine, engine.handles(engine.open_space("level1", 0), top_k=8))

    on(opened, body)


async def mass_of(handles: Handles, embed: int) -> Any:
    results, row = handles.attention_mass(embed)
    return values((await results)[-1])[row]


@on_both
def test_level_1_gives_masses_in_the_order_in_which_the_pass_first_named_its_pages(opened: Any) -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, embeds, outs = handles.allocate_pages(4), handles.allocate_embeds(30), handles.allocate_embeds(2)
        handles.embed_text(embeds, LONG[:30], list(range(30)))
        handles.forward(0, [], embeds[:28], ranges(kv, 0, 28), [])
        # The third page first, then the first one in two parts, then the second; the fourth, which is written, last.
        a, b, c, d = (ranges(kv, i * PAGE, min((i + 1) * PAGE, 28))[0] for i in range(4))
        order = [c, a._replace(last=3), b, a._replace(first=3), d]
        handles.forward(0, order, embeds[28:], ranges(kv, 28, 30), outs, layers=[0, 1])
        wanted = masses(LONG[:30], (0, 1), (28, 29))[:, [2, 0, 1, 3]]
        for index, embed in enumerate(outs):
            close(await mass_of(handles, embed), wanted[index])
        ids, _ = await distribution(handles, outs[1])
        assert ids[0] == expected(LONG[:30], 1)[0]

    level1(test, opened)


def test_pages_imported_and_a_mask_are_seen_as_the_pass_sees_them() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, embeds, (out,) = handles.allocate_pages(2), handles.allocate_embeds(13), handles.allocate_embeds(1)
        handles.embed_text(embeds, LONG[:13], list(range(13)))
        handles.forward(0, [], embeds[:12], ranges(kv, 0, 12), [])
        await handles.synchronize(0)
        handles.export_pages(kv, "shared")
        own = handles.import_pages("shared")
        hidden = (1, 2, 9)
        seen = [place not in hidden for place in range(13)]
        handles.forward(0, ranges(own, 0, 12), embeds[12:], ranges(own, 12, 13), [out], [seen], layers=[0])
        close(await mass_of(handles, out), masses(LONG[:13], (0,), hidden=hidden)[0])
        handles.withdraw("shared")

    level1(test)


LEVEL_2 = {
    "no layer": (Observation((), (0,)), "observes no layer; name at least one of 0…1"),
    "a layer beyond the last": (Observation((0, 2), (0,)), "observes layer 2; the model has layers 0…1"),
    "a layer twice": (Observation((1, 1), (0,)), r"observes layers \[1, 1\], one of them twice"),
    "no row": (Observation((1,), ()), r"observes layers \[1\] of no row"),
    "a row beyond the last": (Observation((1,), (3,)), r"observes rows \[3\] of 3"),
    "a row twice": (Observation((1,), (2, 2)), r"observes rows \[2, 2\] of 3"),
}


@pytest.mark.parametrize("case", LEVEL_2)
def test_what_cannot_be_observed_is_refused_and_changes_nothing(case: str) -> None:
    observation, said = LEVEL_2[case]

    async def test(engine: Engine) -> None:
        space = engine.open_space("asks", 0)
        context = space.create_working_set(64)
        with pytest.raises(InvalidHandle, match=f"asks {said}"):
            space.submit(ForwardCall(context, (3, 1, 4), 0, 3, observed=observation))
        assert await next_token(space, context, [3, 1, 4], 0) == expected([3, 1, 4], 1)[0]

    on(_reference, test)


def test_rows_that_do_not_fit_one_step_cannot_be_observed_in_one_pass() -> None:
    async def test(engine: Engine) -> None:
        space = engine.open_space("asks", 0)
        context = space.create_working_set(128)
        with pytest.raises(
            ContextOverflow, match="observes reaches 40 tokens back; one pass can read 8 rows, of its last 32"
        ):
            await observe(space, context, LONG, 0, (0,), (60, 99))

    on(_reference, test)


def test_level_1_refuses_what_nobody_observed() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, (e, out, empty) = handles.allocate_pages(1), handles.allocate_embeds(3)
        handles.embed_text([e], [5], [0])
        for embed, said in (
            (empty, "attention of embed 4, which no pass has filled"),
            (e, "no pass"),
            (99, "no embed 99"),
        ):
            with pytest.raises(InvalidHandle, match=said):
                handles.attention_mass(embed)
        handles.forward(0, [], [e], ranges(kv, 0, 1), [out])
        with pytest.raises(InvalidHandle, match="embed 3, and the pass that filled it observed no layer"):
            handles.attention_mass(out)
        for outs, layers, said in (([], [0], "of no row; name a row, or an output"), ([out], [], "observes no layer")):
            with pytest.raises(InvalidHandle, match=said):
                handles.forward(0, [], [e], ranges(kv, 0, 1), outs, layers=layers)
        handles.forward(0, [], [e], ranges(kv, 0, 1), [out], layers=[1])
        assert (await mass_of(handles, out)).tolist() == [1.0]

    level1(test)


class Blind(ReferenceBackend):
    """A backend whose kernels can't observe."""

    @property
    def limits(self) -> Any:
        found = super().limits
        return replace(found, kinds=found.kinds - {KIND})


def test_a_backend_without_the_op_refuses_to_observe_and_serves_everything_else() -> None:
    async def opened() -> Blind:
        return Blind()

    async def test(engine: Engine) -> None:
        assert engine.abilities.observable_layers == 0
        space = engine.open_space("asks", 0)
        with pytest.raises(
            Unsupported, match="asks observes attention, and the reference backend has no trait introspective"
        ):
            await observe(space, space.create_working_set(8), [3, 1, 4], 0, (0,))
        assert await greedy(space, [3, 1, 4], 3) == expected([3, 1, 4], 3)

    on(opened, test)
