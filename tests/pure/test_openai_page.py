"""docs/openai.md tells every parameter of every endpoint, as it is declared."""

from __future__ import annotations

import pytest

pytest.importorskip("pydantic")

from tests.support import openai_page


def test_the_tables_are_what_the_declarations_say() -> None:
    text = openai_page.PAGE.read_text(encoding="utf-8")
    assert text == openai_page.page(text), "run scripts/generate-docs"
