"""What a model is said to take of a device before it is loaded, against what it takes."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pie_edge.backend import Limits
from pie_edge.control.engine import Engine
from pie_edge.control.facts import ModelFacts
from pie_edge.control.needs import Needs, kv_dtype, needs_of
from pie_edge.control.plan import DeviceSettings, Model
from pie_edge.control.queue import ForwardCall
from pie_edge.errors import ConfigError, OutOfMemory, OutOfPages, Unsupported
from pie_edge.model import llama
from pie_edge.program.encodings import Affine, Dense, DType, Encoding
from tests.backend import openers
from tests.backend.cases import random_weight
from tests.backend.test_engine import PROMPTS, expected, greedy
from tests.support.reference_backend import ReferenceBackend
from tests.support.remembering_backend import RememberingBackend, answer
from tests.support.tiny import ARGMAX, PAGE, SPEC, ArrayWeight, open_tiny, random_weights

FACTS = ModelFacts("tiny", "llama", SPEC.vocabulary, SPEC.context, PAGE)
SETTINGS = DeviceSettings(page_size=PAGE, kv_memory=1 << 18, rows=64, sequences=8, logits_memory=4 * SPEC.vocabulary)
"""With the least rows of logits: else there would be fewer of them in less memory."""
WIDE = replace(SPEC, hidden=512, layers=3, mlp=1600, vocabulary=30000, tied=False)
"""Matrices of some megabytes: with one buffer each, and with parts."""
GRANULE = 128
"""Bytes: twice what a device's allocator deals in."""
FOURS = Affine(4, 32, DType.F16, None)


async def open_backend(name: str, memory: int = 0, max_binding: int = 0) -> Any:
    if name == "reference":
        return ReferenceBackend(memory=memory or 1 << 40)
    options = {"threads": 2} if name == "cpu" else {"max_binding": max_binding}
    return await asyncio.to_thread(openers.named(name), memory=memory or 1 << 30, **options)


@dataclass
class Watched:
    """A weight that remembers whether anybody read it."""

    weight: Any
    reads: list[str]

    def __getattr__(self, name: str) -> Any:
        if name in ("raw", "planes"):
            self.reads.append(name)
        return getattr(self.weight, name)


def tiny_weights(reads: list[str]) -> dict[str, tuple[Encoding, Any]]:
    return {name: (Dense(DType.F32), Watched(ArrayWeight(w), reads)) for name, w in random_weights().items()}


def needs(backend: Any, settings: DeviceSettings = SETTINGS) -> Needs:
    return needs_of(Model(SPEC, llama, {name: e for name, (e, _) in tiny_weights([]).items()}), backend, settings)


class Narrow(ReferenceBackend):
    """Binds little."""

    @property
    def limits(self) -> Limits:
        return replace(super().limits, max_binding=1 << 18)


def test_what_the_settings_ask_for_more_of_than_there_is_is_told_with_both_numbers() -> None:
    small = ReferenceBackend(memory=64 << 20)
    assert needs(small, replace(SETTINGS, memory=1 << 30)).less(replace(SETTINGS, memory=1 << 30)) == [
        "memory asks for 1024.0 MiB; the device has 64.0, and no more is used"
    ]
    assert needs(small, replace(SETTINGS, memory=64 << 20)).less(replace(SETTINGS, memory=64 << 20)) == []
    assert needs(small).less(SETTINGS) == []
    narrow = Narrow(memory=1 << 30)
    wide = replace(SETTINGS, kv_memory=64 << 20)
    (told,) = needs(narrow, wide).less(wide)
    given = f"{needs(narrow, wide).pages / 2**20:.1f}"
    assert told == f"kv_memory asks for 64.0 MiB; the device binds no more than the {given} that KV pages get"


async def tightest(name: str) -> int:
    """The least memory that, by its own account, is enough."""
    memory = 1 << 30
    for _ in range(8):
        backend = await open_backend(name, memory)
        found, own = needs(backend), memory - backend.limits.memory
        await backend.close()
        if found.total + own == memory:
            return memory
        memory = found.total + own
    raise AssertionError("what is needed depends on what there is, without end")


async def load_tiny(name: str, memory: int, reads: list[str]) -> Engine:
    backend = await open_backend(name, memory)
    try:
        return await Engine.open(FACTS, SPEC, llama, tiny_weights(reads), backend, SETTINGS)
    except BaseException:
        await backend.close()
        raise


