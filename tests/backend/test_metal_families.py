"""Every family on the Metal backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.support.needs_mlx")

from tests.backend import openers
from tests.backend.families_on_device import check_family, opened  # noqa: F401
from tests.backend.openers import Opening
from tests.support.family_configs import CONFIGS


@pytest.fixture(scope="module")
def open_backend() -> Opening:
    return openers.metal


@pytest.mark.parametrize("name", CONFIGS)
def test_a_family_says_what_transformers_says(name: str, opened: Any, tmp_path: Path) -> None:  # noqa: F811
    check_family(name, opened, tmp_path)
