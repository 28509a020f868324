"""The real models on the Vulkan backend."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.backends.vulkan.backend import Live, Options, VulkanBackend
from tests.backend.models_on_device import *  # noqa: F403
from tests.backend.models_on_device import Opening


@pytest.fixture(scope="module")
def open_backend() -> Opening:
    def opened(**options: Any) -> VulkanBackend:
        chosen = Options(**options)
        return VulkanBackend(chosen, Live(chosen))

    return opened
