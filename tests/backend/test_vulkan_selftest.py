"""The stored answers of the Vulkan self-test."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.backends.vulkan.selftest import ANSWERS
from tests.support.vulkan_answers import answers


def test_the_stored_answers_are_the_references() -> None:
    stored = json.loads(ANSWERS.read_text(encoding="utf-8"))
    found = answers()
    assert stored.keys() == found.keys()
    for kind, outputs in found.items():
        assert stored[kind].keys() == outputs.keys()
        for name, digest in outputs.items():
            np.testing.assert_allclose(stored[kind][name], digest, rtol=1e-4, atol=1e-5)
