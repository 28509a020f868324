"""The real models on the CUDA backend's own host code, over the emulator."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backend.cuda_emulated import opened
from tests.backend.models_on_device import *  # noqa: F403
from tests.backend.models_on_device import Opening
from tests.simt import build

pytestmark = pytest.mark.skipif(not build.available(), reason="the emulator takes g++ on x86-64")


@pytest.fixture(scope="module")
def open_backend() -> Opening:
    def opening(**options: Any) -> Any:
        return opened(**options)

    return opening
