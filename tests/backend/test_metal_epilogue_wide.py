"""Epilogues over whole vocabularies on Apple's GPU, whose kernels the emulator runs elsewhere: all by ours, and as is usual."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("tests.support.needs_mlx")

from pie_edge.backends.metal.device import facts
from pie_edge.backends.metal.tuning import Tuning
from tests.backend import openers
from tests.backend.whole_rows_on_device import *  # noqa: F403
from tests.backend.wide_epilogues_on_device import *  # noqa: F403
from tests.support.epilogue_device import Session

if not facts().gpu:
    pytest.skip("on MLX's CPU device NumPy runs epilogues", allow_module_level=True)


@pytest.fixture(scope="module", params=[Tuning.ours(), Tuning()], ids=["by ours", "as usual"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    opened = Session(openers.metal(tuning=request.param))
    yield opened
    opened.close()
