"""The share of the time to the first token of a long prompt that making tokens of its text takes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving.client import Client
from benchmarks.serving.load import PATH
from benchmarks.serving.servers import ours
from pie_edge.text import open_text
from pie_edge.weights.checkpoint import open_checkpoint

ROUNDS = 3


@dataclass(frozen=True)
class Share:
    tokens: int
    tokenizing: float
    first: float

    @property
    def share(self) -> float:
        return self.tokenizing / self.first


def measure(model: Path, tokens: int) -> Share:
    with open_checkpoint(model) as checkpoint:
        tokenizer, _ = open_text(checkpoint)
    text = _text(tokenizer, tokens)
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        ids = tokenizer.encode(text)
        seconds.append(time.perf_counter() - began)
    with ours(model, ("--backend", "cpu")) as server:
        body = {
            "model": server.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": 1,
            "temperature": 0,
        }
        answer = asyncio.run(Client(server.url).stream(PATH, body))
    if answer.first is None:
        raise ChildProcessError(f"the server gave no token: {answer.error}")
    return Share(len(ids), min(seconds), answer.first)


def _text(tokenizer: object, tokens: int) -> str:
    """English with numbers, of nearly so many tokens."""
    encode = getattr(tokenizer, "encode")  # noqa: B009
    sentences = [
        f"Item {number} costs {number * 37 % 101} coins and weighs {number * 53 % 89} grams."
        for number in range(tokens)
    ]
    each = len(encode(" ".join(sentences[:200]))) / 200
    return " ".join(sentences[: int((tokens - 100) / each)])
