"""Families on the wgpu backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.support.needs_wgpu")

from tests.backend import openers
from tests.backend.families_on_device import SOME, check_family, opened  # noqa: F401
from tests.backend.openers import Opening


@pytest.fixture(scope="module")
def open_backend() -> Opening:
    return openers.wgpu


@pytest.mark.parametrize("name", SOME)
def test_a_family_says_what_transformers_says(name: str, opened: Any, tmp_path: Path) -> None:  # noqa: F811
    check_family(name, opened, tmp_path)
