"""Every variant that tuning may choose computes right: on the emulator for several generations, on a card for its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import tune
from pie_edge.backends.cuda.nvrtc import HOPPER
from pie_edge.backends.cuda.tuning import Tuning
from pie_edge.backends.shared import tune as shared_tune
from tests.backend.cuda_cases import GATED_TILE, TILES
from tests.backend.cuda_emulated import GENERATIONS, ON_CARD, architecture, opened
from tests.backend.device_cases import check

CASES = (
    "linear affine4g32-f16-min 1 rows",
    "linear affine6g64-f16-min 1 rows",
    "halves attention long decode",
    GATED_TILE,
)
"""A card takes all of the products of many rows, for which its own instructions are: the emulator has one of them."""


def tried() -> tuple[int, list[Tuning]]:
    """The device's architecture, and what tuning would try there."""
    found: list[Tuning] = []

    def keep(self: object, kernel: str, given: object, default: Tuning, others: Iterator[Tuning]) -> Tuning:
        found.extend(others)
        return default

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_tune.Tuner, "best", keep)
        backend = opened()
        seen = backend._live.facts.architecture
        shared_tune.tune(tune.bench(backend._live.session))
        asyncio.run(backend.close())
    return seen, found


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_variant_that_is_tried_computes_right(generation: int) -> None:
    with architecture(generation):
        seen, variants = tried()
        for tuning in variants:
            backend = opened(tuning=tuning)
            for case in dict.fromkeys((*CASES, *(TILES if ON_CARD else ()))):
                check(backend, case)
            asyncio.run(backend.close())
    assert len(variants) == 2 + (5 if seen == HOPPER else 2) + 1 + 2
