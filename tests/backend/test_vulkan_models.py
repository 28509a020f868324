"""The real models on the Vulkan backend."""

from __future__ import annotations

import pytest

pytest.importorskip("tests.support.needs_vulkan")

from tests.backend import openers
from tests.backend.models_on_device import *  # noqa: F403
from tests.backend.openers import Opening


@pytest.fixture(scope="module")
def open_backend() -> Opening:
    return openers.vulkan
