"""What docs say of the sectors and banks that the CUDA kernels visit is what the emulator counts."""

from __future__ import annotations

import pytest

pytest.importorskip("tests.support.needs_simt")

from benchmarks import roofline
from tests.backend.cuda_emulated import ON_CARD

SECTION = "cuda on the emulator"


@pytest.mark.skipif(ON_CARD, reason="counts what the emulator does")
def test_the_pages_figures_are_what_the_kernels_come_to() -> None:
    page = roofline.PAGE.read_text(encoding="utf-8")
    assert roofline.written(page, SECTION) == roofline.rendered(SECTION), "run `python -m benchmarks.roofline --write`"
