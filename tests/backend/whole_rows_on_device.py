"""Epilogues over rows of whole vocabularies, on devices that are fast enough. Who takes these tests has a ``session``."""

from __future__ import annotations

import pytest

from tests.backend.wide_epilogues_on_device import check_rows
from tests.support.epilogue_device import Session
from tests.support.wide_epilogues import ROWS, TEXTS


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_row_of_49152_logits_gives_what_the_reference_gives(session: Session, name: str, kind: str) -> None:
    check_rows(session, name, kind, 49152, passes=1)


@pytest.mark.parametrize("name", TEXTS)
def test_seven_rows_of_262144_logits_give_what_the_reference_gives(session: Session, name: str) -> None:
    check_rows(session, name, "ties", 262144, passes=7)
