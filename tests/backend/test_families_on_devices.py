"""Every family on every device."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pie_edge.backend import Backend
from tests.backend import openers
from tests.backend.families_on_device import check_family
from tests.support.family_configs import CONFIGS

SOME = ("llama", "qwen2", "gemma3", "phi3-long", "olmo2", "gpt2", "lfm2-bias", "qwen3.5", "qwen3-moe", "gpt-oss-mxfp4")
"""Each way in which families differ: the kernels are the same for the others. For backends that compile each anew."""
DEVICES = {"vulkan": tuple(CONFIGS), "metal": tuple(CONFIGS), "wgpu": SOME, "cuda": SOME}


@pytest.fixture(scope="module")
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[asyncio.Runner, Backend]]:
    with asyncio.Runner() as runner:
        backend = openers.named(request.param)(exact=True)
        yield runner, backend
        runner.run(backend.close())


@pytest.mark.parametrize(
    ("opened", "name"), [(device, name) for device, names in DEVICES.items() for name in names], indirect=["opened"]
)
def test_a_family_says_what_transformers_says(name: str, opened: Any, tmp_path: Path) -> None:
    check_family(name, opened, tmp_path)
