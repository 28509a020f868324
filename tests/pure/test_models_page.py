"""docs/models.md: all of it follows from data and code, and no family is missing."""

from __future__ import annotations

import pytest

from pie_edge.model import registry
from tests.support import models_page
from tests.support.family_configs import CONFIGS
from tests.support.mixture_checkpoints import is_packed
from tests.support.models_facts import FAMILIES

QUANTISED = 2e-3
"""As ``test_cpu_families`` allows."""


def test_the_page_is_what_the_generator_writes() -> None:
    pytest.importorskip("tests.support.needs_vulkan")
    assert models_page.PAGE.read_text(encoding="utf-8") == models_page.page(), "run scripts/generate-docs"


def test_every_family_is_told_and_none_that_there_is_not() -> None:
    modules = {name: module.rpartition(".")[2] for name, module in registry.FAMILIES.items()}
    assert set(FAMILIES) <= set(modules)
    assert {modules[name] for name in FAMILIES} == set(modules.values())


def test_every_configuration_was_measured_and_was_near_enough() -> None:
    found = models_page.measured()
    assert list(found) == list(CONFIGS), "run python -m tests.support.models_page"
    for name, one in found.items():
        most = dict.fromkeys(("reference", "cpu", "vulkan", "wgpu"), 1e-4)
        most["cpu"] = QUANTISED if is_packed(CONFIGS[name]) else 1e-4
        assert all(one[side] is None or one[side] < most[side] for side in most), name
        assert one["reference"] is not None
