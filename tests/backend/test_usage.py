"""What making room costs is counted, and visible to the inferlet that pays for it."""

from __future__ import annotations

from tests.backend.test_engine import PAGE_BYTES, engine_on, greedy, run
from tests.support.reference_backend import ReferenceBackend

DOCUMENT = list(range(5, 37))


def test_a_prefix_that_was_evicted_is_computed_again_and_both_are_counted() -> None:
    async def test() -> None:
        # Nine pages: the document keeps four when nobody uses it, and the large one wants eight.
        async with engine_on(ReferenceBackend(), kv_memory=9 * PAGE_BYTES, speculation_depth=0) as engine:
            first = engine.open_space("first", 0)
            await greedy(first, [*DOCUMENT, 40], 1)
            first.close()
            second = engine.open_space("second", 0)
            await greedy(second, [*DOCUMENT, 41], 1)
            second.close()
            assert (second.usage.cached_tokens, second.usage.recomputed_tokens) == (32, 0)
            large = engine.open_space("large", 0)
            await greedy(large, [50] * 64, 1)
            large.close()
            assert large.usage.evicted_pages == 3
            assert (large.usage.cached_tokens, large.usage.recomputed_tokens) == (0, 0)
            third = engine.open_space("third", 0)
            await greedy(third, [*DOCUMENT, 42], 1)
            third.close()
            # The ends of a chain go first.
            counted = third.usage.cached_tokens, third.usage.recomputed_tokens, third.usage.forwarded_tokens
            assert counted == (8, 24, 25)
            fourth = engine.open_space("fourth", 0)
            await greedy(fourth, [*DOCUMENT, 43], 1)
            assert (fourth.usage.cached_tokens, fourth.usage.recomputed_tokens) == (32, 0), "it is there again"

    run(test)
