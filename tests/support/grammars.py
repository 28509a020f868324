"""Grammars over single bytes, and texts that a random model makes by them."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence
from typing import Any

import jsonschema

from pie_edge.grammar import Compiler, Matcher, Source, Vocabulary

EOS = 256
BYTES = Vocabulary(
    tokens=[*(bytes([byte]) for byte in range(256)), b"<eos>"],
    special=frozenset({EOS}),
    stops=frozenset({EOS}),
    encode=lambda text: list(text.encode()),
    size=300,
)
_EAGER = {ord('"'): 6.0, ord("}"): 6.0, ord("]"): 6.0, EOS: 8.0, ord("\\"): 0.5}
"""How much likelier than others they are: a text ends some time."""


@functools.cache
def compiler() -> Compiler:
    return Compiler(BYTES)


def matcher(kind: Any, text: str = "") -> Matcher:
    return compiler().compile(Source(kind, text)).matcher()


def of_schema(schema: Any) -> Matcher:
    return matcher("json-schema", json.dumps(schema))


def bits(mask: bytes) -> list[int]:
    """The tokens that a mask allows."""
    return [token for token in range(8 * len(mask)) if mask[token // 8] >> token % 8 & 1]


def matches(at: Matcher, text: str) -> bool:
    """Whether ``text`` is a whole one."""
    fork = at.fork()
    try:
        fork.accept(list(text.encode("utf-8", "surrogatepass")))
    except Exception:
        return False
    return fork.accepting


def written(at: Matcher, seed: int, most: int = 600) -> str | None:
    """What a model of random logits makes, tokens that are forced taken as they come or one by one; None if that is too long."""
    draws, made = random.Random(seed), list[int]()
    while not at.finished and len(made) < most:
        tokens = at.forced() if draws.random() < 0.5 else []
        tokens = tokens or [_drawn(bits(at.mask()), draws)]
        if EOS in tokens:
            assert at.accepting, "the end was allowed where the text may not end"
            return bytes(made).decode()
        at.accept(tokens)
        made += tokens
    return bytes(made).decode() if at.finished else None


def _drawn(allowed: Sequence[int], draws: random.Random) -> int:
    return draws.choices(allowed, [_EAGER.get(token, 1.0 if token < 128 else 0.05) for token in allowed])[0]


def validator(schema: Any) -> Any:
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)
