"""A model that says what the tests of providers need: text, thoughts and calls (``tests/support/scripted.py``)."""

from __future__ import annotations

from pathlib import Path

from tests.support.scripted import Scripted

SCRIPTS = {
    "hello": ["Hello", " there", ", how are", " you?"],
    "thought": ["<think>", "Rain", " or", " shine", "?", "</think>", "Bring", " a coat."],
    "call": [
        *("<tool_call>", '\n{"name": "weather", ', '"arguments": {"city": ', '"Ürzig"', "}}\n", "</tool_call>"),
    ],
    "json": ['{"city": ', '"Trier"', ', "people"', ": 110", "000}"],
}
"""Texts of messages that hold ``[hello]`` and so on are answered so."""


def write(folder: Path) -> Path:
    return Scripted(SCRIPTS).write(folder)
