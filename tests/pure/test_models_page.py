"""docs/models.md: all of it follows from data and code, and no family is missing."""

from __future__ import annotations

import pytest

from pie_edge.model import registry
from tests.support import models_page
from tests.support.family_configs import CONFIGS
from tests.support.models_facts import FAMILIES


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
        assert all(one[side] is None or one[side] < 1e-4 for side in ("reference", "cpu", "vulkan")), name
        assert one["reference"] is not None
