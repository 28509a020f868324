"""The real models on the Metal backend."""

from __future__ import annotations

import pytest

pytest.importorskip("tests.support.needs_mlx")

from tests.backend import openers
from tests.backend.models_on_device import *  # noqa: F403
from tests.backend.models_on_device import decode, short
from tests.backend.openers import Opening


@pytest.fixture(scope="module")
def open_backend() -> Opening:
    return openers.metal


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_the_engine_decodes_the_oracles_tokens(request: pytest.FixtureRequest, model: str) -> None:
    decode(openers.metal, request.getfixturevalue(f"{model}_path"), short(f"{model}-greedy")[:3])