@pytest.mark.parametrize("name", ["reference", "cpu", "vulkan"])
def test_a_model_loads_and_answers_with_as_much_memory_as_it_is_said_to_need_and_no_less(name: str) -> None:
    async def test() -> None:
        memory, reads = await tightest(name), list[str]()
        with pytest.raises(OutOfMemory, match=rf"tiny needs .* for its weights.*the {name} backend may use"):
            await load_tiny(name, memory - GRANULE, reads)
        assert not reads  # before the first byte
        engine = await load_tiny(name, memory, reads)
        assert reads
        prompts = [*PROMPTS, list(range(60))]
        together = [greedy(engine.open_space("a", 0), prompt, 4) for prompt in prompts]
        assert await asyncio.gather(*together) == [expected(prompt, 4) for prompt in prompts]
        await engine.close()

    asyncio.run(asyncio.wait_for(test(), 120))


@pytest.mark.parametrize(("name", "max_binding"), [("cpu", 0), ("cuda", 0), ("vulkan", 0), ("vulkan", 1 << 20)])
def test_loading_takes_what_was_counted(name: str, max_binding: int) -> None:
    """Large matrices and small ones, in four bits, in parts where nothing large can be bound."""

    async def test() -> None:
        backend = await open_backend(name, max_binding=max_binding)
        rng = np.random.default_rng(0)
        encodings: dict[str, Encoding] = {
            weight.name: FOURS if len(weight.shape) == 2 else Dense(DType.F32) for weight in llama.weights(WIDE)
        }
        weights = {
            w.name: (encodings[w.name], random_weight(rng, w.shape, encodings[w.name])) for w in llama.weights(WIDE)
        }
        settings = replace(SETTINGS, logits_memory=1 << 20)
        found = needs_of(Model(WIDE, llama, encodings), backend, settings)
        before = backend.footprint((), (), None)
        engine = await Engine.open(replace(FACTS, vocabulary=WIDE.vocabulary), WIDE, llama, weights, backend, settings)
        taken = backend.footprint((), (), None) - before
        # Compiled Programs aren't there yet; what nobody can count are 64 KiB for tables.
        counted = found.weights + found.pages + found.logits + found.states
        assert counted <= taken <= counted + found.working
        matrices = sum(w.shape[0] * w.shape[1] for w in llama.weights(WIDE) if len(w.shape) == 2)
        whole_pages = name == "cuda"  # of 2 MiB
        assert found.weights == pytest.approx(5 / 8 * matrices, rel=0.2 if whole_pages else 0.1)
        await engine.close()

    asyncio.run(asyncio.wait_for(test(), 120))


