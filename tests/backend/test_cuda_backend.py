"""The CUDA backend's protocol, on the emulator or on a card."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("tests.support.needs_simt")

from tests.backend import cuda_emulated, openers
from tests.backend.openers import Opening
from tests.backend.protocol_on_device import *  # noqa: F403
from tests.backend.protocol_on_device import Losing

_LAUNCH_FAILED = 719


@pytest.fixture
def open_backend() -> Opening:
    return openers.cuda


@pytest.fixture
def lose() -> Losing:
    """Its context is lost, as after a kernel that failed."""
    if cuda_emulated.ON_CARD:
        pytest.skip("nothing that can be taken back loses a card")

    @contextmanager
    def lost(backend: Any) -> Iterator[None]:
        cuda_emulated.break_device(_LAUNCH_FAILED)
        try:
            yield
        finally:
            cuda_emulated.mend()

    return lost
