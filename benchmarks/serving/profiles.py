"""Three kinds of use: what is asked, how long the answers are, and how long somebody is content to wait for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SENTENCES = (
    "Item {a} costs {b} coins and weighs {c} grams.",
    "The train to the coast leaves at {a} past {b} from platform {c}.",
    "On day {a} the river rose by {b} centimetres near bridge {c}.",
    "Order {a} was shipped in {b} boxes to the house with number {c}.",
)
WORDS_IN_SENTENCE = 10
SYSTEM = "You are a careful assistant. You answer shortly, and only about what was asked."


@dataclass(frozen=True)
class Profile:
    """Lengths are ranges: ``shared`` words begin every conversation alike, ``own`` words are new in each; ``tokens`` are the
    answer's. Somebody is content who waits at most ``first`` seconds for a token, and on average ``next`` for another."""

    name: str
    shared: int
    own: tuple[int, int]
    tokens: tuple[int, int]
    first: float
    next: float

    def requests(self, model: str, seed: int) -> Iterator[dict[str, Any]]:
        """Bodies of /v1/chat/completions, without end; the same for the same seed."""
        generator = random.Random(f"{self.name} {seed}")
        beginning = f"{SYSTEM} {_text(random.Random(self.name), self.shared)}"
        while True:
            question = _text(generator, generator.randint(*self.own))
            yield {
                "model": model,
                "messages": [{"role": "system", "content": beginning}, {"role": "user", "content": question}],
                "max_tokens": generator.randint(*self.tokens),
                "temperature": 0,
                "ignore_eos": True,
            }


PROFILES = (
    Profile("chatbot", shared=60, own=(10, 50), tokens=(32, 96), first=0.3, next=0.1),
    Profile("background agent", shared=400, own=(100, 200), tokens=(16, 48), first=2.0, next=0.2),
    Profile("data processor", shared=0, own=(150, 350), tokens=(8, 24), first=10.0, next=1.0),
)


def _text(generator: random.Random, words: int) -> str:
    """About so many words of plain English with numbers."""
    return " ".join(_sentence(generator) for _ in range(-(-words // WORDS_IN_SENTENCE)))


def _sentence(generator: random.Random) -> str:
    a, b, c = (generator.randint(1, 999) for _ in range(3))
    return generator.choice(SENTENCES).format(a=a, b=b, c=c)


def arrivals(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """When requests come in a Poisson process of so many a second: seconds from its start, in order."""
    generator, moment = random.Random(seed), 0.0
    while (moment := moment + generator.expovariate(rate)) < seconds:
        yield moment
