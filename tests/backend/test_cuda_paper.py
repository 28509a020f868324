"""What docs say of the CUDA kernels' bytes, operations, sectors and banks is what they come to."""

from __future__ import annotations

import pytest

pytest.importorskip("tests.support.needs_simt")

from benchmarks import roofline
from tests.backend.cuda_emulated import ON_CARD


def test_a_decode_of_a_matrix_is_bound_by_memory_on_every_card() -> None:
    work = roofline.product("4 bits", roofline.FOURS, 1)
    assert work.nbytes == 14336 * 4096 * 5 // 8 + 4 * (14336 + 4096)
    for card in roofline.CARDS:
        seconds, memory = work.seconds(card)
        assert memory
        assert seconds == work.nbytes / card.bandwidth


@pytest.mark.skipif(ON_CARD, reason="counts what the emulator does")
def test_the_pages_figures_are_what_the_kernels_come_to() -> None:
    page = roofline.PAGE.read_text(encoding="utf-8")
    assert roofline.written(page) == roofline.rendered(), "run `python -m benchmarks.roofline --write`"
