"""The real models through the engine on the CUDA backend's own host code, over the emulator: graphs, pages and epilogues."""

from __future__ import annotations

import pytest

pytest.importorskip("tests.support.needs_simt")

from tests.backend import openers
from tests.backend.models_on_device import decode, short


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_the_engine_decodes_the_oracles_tokens(request: pytest.FixtureRequest, model: str) -> None:
    """Of the two shortest prompts: an emulated step takes its time."""
    cases = sorted(short(f"{model}-greedy"), key=lambda case: len(case["prompt_ids"]))[:2]
    decode(openers.cuda, request.getfixturevalue(f"{model}_path"), cases)
