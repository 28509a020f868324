"""The real models on the CUDA backend's own host code, over the emulator."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tests.support.needs_simt")

from tests.backend.cuda_emulated import opened
from tests.backend.models_on_device import *  # noqa: F403
from tests.backend.models_on_device import Opening


@pytest.fixture(scope="module")
def open_backend() -> Opening:
    def opening(**options: Any) -> Any:
        return opened(**options)

    return opening
