"""Completions and models, asked by OpenAI's own SDK."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import openai
import pytest

from pie_edge.config import ServeSettings
from pie_edge.server.app import build
from pie_edge.server.generation import Began, Ended, Piece, TokenLogprob, Usage
from tests.server.openai_serving import HELLO, MODEL, World, scripted, world
from tests.server.test_openai_chat import log_softmax
from tests.server.test_providers import ask
from tests.server.told import Told

__all__ = ["scripted", "world"]

START = "<|hello|>"


def start(world: World) -> list[int]:
    """A prompt that the model continues with what it says to [hello]."""
    return [world.scripted.id(START)]


def whole(world: World, prompt: Any, **options: Any) -> Any:
    return world.client.completions.create(model=MODEL, prompt=prompt, **options)


def streamed(world: World, prompt: Any, **options: Any) -> dict[int, str]:
    texts: dict[int, str] = {}
    for one in world.client.completions.create(model=MODEL, prompt=prompt, stream=True, **options):
        for choice in one.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    return texts


def test_tokens_are_continued_as_they_are(world: World) -> None:
    answer = whole(world, start(world), max_tokens=50)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (HELLO, "stop")
    assert answer.usage.prompt_tokens == 1
    assert streamed(world, start(world), max_tokens=50) == {0: HELLO}


def test_a_text_is_no_conversation_and_ends_after_16_tokens(world: World) -> None:
    answer = whole(world, "<|im_start|>x", seed=1)
    assert answer.usage.prompt_tokens == len("<|im_start|>x")
    assert answer.usage.completion_tokens == 16 and answer.choices[0].finish_reason == "length"


def test_several_prompts_have_their_choices_one_after_the_other(world: World) -> None:
    prompts = [start(world), [*start(world), world.scripted.id("Hel")], start(world)]
    answer = whole(world, prompts, n=2, max_tokens=3)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert [choice.text for choice in answer.choices] == ["Hello wor"] * 2 + ["lo world! "] * 2 + ["Hello wor"] * 2
    assert answer.usage.prompt_tokens == 4 and answer.usage.completion_tokens == 18
    assert streamed(world, prompts, n=2, max_tokens=3) == dict(enumerate(choice.text for choice in answer.choices))
    assert [one.text for one in whole(world, ["", "ab"], max_tokens=0, echo=True).choices] == ["", "ab"]


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 63, 100, 300])
def test_echo_has_the_log_probabilities_of_the_prompt(world: World, length: int) -> None:
    made, random = world.scripted, np.random.default_rng(length)
    letters = [made.id(letter) for letter in "abcdefgh"]
    prompt = [int(random.choice(letters)) for _ in range(length)]
    found = whole(world, prompt, max_tokens=1, echo=True, logprobs=2, temperature=0).choices[0]
    names = [made.name(token) for token in prompt]
    assert found.text.startswith("".join(names))
    assert found.logprobs.tokens[:length] == names and len(found.logprobs.tokens) == length + 1
    assert found.logprobs.text_offset[:length] == list(range(length))
    assert found.logprobs.token_logprobs[0] is None and found.logprobs.top_logprobs[0] is None
    for place in range(1, length):
        expected = log_softmax(made.row(names[place - 1]).astype(np.float64))
        assert found.logprobs.token_logprobs[place] == pytest.approx(expected[prompt[place]], abs=1e-4)
        best = {made.name(int(token)): expected[token] for token in np.argsort(-expected)[:2]}
        best[names[place]] = expected[prompt[place]]
        assert found.logprobs.top_logprobs[place] == pytest.approx(best, abs=1e-4)


def test_max_tokens_0_with_echo_gives_the_prompt_alone(world: World) -> None:
    answer = whole(world, "Hé[]", max_tokens=0, echo=True, logprobs=0)
    assert answer.choices[0].text == "Hé[]" and answer.usage.completion_tokens == 0
    # Two bytes, two tokens: neither is a character.
    assert answer.choices[0].logprobs.tokens == ["H", "bytes:\\xc3", "bytes:\\xa9", "[", "]"]
    assert answer.choices[0].logprobs.text_offset == [0, 1, 1, 2, 3]


def test_offsets_go_on_behind_bytes_that_are_no_character_streamed_or_not(world: World) -> None:
    lone, letter = world.scripted.spelled(b"\xf9"), world.scripted.spelled(b"a")
    found = whole(world, [lone, letter, lone, lone, letter], max_tokens=0, echo=True, logprobs=0).choices[0]
    assert len(found.text) == 5 and found.logprobs.text_offset == [0, 1, 2, 3, 4]
    options: dict[str, Any] = {"max_tokens": 5, "logprobs": 0, "temperature": 0, "logit_bias": {str(lone): 100}}
    made = whole(world, [letter], **options).choices[0]
    assert made.logprobs.text_offset == [0, 1, 2, 3, 4]
    chunks = list(world.client.completions.create(model=MODEL, prompt=[letter], stream=True, **options))
    scored = [one.choices[0].logprobs for one in chunks if one.choices and one.choices[0].logprobs]
    assert [offset for one in scored for offset in one.text_offset or ()] == [0, 1, 2, 3, 4]


def test_offsets_go_on_behind_a_character_that_is_in_two_events(world: World) -> None:
    # The inferlet tells of 256 tokens of a prompt at a time.
    found = whole(world, "a" * 254 + "\N{SNAKE}bc", max_tokens=0, echo=True, logprobs=0).choices[0]
    assert found.logprobs.text_offset == [*range(254), 254, 254, 254, 254, 255, 256]


def test_best_of_ranks_what_was_made_and_not_the_prompt_that_is_echoed() -> None:
    def piece(choice: int, text: str, *logprobs: float | None) -> Piece:
        return Piece(choice, text, tuple(TokenLogprob(5, b"a", one) for one in logprobs))

    prompt = [piece(choice, "ab", None, -20.0) for choice in (0, 1)]
    made = [piece(0, "a", -1.0), piece(1, "aaaa", *[-1.1] * 4), Ended(0, "stop"), Ended(1, "stop")]
    told = Told([Began(2, 0), *prompt, *made, Usage(2, 0, 5)])
    body = {"model": "tiny", "prompt": "ab", "echo": True, "n": 1, "best_of": 2}
    status, found = ask(build(told, ServeSettings(), []).asgi, "POST", "/v1/completions", json.dumps(body).encode())
    assert (status, found["choices"][0]["text"]) == (200, "aba")


def test_best_of_gives_the_likeliest(world: World) -> None:
    options = {"max_tokens": 6, "seed": 5, "temperature": 1.5, "logprobs": 0}
    several = whole(world, "abc", n=4, **options).choices
    means = {choice.text: float(np.mean(choice.logprobs.token_logprobs)) for choice in several}
    best = whole(world, "abc", n=2, best_of=4, **options).choices
    assert [choice.text for choice in best] == sorted(means, key=lambda text: -means[text])[:2]
    with pytest.raises(openai.BadRequestError, match="best_of"):
        streamed(world, "abc", n=1, best_of=2)
    with pytest.raises(openai.BadRequestError, match="best_of"):
        whole(world, "abc", n=3, best_of=2)


@pytest.mark.parametrize("prompt", [[], [[]], [289 + 4000], ["a", [3]], 5, None])
def test_what_is_no_prompt_is_refused(world: World, prompt: Any) -> None:
    with pytest.raises((openai.BadRequestError, openai.UnprocessableEntityError)) as refused:
        whole(world, prompt)
    assert refused.value.type == "invalid_request_error"


def test_the_model_is_listed_and_no_other(world: World) -> None:
    assert [model.id for model in world.client.models.list()] == [MODEL]
    assert world.client.models.retrieve(MODEL).owned_by == "pie-edge"
    with pytest.raises(openai.NotFoundError) as missing:
        world.client.models.retrieve("a/b")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match=f"serves '{MODEL}'"):
        world.client.completions.create(model="other", prompt="a")
