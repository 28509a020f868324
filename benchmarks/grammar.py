"""What grammars cost: ``python -m benchmarks.grammar [--model NAME] [--backend NAME] [--page docs/grammar.md]``.

First the host's work by the size of the vocabulary (those of the two built-in models, and a part of the larger one): making it
ready, compiling, a mask and an accepted token along a text that the grammar allows. Then a model's tokens, in turns free (with
nothing run ahead, as constrained ones can't) and constrained. ``--page`` writes both between that page's marks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.harness import Summary, in_turns, ratio, table
from benchmarks.speed import cores
from pie_edge.config import Settings
from pie_edge.grammar import Compiler, Source, Vocabulary
from pie_edge.grammar.vocabulary import Adapter
from pie_edge.host.constraints import Constraints
from pie_edge.runtime import open_runtime
from pie_edge.tokenizer import Tokenizer
from pie_edge.weights.checkpoint import open_checkpoint

BEGIN, END = "<!-- figures: python -m benchmarks.grammar -->", "<!-- end of figures -->"
MIDDLE = 151_936
"""A size that many models' vocabularies have."""
PROGRAM = Path(__file__).parent / "inferlets" / "constrained.py"
PROMPT = "Once upon a time there was a small"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}},
        "when": {"type": "string", "format": "date-time"},
        "kind": {"enum": ["alpha", "beta", "gamma"]},
        "more": {"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": {"type": "number"}}]},
    },
    "required": ["name", "age", "email", "tags", "when", "kind", "more"],
    "additionalProperties": False,
}
TEXT = json.dumps(
    {
        "name": "Alice Müller of the 7th street, who likes long names",
        "age": 37,
        "email": "alice.m@example.org",
        "tags": ["one", "two of them", "three"],
        "when": "2024-02-29T10:11:12Z",
        "kind": "beta",
        "more": {"a": 1.5, "some long key here": 12},
    },
    ensure_ascii=False,
)
LONG_STRINGS = {"type": "array", "items": {"type": "string", "minLength": 40}, "minItems": 20}
"""Little of it is forced: what is measured is masks."""


def cut(vocabulary: Vocabulary, size: int) -> Vocabulary:
    """Its first tokens, as one of that size would have."""

    bytes_of = {piece: token for token, piece in enumerate(vocabulary.tokens[:size]) if len(piece) == 1}

    def encode(text: str) -> Sequence[int]:
        found: list[int] = []
        for token in vocabulary.encode(text):
            spelled = vocabulary.tokens[token]
            found += [token] if token < size else [bytes_of[bytes([byte])] for byte in spelled]
        return found

    special = frozenset(token for token in vocabulary.special if token < size)
    return Vocabulary(vocabulary.tokens[:size], special, vocabulary.stops, encode, size)


def along(compiler: Compiler) -> tuple[list[float], list[float]]:
    """Microseconds of each mask, and of each accepted token, along the text: those that this thread ran."""
    matcher, masks, accepted = compiler.compile(Source("json-schema", json.dumps(SCHEMA))).matcher(), [], []
    for token in Adapter(compiler.vocabulary)(TEXT):
        began = time.thread_time()
        matcher.mask()
        between = time.thread_time()
        matcher.accept([token])
        matcher.forced()
        masks.append((between - began) * 1e6)
        accepted.append((time.thread_time() - between) * 1e6)
    return masks, accepted


def host_row(vocabulary: Vocabulary) -> list[str]:
    compiler = Compiler(vocabulary)
    began = time.thread_time()
    compiler.prepare()
    ready = time.thread_time()
    compiler.compile(Source("json-schema", json.dumps(SCHEMA)))
    compiled = time.thread_time()
    masks, accepted = along(compiler)
    return [
        f"{vocabulary.size:,}",
        f"{ready - began:.2f} s",
        f"{(compiled - ready) * 1e3:.1f} ms",
        f"{statistics.mean(masks):.0f} µs, at most {max(masks):.0f}",
        f"{statistics.mean(accepted):.0f} µs",
        f"{vocabulary.words * 4 / 1024:.0f} KiB",
    ]


def vocabulary_of(name: str) -> Vocabulary:
    with open_checkpoint(models.find(name)) as checkpoint:
        tokenizer = Tokenizer.from_gguf(checkpoint.metadata)
    return Constraints(tokenizer, tokenizer.size).compiler.vocabulary


def host_table() -> str:
    small, large = map(vocabulary_of, models.MODELS)
    header = ["vocabulary", "made ready, once", "a schema compiled", "a mask", "a token accepted", "a mask's size"]
    return table(header, [host_row(one) for one in (small, cut(large, MIDDLE), large)])


class Generating:
    """A model in this process."""

    def __init__(self, model: Path, backend: str, count: int) -> None:
        self._count = count
        self._runner = asyncio.Runner()
        self._runtime = self._runner.run(open_runtime(str(model), Settings(speculation_depth=0), backend=backend))
        choice = self._runtime.choice
        self.device = f"{choice.backend}, {choice.device}"

    def per_token(self, **options: Any) -> float:
        """Milliseconds of all processors, of this process, for a token."""
        given = {"prompt": PROMPT, "count": self._count, **options}
        began = time.process_time()
        self._runner.run(self._runtime.run(PROGRAM, given))
        return (time.process_time() - began) / self._count * 1e3

    def close(self) -> None:
        self._runner.run(self._runtime.close())
        self._runner.close()


def step_table(name: str, side: Generating, rounds: int) -> str:
    side.per_token(schema=LONG_STRINGS)
    found = in_turns(
        {
            "free": side.per_token,
            "long strings": lambda: side.per_token(schema=LONG_STRINGS, logprobs=0),
            "an object": lambda: side.per_token(schema=SCHEMA),
            "free, log probabilities": lambda: side.per_token(logprobs=0),
        },
        rounds,
    )
    pairs = (("long strings", "free, log probabilities"), ("an object", "free"))
    rows = [
        [
            label,
            Summary.of(found[label]).show(1),
            Summary.of(found[base]).show(1),
            ratio(found[label], found[base]).show(2),
        ]
        for label, base in pairs
    ]
    told = f"{name} on {side.device}: milliseconds of processors a token, median (lowest to highest) of {rounds} rounds.\n\n"
    return told + table(["constrained to", "constrained", "free", "ratio"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--count", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    path = models.find(asked.model)
    side = Generating(path, asked.backend, asked.count)
    steps = step_table(asked.model, side, asked.rounds)
    side.close()
    text = f"On {cores()} cores.\n\n{host_table()}\n\n{steps}"
    print(text)
    if asked.page is not None:
        before, _, rest = asked.page.read_text(encoding="utf-8").partition(BEGIN)
        page = f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}"
        asked.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
