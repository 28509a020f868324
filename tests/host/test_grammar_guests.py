"""Grammars across the crossing: programs in the Wasm host, on the tiny random model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pie_edge.control.engine import Engine
from pie_edge.host import Host
from tests.host.hosting import finish
from tests.host.tiny_hosting import on_tiny, run_tiny
from tests.support.grammars import validator
from tests.support.tiny_json import TinyJson

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORKING = f"""
import asyncio
from inferlet import Context, grammar

async def main(input):
    person = grammar.Grammar.json_schema({SCHEMA!r})
    contexts = [Context(seed=seed) for seed in range(8)]
    for context in contexts:
        context.fill("name")
    made = [context.generate_until(grammar=person, temperature=1.0, max_tokens=60) for context in contexts]
    matcher = person.matcher()
    matcher.accept(matcher.forced)
    return {{
        "texts": await asyncio.gather(*made),
        "mask": matcher.mask(),
        "forked": matcher.fork().mask() == matcher.mask(),
        "state": [matcher.accepting, matcher.finished, matcher.forced],
    }}
"""


def test_a_program_makes_objects_by_a_schema() -> None:
    async def body(host: Host, engine: Engine) -> Any:
        ended = await finish(host, FORKING, seed=1, name="program")
        return ended, engine.calls.ahead.misses

    ended, misses = on_tiny(body, tokenizer=TinyJson())
    assert ended.error is None, ended.error
    for text in ended.result["texts"]:
        validator(SCHEMA).validate(json.loads(text))
    assert len(ended.result["mask"]) == 2
    assert any(ended.result["mask"])
    assert ended.result["forked"]
    assert ended.result["state"][:2] == [False, False]
    assert misses == 0, "a pass that takes a mask was run ahead of it"


REFUSED = {
    'grammar.Grammar.json_schema({"not": {}})': ("grammar", "'not' at #/not"),
    'grammar.Grammar.regex("(")': ("grammar", "regex"),
    'grammar.Grammar.json().matcher().accept(3)': ("grammar", "can't follow"),
    "grammar.Grammar.json().matcher().rollback(1)": ("grammar", "taken back"),
    "grammar.Grammar.regex(3)": (None, "TypeError"),
    "grammar.Grammar.json().matcher().accept([-1])": ("invalid-handle", "token ids"),
    'tools.matcher([{"function": {"name": "f"}}], "required")': ("unsupported", "no format in which it calls tools"),
    "tools.matcher(3)": (None, "TypeError"),
    "tools.matcher([{}])": ("template", "tool 0"),
    "[grammar.Grammar.json() for _ in range(257)]": ("resource", "256 grammars"),
}  # fmt: skip


@pytest.mark.parametrize("call", REFUSED)
def test_what_is_refused_reaches_the_program_as_an_error_of_its_kind(call: str) -> None:
    code, why = REFUSED[call]
    source = f"""
from inferlet import errors, grammar, tools

def main(input):
    try:
        {call}
    except Exception as error:
        return [getattr(error, "code", None), f"{{type(error).__name__}}: {{error}}"]
"""
    ended = run_tiny(source, tokenizer=TinyJson())
    assert ended.error is None, ended.error
    assert ended.result[0] == code
    assert why in ended.result[1]


def test_an_error_that_nobody_catches_is_the_inferlets_cause() -> None:
    ended = run_tiny("from inferlet import grammar\ndef main(input): grammar.Grammar.json_schema({'not': {}})")
    assert ended.error is not None
    assert getattr(ended.error, "cause", None) == "grammar"
