"""What the control layer does on any device: pages that are shared, copied, parked and foreseen hold there what they should."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from pie_edge.backend import Backend
from pie_edge.control.engine import Engine
from pie_edge.control.queue import ForwardCall
from pie_edge.control.space import Space
from pie_edge.model import llama
from tests.backend.test_engine import (
    PAGE_BYTES,
    PROMPTS,
    DictSpill,
    engine_on,
    expected,
    greedy,
    next_token,
    nothing_held,
    run,
)
from tests.backend.test_handles import autoregress
from tests.backend.test_recurrent_engine import LONG
from tests.backend.test_recurrent_engine import expected as recurrent_expected
from tests.backend.test_run_ahead import settled, slots_free, wander
from tests.support.oracle_run import Loaded, forwarded, whole_pass
from tests.support.readouts import read_out
from tests.support.tiny import ARGMAX, SPEC, random_weights
from tests.support.tiny_hybrid import CONVOLVED, DELTA, open_hybrid


class EngineOnDevice(ABC):
    """Tests for a class of each backend, which says how it is ``opened``."""

    @abstractmethod
    async def opened(self) -> Backend: ...

    def on_device(self, test: Callable[[Backend], Coroutine[Any, Any, None]]) -> None:
        async def body() -> None:
            await test(await self.opened())

        run(body)

    def test_generation_alone_and_together(self) -> None:
        async def test(backend: Backend) -> None:
            async with engine_on(backend) as engine:
                alone = [await greedy(engine.open_space("a", 0), prompt, 6) for prompt in PROMPTS]
                together = await asyncio.gather(*(greedy(engine.open_space("b", 0), prompt, 6) for prompt in PROMPTS))
                assert alone == together == [expected(prompt, 6) for prompt in PROMPTS]
                assert engine.calls.ahead.hits
                assert engine.prefixes

        self.on_device(test)

    def test_a_fork_copies_what_it_writes(self) -> None:
        async def test(backend: Backend) -> None:
            async with engine_on(backend) as engine:
                space = engine.open_space("fork", 0)
                context = space.create_working_set(64)
                await next_token(space, context, [7, 8, 9, 10, 11], 0)
                branch = space.fork(context)
                assert [await next_token(space, context, [1, 2], 5)] == expected([7, 8, 9, 10, 11, 1, 2], 1)
                assert [await next_token(space, branch, [3], 5)] == expected([7, 8, 9, 10, 11, 3], 1)

        self.on_device(test)

    @pytest.mark.parametrize("park_memory", [1 << 20, 0], ids=["host", "disk"])
    def test_parked_contexts_come_back(self, park_memory: int) -> None:
        async def test(backend: Backend) -> None:
            settings = {"kv_memory": 6 * PAGE_BYTES, "park_memory": park_memory}
            async with engine_on(backend, spill=DictSpill(), **settings) as engine:
                spaces: list[Space] = [engine.open_space(f"s{i}", 0) for i in range(4)]
                contexts = [space.create_working_set(32) for space in spaces]
                prompts = [[i * 3 + 1, *range(i, i + 18)] for i in range(4)]
                answers = [[await next_token(s, c, p, 0)] for s, c, p in zip(spaces, contexts, prompts, strict=True)]
                for turn in range(5):
                    for space, context, answer in zip(spaces, contexts, answers, strict=True):
                        answer.append(await next_token(space, context, answer[-1:], 19 + turn))
                assert answers == [expected(prompt, 6) for prompt in prompts]
                assert engine.residency.pressure.restored

        self.on_device(test)

    def test_a_custom_mask_reaches_the_kernel(self) -> None:
        async def test(backend: Backend) -> None:
            async with engine_on(backend) as engine:
                space = engine.open_space("mask", 0)
                context = space.create_working_set(16)
                seen = (0b00001, 0b00010, 0b00101, 0b01000, 0b10101)
                call = ForwardCall(context, (3, 50, 4, 51, 5), 0, 5, (4,), ARGMAX, positions=(0, 9, 1, 9, 2), mask=seen)
                (best,) = await space.submit(call)
                assert [int(best.data[0])] == expected([3, 4, 5], 1)

        self.on_device(test)

    def test_hidden_states_are_what_the_logits_are_made_of(self) -> None:
        """The tiny model is tied: its embedding makes the ones of the others. There are more rows than logits have room for."""

        async def test(backend: Backend) -> None:
            tokens = list(range(3, 27))
            weights = random_weights()
            logits = forwarded(Loaded(SPEC, llama, weights), [whole_pass(tokens)])
            async with engine_on(backend) as engine:
                states, beside = await asyncio.gather(
                    read_out(engine, tokens, ["hidden", 24], range(24)), greedy(engine.open_space("beside", 0), [9], 6)
                )
                np.testing.assert_allclose(states[0] @ weights["embed"].T, logits, atol=1e-4)
                assert beside == expected([9], 6)
                (pooled,) = await read_out(engine, tokens, ["hidden", 24, "reduce_mean"], range(24))
                np.testing.assert_allclose(pooled, states[0].mean(axis=0), atol=1e-5)
                row, best = await read_out(engine, tokens, ["hidden", 2, "logits", 2], (5, 23))
                np.testing.assert_allclose(row, states[0][[5, 23]], atol=1e-5)
                np.testing.assert_allclose(best, logits[[5, 23]], atol=1e-4)

        self.on_device(test)

    def test_the_loop_by_hand(self) -> None:
        async def test(backend: Backend) -> None:
            async with engine_on(backend) as engine:
                handles = engine.handles(engine.open_space("level1", 0), top_k=8)
                assert await autoregress(handles, [3, 1, 4, 1, 5], 6) == expected([3, 1, 4, 1, 5], 6)

        self.on_device(test)

    @pytest.mark.parametrize("spec", [DELTA, CONVOLVED], ids=["delta", "convolutions"])
    def test_recurrent_state_is_folded_taken_back_forked_parked_and_saved(self, spec: Any) -> None:
        async def test(backend: Backend) -> None:
            engine = await open_hybrid(backend, spec, state_memory=1, speculation_depth=1)
            try:
                await self._recurrent(engine, spec)
            finally:
                await engine.close()

        self.on_device(test)

    async def _recurrent(self, engine: Engine, spec: Any) -> None:
        space = engine.open_space("hybrid", 0)
        context = space.create_working_set(64)
        first = await next_token(space, context, LONG[:30], 0)
        assert [first] == recurrent_expected(spec, LONG[:30])
        # Drafts that are rejected, and a fork of what is left.
        await next_token(space, context, [first, 9, 8, 7, 6, 5], 30)
        branch = space.fork(context)
        assert [await next_token(space, context, [2], 31)] == recurrent_expected(spec, [*LONG[:30], first, 2])
        # Others want slots meanwhile; these are parked, and come back.
        others = [engine.open_space(f"s{i}", 0) for i in range(3)]
        found = [await greedy(other, LONG[i : i + 20], 6) for i, other in enumerate(others)]
        assert found == [recurrent_expected(spec, LONG[i : i + 20], 6) for i in range(3)]
        assert [await next_token(space, branch, [3], 31)] == recurrent_expected(spec, [*LONG[:30], first, 3])
        content = await engine.save_context(space, branch, 32)
        loaded = space.create_working_set(64)
        engine.load_context(space, loaded, content)
        assert [await next_token(space, loaded, [4], 32)] == recurrent_expected(spec, [*LONG[:30], first, 3, 4])

    @pytest.mark.parametrize("seed", [3, 8])
    def test_random_programs_answer_the_same_whatever_the_engine_does(self, seed: int) -> None:
        async def logs(depth: int, together: bool, **settings: Any) -> list[list[Any]]:
            backend = await self.opened()
            async with engine_on(backend, speculation_depth=depth, **settings) as engine:
                return await wander_all(engine, range(seed * 4, seed * 4 + 4), together)

        async def test() -> None:
            plain = await logs(0, together=False)
            assert await logs(1, together=True) == plain
            assert await logs(1, together=True, kv_memory=24 * PAGE_BYTES, sequences=2) == plain

        run(test)


async def wander_all(engine: Engine, seeds: range, together: bool) -> list[list[Any]]:
    if together:
        found = list(await asyncio.gather(*(wander(engine, seed) for seed in seeds)))
    else:
        found = [await wander(engine, seed) for seed in seeds]
    await settled(engine)
    assert nothing_held(engine)
    assert slots_free(engine)
    return found