def test_the_pool_is_half_of_what_is_free_and_the_most_that_it_could_be_is_told() -> None:
    async def test() -> None:
        backend = await open_backend("reference", 2_000_000)
        found = needs(backend, replace(SETTINGS, kv_memory=0))
        assert found.fits
        assert found.context == (found.cache.pages - 1) * PAGE
        assert found.most_context > 1.8 * found.context
        full = needs(
            backend, replace(SETTINGS, kv_memory=found.most_context // PAGE * PAGE * SPEC.kv_bytes_per_token(DType.F32))
        )
        assert full.fits
        assert full.context == found.most_context
        more = needs(
            backend, replace(SETTINGS, kv_memory=(found.most_context + PAGE) * SPEC.kv_bytes_per_token(DType.F32))
        )
        assert not more.fits
        assert more.context == 0

    asyncio.run(test())


def test_where_pages_are_released_a_window_and_a_chunk_are_room_enough_for_any_context() -> None:
    async def test() -> None:
        spec = replace(SPEC, window=16, context=1 << 20)
        model = Model(spec, llama, {name: e for name, (e, _) in tiny_weights([]).items()})
        backend = await open_backend("reference")
        page = PAGE * SPEC.kv_bytes_per_token(DType.F32)
        enough = (16 + SETTINGS.rows) // PAGE + 3
        for pages, longest in ((enough, 1 << 20), (enough - 1, (enough - 1) * PAGE)):
            found = needs_of(model, backend, replace(SETTINGS, kv_memory=pages * page))
            assert found.longest(found.context, spec.context) == longest
        # So long a prompt does run in so small a pool.
        played = RememberingBackend(SPEC.vocabulary, PAGE, 16)
        halves = PAGE * SPEC.kv_bytes_per_token(played.limits.kv_dtype)
        engine = await open_tiny(played, spec=replace(SPEC, window=16), rows=64, kv_memory=enough * halves)
        space, tokens = engine.open_space("long", 0), tuple(i % 64 for i in range(SPEC.context))
        call = ForwardCall(space.create_working_set(len(tokens)), tokens, 0, len(tokens), (len(tokens) - 1,), ARGMAX)
        (best,) = await space.submit(call)
        seen = [(token, place) for place, token in enumerate(tokens)][-16:]
        assert int(best.data[0]) == answer(seen, SPEC.vocabulary)
        await engine.close()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_kv_memory_that_holds_no_page_is_refused_and_not_raised_in_silence() -> None:
    async def test() -> None:
        page = PAGE * SPEC.kv_bytes_per_token(DType.F32)
        backend = await open_backend("reference")
        told = (
            rf"kv_memory is {page - 1} bytes, and a page of {PAGE} tokens takes {page} with llama's 2 layers; raise it"
        )
        with pytest.raises(ConfigError, match=told):
            needs(backend, replace(SETTINGS, kv_memory=page - 1))
        assert needs(backend, replace(SETTINGS, kv_memory=page)).context == PAGE

    asyncio.run(test())


@pytest.mark.parametrize(
    ("memory", "kv_memory", "told"),
    [
        (2_000_000, 0, "raise memory or kv_memory in the configuration"),
        (1 << 40, 1 << 16, "raise kv_memory in the configuration"),
        (0, 1 << 16, "raise kv_memory in the configuration"),
    ],
)
def test_who_is_out_of_pages_is_told_which_setting_keeps_the_pool_so_small(
    memory: int, kv_memory: int, told: str
) -> None:
    async def test() -> None:
        backend = await open_backend("reference", memory)
        settings = replace(SETTINGS, memory=memory, kv_memory=kv_memory)
        engine = await Engine.open(FACTS, SPEC, llama, tiny_weights([]), backend, settings)
        with pytest.raises(OutOfPages, match=rf"drop a context, or {told}$"):
            engine.pool.take(engine.pool.total + 1, "long")
        await engine.close()

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("name", ["reference", "cpu", "vulkan"])
@pytest.mark.parametrize("kv_memory", [0, 1 << 18])
def test_memory_as_large_as_a_refusal_says_is_enough(name: str, kv_memory: int) -> None:
    """Though the logits, the pool and what an upload goes through grow with what there is."""
    big = replace(SETTINGS, kv_memory=kv_memory, logits_memory=64 << 20)
    encodings: dict[str, Encoding] = {
        weight.name: FOURS if len(weight.shape) == 2 else Dense(DType.F32) for weight in llama.weights(WIDE)
    }

    async def check(memory: int) -> None:
        backend = await open_backend(name, memory)
        try:
            settings, model = replace(big, memory=memory), Model(WIDE, llama, encodings)
            needs_of(model, backend, settings).check("wide", model, backend, settings)
        finally:
            await backend.close()

    async def test() -> None:
        with pytest.raises(OutOfMemory) as refused:
            await check(24 << 20)
        told = re.search(r"aise memory to (\d+) MiB in the configuration", str(refused.value))
        assert told is not None, str(refused.value)
        await check(int(told[1]) << 20)
        with pytest.raises(OutOfMemory):
            await check(int(told[1]) * 15 // 16 << 20)

    asyncio.run(asyncio.wait_for(test(), 120))


def test_a_pool_that_the_device_cannot_bind_is_told_beside_what_was_asked() -> None:
    async def test() -> None:
        backend = await open_backend("cpu", 1 << 30)
        settings = replace(SETTINGS, kv_memory=100 << 30)
        model = Model(SPEC, llama, {name: encoding for name, (encoding, _) in tiny_weights([]).items()})
        told = r"for KV pages \(kv_memory asks for 102400\.0: more than the device binds\)"
        with pytest.raises(OutOfMemory, match=told):
            needs_of(model, backend, settings).check("tiny", model, backend, settings)
        await backend.close()

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize(
    ("width", "prefers", "kept"),
    [(64, DType.F16, DType.F16), (100, DType.F16, DType.F32), (12, DType.F16, DType.F32), (20, DType.F32, DType.F32)],
)
def test_keys_are_kept_in_what_their_heads_are_whole_vectors_of(width: int, prefers: DType, kept: DType) -> None:
    backend: Any = SimpleNamespace(limits=SimpleNamespace(kv_dtype=prefers))
    assert kv_dtype(Model(replace(SPEC, head_dim=width), llama, {}), backend) is kept


def test_heads_of_no_whole_vectors_are_refused() -> None:
    backend: Any = SimpleNamespace(limits=SimpleNamespace(kv_dtype=DType.F32))
    with pytest.raises(
        Unsupported, match="heads of 18 values, and this version keeps keys and values of multiples of 4"
    ):
        kv_dtype(Model(replace(SPEC, head_dim=18), llama, {}), backend)
