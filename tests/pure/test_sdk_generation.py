"""What a generation makes of given tokens: pieces of text, its end, and what it leaves in the context."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pie_edge.tokenizer import Detokenizer
from tests.support.sdk_parts import with_host
from tests.support.tiny_text import EMOJI, TinyTokenizer

from inferlet import Sampler, _host  # isort: skip
from inferlet.generation import Ending, Generation  # isort: skip

TOKENIZER = TinyTokenizer()
PROMPT = [1, 30]


class Script:
    """A transcript whose next tokens are known."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = list(PROMPT)
        self.revision = 0
        self._coming = list(tokens)

    async def forward(self, epilogue: Any) -> int:
        return self._coming.pop(0)

    def append(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens
        self.revision += 1

    def truncate(self, length: int) -> None:
        del self.tokens[length:]
        self.revision += 1


def _decoder(special: bool, continued: bool) -> Any:
    inner = Detokenizer(TOKENIZER, special=special, continued=continued)
    return SimpleNamespace(push=lambda tokens: "".join(map(inner.push, tokens)), flush=inner.flush)


@pytest.fixture(autouse=True, scope="module")
def _host_with_a_tokenizer() -> Iterator[None]:
    facts = _host.Facts("fake", "none", "", "", TOKENIZER.size, 100, 16, 1, 2, False, 100)
    with with_host(
        facts=lambda: facts,
        encode=lambda text, special: TOKENIZER.encode(text, special=special),
        decode=lambda tokens, special, continued: TOKENIZER.decode(tokens, special=special),
        decoder=_decoder,
    ):
        yield


def generated(tokens: Sequence[int], **ending: Any) -> tuple[Generation, list[str], list[int]]:
    """The generation, its pieces, and the tokens that the context has of it."""
    script: Any = Script([*tokens, 2])

    async def body() -> tuple[Generation, list[str]]:
        generation = Generation(script, Sampler(temperature=0), Ending(**{"stop_tokens": [2], **ending}), None)
        return generation, [piece async for piece in generation]

    generation, pieces = asyncio.run(body())
    return generation, pieces, script.tokens[len(PROMPT) :]


def test_an_emoji_comes_whole() -> None:
    tokens = TOKENIZER.encode(f"a{EMOJI}b")
    assert len(tokens) == 6
    generation, pieces, kept = generated(tokens)
    assert pieces == ["a", EMOJI, "b"]
    assert (generation.finish_reason, kept) == ("stop", tokens)


def test_half_an_emoji_at_the_end_is_shown_as_such() -> None:
    tokens = TOKENIZER.encode(f"a{EMOJI}")[:-1]
    _, pieces, kept = generated(tokens)
    assert "".join(pieces) == "a�"
    assert kept == tokens


def test_a_stop_string_with_an_emoji_takes_all_of_its_bytes_out_of_the_context() -> None:
    tokens = TOKENIZER.encode(f"no{EMOJI}er")
    generation, pieces, kept = generated(tokens, stop=[f"{EMOJI}e"])
    assert "".join(pieces) == "no"
    assert (generation.stopped_by, TOKENIZER.decode(kept)) == (f"{EMOJI}e", "no")


def test_control_tokens_are_kept_and_not_shown() -> None:
    tokens = [3, *TOKENIZER.encode("a"), 3, *TOKENIZER.encode("b")]
    generation, pieces, kept = generated(tokens)
    assert (pieces, generation.tokens, kept) == (["a", "b"], tokens, tokens)


def test_what_was_held_back_comes_at_the_end() -> None:
    _, pieces, _ = generated(TOKENIZER.encode("a stop"), stop=["stop it"])
    assert "".join(pieces) == "a stop"


def test_max_tokens_counts_those_of_a_stop_string_too() -> None:
    generation, pieces, _ = generated(TOKENIZER.encode("stop the"), stop=["the"], max_tokens=2)
    assert (generation.finish_reason, "".join(pieces)) == ("length", "stop ")


TEXTS = st.text(alphabet=f"no e{EMOJI}é", max_size=20)


@given(TEXTS, st.lists(st.text(alphabet=f"no e{EMOJI}é", min_size=1, max_size=6), max_size=3))
def test_text_and_context_end_before_the_stop_string_wherever_its_tokens_begin(text: str, stops: list[str]) -> None:
    generation, pieces, kept = generated(TOKENIZER.encode(text), stop=stops)
    shown = "".join(pieces)
    assert generation.text == shown
    assert all(pieces)
    assert TOKENIZER.decode(kept) == shown
    if generation.stopped_by == 2:
        assert shown == text
        assert not any(stop in text for stop in stops)
    else:
        assert text.startswith(shown + str(generation.stopped_by))
