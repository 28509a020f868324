"""A real model writes by grammars: what it makes is whole and valid."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.conftest import Cli
from tests.support.grammars import validator

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "born": {"type": "string", "format": "date"},
        "likes": {"type": "array", "items": {"enum": ["tea", "café", "water"]}, "minItems": 1, "maxItems": 3},
        "height": {"type": "number", "minimum": 0.5, "maximum": 2.5, "multipleOf": 0.25},
        "pet": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/pet"}]},
    },
    "required": ["name", "born", "likes", "height", "pet"],
    "additionalProperties": False,
    "$defs": {
        "pet": {
            "type": "object",
            "properties": {"kind": {"const": "cat"}, "age": {"type": "integer", "minimum": 0, "maximum": 30}},
            "required": ["kind", "age"],
            "additionalProperties": False,
        }
    },
}
PROGRAM = f"""
import asyncio
from inferlet import Context
from inferlet.grammar import Grammar

async def main(input):
    person = Grammar.json_schema({SCHEMA!r})

    async def one(seed, **settings):
        context = Context(seed=seed)
        context.fill_user("Invent a person, as JSON.")
        text = await context.generate_until(grammar=person, max_tokens=160, **settings)
        return [text, context.last.finish_reason]

    drawn = [one(seed, temperature=1.2) for seed in range(4)]
    return await asyncio.gather(one(0), one(0, logprobs=2), *drawn)
"""


def test_a_model_writes_objects_by_a_schema(cli: Cli, tmp_path: Path) -> None:
    program = tmp_path / "people.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = cli("run", program, "--backend", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)["result"]
    for text, reason in made:
        assert reason == "stop", text
        validator(SCHEMA).validate(json.loads(text))
    assert len({text for text, _ in made}) > 1
