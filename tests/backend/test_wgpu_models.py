"""The real models on the wgpu backend."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backends.wgpu.backend import Live, Options, WgpuBackend
from tests.backend.models_on_device import *  # noqa: F403
from tests.backend.models_on_device import Opening


@pytest.fixture(scope="module")
def open_backend() -> Opening:
    def opened(**options: Any) -> WgpuBackend:
        chosen = Options(**options)
        return WgpuBackend(chosen, Live(chosen))

    return opened
