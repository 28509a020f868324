"""Level 1: the loop of the paper by hand, over the NumPy reference, and everything that can be asked wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pie_edge.control.engine import Engine
from pie_edge.control.handles import MAX_EMBEDS, Handles, KvRange
from pie_edge.errors import ContextOverflow, InvalidHandle, ResourceError
from pie_edge.model import llama
from tests.backend.test_engine import PAGE_BYTES, engine_on, expected, nothing_held, run
from tests.support.oracle_run import Loaded, log_probabilities
from tests.support.reference_backend import ReferenceBackend
from tests.support.remembering_backend import RememberingBackend, answer
from tests.support.tiny import SPEC, random_weights

SIZE = 8


def ranges(pages: list[int], start: int, end: int) -> list[KvRange]:
    """Tokens ``start … end`` of pages laid one after the other."""
    found = []
    for index, page in enumerate(pages):
        first, last = max(start - index * SIZE, 0), min(end - index * SIZE, SIZE)
        if first < last:
            found.append(KvRange(page, first, last))
    return found


async def distribution(handles: Handles, embed: int) -> tuple[list[int], list[float]]:
    results, row = handles.next_distribution(embed)
    ids, probabilities, *_ = await results
    width = ids.shape[-1]
    part = slice(row * width, (row + 1) * width)
    return list(ids.data[part]), list(probabilities.data[part])


async def autoregress(handles: Handles, prompt: list[int], count: int) -> list[int]:
    total = len(prompt) + count
    kv, embeds, (out,) = (
        handles.allocate_pages(-(-total // SIZE)),
        handles.allocate_embeds(total),
        handles.allocate_embeds(1),
    )
    handles.embed_text(embeds[: len(prompt)], prompt, list(range(len(prompt))))
    handles.forward(0, [], embeds[: len(prompt)], ranges(kv, 0, len(prompt)), [out])
    answer: list[int] = []
    for place in range(len(prompt), total):
        ids, _ = await distribution(handles, out)
        answer.append(ids[0])
        handles.embed_text([embeds[place]], [ids[0]], [place])
        handles.forward(0, ranges(kv, 0, place), [embeds[place]], ranges(kv, place, place + 1), [out])
    await handles.synchronize(0)
    handles.free_pages(kv)
    handles.free_embeds([*embeds, out])
    return answer


def with_handles(test: Callable[[Engine, Handles], Any], **settings: Any) -> None:
    async def body() -> None:
        async with engine_on(ReferenceBackend(), **settings) as engine:
            await test(engine, engine.handles(engine.open_space("level1", 0), top_k=8))

    run(body)


def test_the_loop_by_hand_gives_the_tokens_of_whole_passes() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        assert await autoregress(handles, [3, 1, 4, 1, 5], 6) == expected([3, 1, 4, 1, 5], 6)
        assert nothing_held(engine)

    with_handles(test)


@pytest.mark.parametrize("limit", [SPEC.context, SPEC.context - 3])
def test_a_pass_over_more_tokens_than_the_model_is_good_for_is_refused_whatever_their_positions(limit: int) -> None:
    """Also in parts, over pages that hold the earlier ones. Whole pages may be named where the limit ends within one."""

    async def test(engine: Engine, handles: Handles) -> None:
        engine.context_limit = limit
        kv, embeds = handles.allocate_pages(limit // SIZE + 2), handles.allocate_embeds(limit + 1)
        handles.embed_text(embeds, [1] * (limit + 1), [min(i, limit - 1) for i in range(limit + 1)])
        with pytest.raises(
            ContextOverflow, match=rf"context of {limit + 1} tokens; the model's limit is {limit}\..* context in"
        ):
            handles.forward(0, [], embeds, ranges(kv, 0, limit + 1), [])
        handles.forward(0, [], embeds[:limit], ranges(kv, 0, limit), [])
        whole = -(-limit // SIZE) * SIZE
        with pytest.raises(ContextOverflow, match=rf"context of {whole + 1} tokens; the model's limit is {limit}\."):
            handles.forward(0, ranges(kv, 0, whole), embeds[limit:], ranges(kv, whole, whole + 1), [])
        await handles.synchronize(0)
        room = handles.allocate_pages(1)
        handles.forward(0, ranges(kv, 0, whole - SIZE), embeds[:1], [KvRange(room[0], 0, 1)], [])
        await handles.synchronize(0)

    with_handles(test)


def test_a_distribution_is_the_softmax_of_the_likeliest() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, embeds, outs = handles.allocate_pages(1), handles.allocate_embeds(3), handles.allocate_embeds(2)
        handles.embed_text(embeds, [9, 8, 7], [0, 1, 2])
        handles.forward(0, [], embeds, ranges(kv, 0, 3), outs)
        rows = np.exp(log_probabilities(Loaded(SPEC, llama, random_weights()), [9, 8, 7]))
        for out, row in zip(outs, rows[1:], strict=True):
            ids, probabilities = await distribution(handles, out)
            assert ids == np.argsort(-row, kind="stable")[:8].tolist()
            np.testing.assert_allclose(probabilities, np.sort(row)[::-1][:8], rtol=1e-4)

    with_handles(test)


def test_exported_pages_are_shared_and_copied_on_write() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        prompt = list(range(11))
        kv, embeds = handles.allocate_pages(2), handles.allocate_embeds(11)
        handles.embed_text(embeds, prompt, prompt)
        await handles.forward(0, [], embeds, ranges(kv, 0, 11), [])
        handles.export_pages(kv, "documents")
        with pytest.raises(InvalidHandle, match="'documents', which is taken"):
            handles.export_pages(kv, "documents")
        handles.free_pages(kv)
        other = engine.handles(engine.open_space("reader", 0), top_k=8)
        for token in (50, 51):
            mine, embed, out = other.import_pages("documents"), other.allocate_embeds(1), other.allocate_embeds(1)
            other.embed_text(embed, [token], [11])
            other.forward(0, ranges(mine, 0, 11), embed, ranges(mine, 11, 12), out)
            ids, _ = await distribution(other, out[0])
            assert ids[:1] == expected([*prompt, token], 1)
        handles.withdraw("documents")
        with pytest.raises(InvalidHandle, match="the export 'documents'; there are none"):
            other.import_pages("documents")
        other.close()
        assert nothing_held(engine)

    with_handles(test)


def test_a_masked_page_hides_its_tokens_and_shows_them_again() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, embeds, outs = handles.allocate_pages(2), handles.allocate_embeds(5), handles.allocate_embeds(1)
        handles.embed_text(embeds, [1, 2, 3, 4, 5], [0, 1, 2, 3, 4])
        handles.forward(0, [], embeds[:1], [KvRange(kv[0], 0, 1)], [])
        handles.forward(0, [KvRange(kv[0], 0, 1)], embeds[1:2], [KvRange(kv[0], 1, 2)], [])

        async def ask() -> tuple[list[int], list[float]]:
            handles.forward(0, ranges(kv, 0, 2), embeds[2:3], [KvRange(kv[1], 0, 1)], outs)
            return await distribution(handles, outs[0])

        whole = await ask()
        handles.mask_page(0, kv[0], [False, True] + [False] * 6)
        hidden = await ask()
        handles.mask_page(0, kv[0], [False] * 8)
        assert await ask() == whole
        assert hidden != whole
        # Hiding the second token is the same as never naming it.
        handles.forward(0, [KvRange(kv[0], 0, 1)], embeds[2:3], [KvRange(kv[1], 0, 1)], outs)
        assert await distribution(handles, outs[0]) == hidden

    with_handles(test)


def test_a_mask_of_a_pass_says_what_each_input_sees() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, embeds, out = handles.allocate_pages(2), handles.allocate_embeds(4), handles.allocate_embeds(1)
        handles.embed_text(embeds, [3, 50, 4, 5], [0, 9, 1, 2])
        handles.forward(0, [], embeds[:2], ranges(kv, 0, 2), [], mask=[[True, False], [True, True]])
        mask = [[True, False, True, False], [True, False, True, True]]
        handles.forward(0, ranges(kv, 0, 2), embeds[2:], [KvRange(kv[1], 3, 5)], out, mask=mask)
        ids, _ = await distribution(handles, out[0])
        assert ids[:1] == expected([3, 4, 5], 1)

    with_handles(test)


def test_tokens_are_copied_between_pages_in_queue_order() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, embeds, out = handles.allocate_pages(3), handles.allocate_embeds(4), handles.allocate_embeds(1)
        handles.embed_text(embeds, [1, 2, 3, 4], [0, 1, 2, 3])
        handles.forward(0, [], embeds[:3], ranges(kv[:1], 0, 3), [])
        handles.copy_tokens(0, kv[0], kv[1], 0, 5, 3)
        handles.forward(0, [KvRange(kv[1], 5, 8)], embeds[3:], [KvRange(kv[2], 7, 8)], out)
        ids, _ = await distribution(handles, out[0])
        assert ids[:1] == expected([1, 2, 3, 4], 1)
        with pytest.raises(InvalidHandle, match="copies token 5 of KV page"):
            await handles.copy_tokens(0, kv[0], kv[1], 5, 0, 1)

    with_handles(test)


def test_a_page_freed_while_a_pass_names_it_is_given_back_after_it() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, embeds, out = handles.allocate_pages(1), handles.allocate_embeds(3), handles.allocate_embeds(1)
        handles.embed_text(embeds, [1, 2, 3], [0, 1, 2])
        handles.forward(0, [], embeds, ranges(kv, 0, 3), out)
        handles.free_pages(kv)
        ids, _ = await distribution(handles, out[0])
        assert ids[:1] == expected([1, 2, 3], 1)
        await handles.synchronize(0)
        assert nothing_held(engine)

    with_handles(test)


def test_idle_pages_are_parked_when_others_need_room() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, embeds, out = handles.allocate_pages(2), handles.allocate_embeds(12), handles.allocate_embeds(1)
        handles.embed_text(embeds, list(range(12)), list(range(12)))
        await handles.forward(0, [], embeds[:11], ranges(kv, 0, 11), [])
        other = engine.handles(engine.open_space("other", 0), top_k=8)
        assert await autoregress(other, [7] * 20, 3) == expected([7] * 20, 3)
        assert engine.residency.pressure.parked == 2
        handles.forward(0, ranges(kv, 0, 11), embeds[11:], ranges(kv, 11, 12), out)
        ids, _ = await distribution(handles, out[0])
        assert ids[:1] == expected(list(range(12)), 1)

    with_handles(test, kv_memory=4 * PAGE_BYTES)


Wrong = Callable[[Handles, list[int], list[int]], Any]
WRONG: list[tuple[Wrong, type[Exception], str]] = [
    (lambda h, kv, e: h.free_pages([99]), InvalidHandle, "no KV page 99"),
    (lambda h, kv, e: h.free_pages([kv[0], kv[0]]), InvalidHandle, "one of them twice"),
    (lambda h, kv, e: h.free_embeds([99]), InvalidHandle, "no embed 99"),
    (lambda h, kv, e: h.allocate_pages(10**9), ResourceError, "asked for 1000000000 KV pages"),
    (lambda h, kv, e: h.allocate_pages(-1), ResourceError, "asked for -1"),
    (lambda h, kv, e: h.allocate_embeds(MAX_EMBEDS), ResourceError, "the most is 65536"),
    (lambda h, kv, e: h.embed_text(e[:1], [1, 2], [0, 1]), InvalidHandle, "2 tokens at 2 positions into 1"),
    (lambda h, kv, e: h.embed_text(e[:1], [64], [0]), InvalidHandle, "token 64"),
    (lambda h, kv, e: h.embed_text(e[:1], [1], [256]), ContextOverflow, "position 256; the model's limit is 256"),
    (lambda h, kv, e: h.forward(0, [], [], [], []), InvalidHandle, "forwards no embed"),
    (lambda h, kv, e: h.forward(0, [], e[1:], [KvRange(kv[0], 0, 1)], []), InvalidHandle, "holds nothing"),
    (lambda h, kv, e: h.forward(0, [], e[:1], [KvRange(99, 0, 1)], []), InvalidHandle, "no KV page 99"),
    (lambda h, kv, e: h.forward(0, [], e[:1], [KvRange(kv[0], 0, 9)], []), InvalidHandle, "tokens 0…9 of a page of 8"),
    (lambda h, kv, e: h.forward(0, [], e[:1], [KvRange(kv[0], 0, 2)], []), InvalidHandle, "1 embeds into 2 places"),
    (lambda h, kv, e: h.forward(0, [], e[:1], [KvRange(kv[0], 0, 1)], e), InvalidHandle, "2 outputs of 1 inputs"),
    (
        lambda h, kv, e: h.forward(0, [], e[:1], [KvRange(kv[0], 0, 1)], [], mask=[[True, True]]),
        InvalidHandle,
        "a mask of 1 × 2; 1 inputs see 1 tokens",
    ),
    (lambda h, kv, e: h.mask_page(0, kv[0], [True]), InvalidHandle, "masks 1 tokens of a page of 8"),
    (lambda h, kv, e: h.copy_tokens(0, kv[0], kv[1], 0, 6, 3), InvalidHandle, "tokens 6…9"),
    (lambda h, kv, e: h.next_distribution(e[0]), InvalidHandle, "which no pass has filled"),
    (lambda h, kv, e: h.import_pages("x"), InvalidHandle, "the export 'x'; there are none"),
    (lambda h, kv, e: h.withdraw("x"), InvalidHandle, "the export 'x'"),
]


@pytest.mark.parametrize(("ask", "error", "says"), WRONG)
def test_what_cannot_be_is_refused_by_name_and_changes_nothing(ask: Wrong, error: type[Exception], says: str) -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, embeds = handles.allocate_pages(2), handles.allocate_embeds(2)
        handles.embed_text(embeds[:1], [5], [0])
        with pytest.raises(error, match=says):
            ask(handles, kv, embeds)
        handles.free_pages(kv)
        handles.free_embeds(embeds)
        assert await autoregress(handles, [1, 2], 2) == expected([1, 2], 2)
        assert nothing_held(engine)

    with_handles(test)


def test_a_freed_handle_is_never_valid_again() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        (page,), (embed,) = handles.allocate_pages(1), handles.allocate_embeds(1)
        handles.free_pages([page])
        handles.free_embeds([embed])
        with pytest.raises(InvalidHandle, match="freed or never allocated"):
            handles.free_pages([page])
        with pytest.raises(InvalidHandle, match="freed or never allocated"):
            handles.embed_text([embed], [1], [0])
        assert handles.allocate_pages(1) != [page]

    with_handles(test)


def test_handles_of_two_spaces_are_strangers() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        other = engine.handles(engine.open_space("other", 0), top_k=8)
        handles.allocate_pages(3)
        mine = handles.allocate_pages(1)
        with pytest.raises(InvalidHandle, match="other has no KV page"):
            other.free_pages(mine)
        await asyncio.sleep(0)

    with_handles(test)


def test_places_that_do_not_rise_are_refused() -> None:
    async def test(engine: Engine, handles: Handles) -> None:
        kv, embeds = handles.allocate_pages(2), handles.allocate_embeds(2)
        handles.embed_text(embeds, [5, 6], [0, 1])
        writes = [KvRange(kv[1], 0, 1), KvRange(kv[0], 0, 1)]
        with pytest.raises(InvalidHandle, match="places that don't rise"):
            handles.forward(0, [KvRange(kv[0], 0, 8)], embeds, writes, [])
        # Without a context that names them the other way round, the order is that of the writes.
        await handles.forward(0, [], embeds, writes, [])

    with_handles(test)


def test_a_token_that_a_mask_tells_of_twice_is_seen_if_either_says_so() -> None:
    async def best(handles: Handles, shown: tuple[bool, bool]) -> int:
        (page,), embeds, (out,) = handles.allocate_pages(1), handles.allocate_embeds(3), handles.allocate_embeds(1)
        handles.embed_text(embeds, [5, 6, 7], [0, 1, 2])
        await handles.forward(0, [], embeds[:2], [KvRange(page, 0, 2)], [])
        twice = [KvRange(page, 0, 2), KvRange(page, 0, 1)]
        mask = [[shown[0], True, shown[1], True]]
        handles.forward(0, twice, embeds[2:], [KvRange(page, 2, 3)], [out], mask)
        return (await distribution(handles, out))[0][0]

    async def test() -> None:
        async with engine_on(RememberingBackend(SPEC.vocabulary, SIZE)) as engine:
            handles = engine.handles(engine.open_space("level1", 0), top_k=1)
            with_first = answer([(5, 0), (6, 1), (7, 2)], SPEC.vocabulary)
            assert [await best(handles, s) for s in ((True, True), (True, False), (False, True))] == [with_first] * 3
            assert await best(handles, (False, False)) == answer([(6, 1), (7, 2)], SPEC.vocabulary)

    run(test)
