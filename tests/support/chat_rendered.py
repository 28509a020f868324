"""The fixtures of ``scripts/chat-oracle``: what each template makes of each case of the matrix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "chat"
TEMPLATES, RENDERED = FOLDER / "templates", FOLDER / "rendered"
NAMES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))


@dataclass(frozen=True, slots=True)
class Fixture:
    source: str
    tokens: dict[str, str]
    cases: dict[str, tuple[str, str]]
    """By the case's name: ``text``, ``refused``, ``fails`` or ``ignores``, and the text or the reason."""


def fixture(name: str) -> Fixture:
    found = json.loads((RENDERED / f"{name}.json").read_text(encoding="utf-8"))
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    return Fixture(source, found["tokens"], unpacked(found))


def packed(cases: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Each line once, and a case as its kind and the numbers of its lines."""
    lines: dict[str, int] = {}
    numbers = {
        name: [kind, *(lines.setdefault(line, len(lines)) for line in text.split("\n"))]
        for name, (kind, text) in cases.items()
    }
    return {"lines": list(lines), "cases": {name: json.dumps(found) for name, found in numbers.items()}}


def unpacked(found: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    lines = found["lines"]
    cases = {name: json.loads(numbers) for name, numbers in found["cases"].items()}
    return {name: (kind, "\n".join(lines[number] for number in numbers)) for name, (kind, *numbers) in cases.items()}
