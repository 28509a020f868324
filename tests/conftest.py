"""Fixtures shared by all tests: where the real models are. They are imported by name on first use (see ``scripts/test``)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.build_wheel import build_wheel

DATA = Path(__file__).parent / "data"

# A shell that starts the tests in the background has interrupts ignored, and every process here would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def model_file(name: str) -> Path:
    """A built-in model's GGUF file: from ``PIE_EDGE_TEST_MODELS`` if set, else imported into the user's model store."""
    folder = os.environ.get("PIE_EDGE_TEST_MODELS")
    if folder:
        return Path(folder) / f"{name}.gguf"
    from pie_edge.weights.hub import ensure

    return ensure(name)


@pytest.fixture(scope="session")
def smollm2_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wherever it came from, its name is that of the model: a server goes by it."""
    path = tmp_path_factory.mktemp("models") / "smollm2-135m.gguf"
    path.symlink_to(model_file("smollm2-135m").resolve())
    return path


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    return model_file("gemma3-270m")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel, built from this checkout as it is."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def oracle(name: str) -> list[dict[str, Any]]:
    """One of the oracle files of ``tests/data/oracle``: ``smollm2-greedy``, ``gemma3-tokens``, …"""
    return list(json.loads((DATA / "oracle" / f"{name}.json").read_text(encoding="utf-8")))
