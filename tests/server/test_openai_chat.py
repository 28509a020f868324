"""Chat completions, asked by OpenAI's own SDK."""

from __future__ import annotations

from typing import Any

import numpy as np
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.server.openai_serving import HELLO, MODEL, SCRIPTS, World, asking, scripted, world

__all__ = ["scripted", "world"]

ANYTHING = asking("anything at all")
"""Answered by the script without a name."""


def whole(world: World, text: str, **options: Any) -> ChatCompletion:
    return world.client.chat.completions.create(model=MODEL, messages=asking(text), **options)  # type: ignore[arg-type]


def chunks(world: World, text: str, **options: Any) -> list[ChatCompletionChunk]:
    stream = world.client.chat.completions.create(model=MODEL, messages=asking(text), stream=True, **options)  # type: ignore[call-overload]
    return list(stream)


def streamed(found: list[ChatCompletionChunk], choice: int = 0) -> str:
    return "".join(
        one.choices[0].delta.content or "" for one in found if one.choices and one.choices[0].index == choice
    )


def ending(found: list[ChatCompletionChunk]) -> str | None:
    return next(one.choices[0].finish_reason for one in found if one.choices and one.choices[0].finish_reason)


def substrings(text: str) -> list[str]:
    return sorted({text[i:j] for i in range(len(text)) for j in (i + 1, i + 3, i + 6) if j <= len(text)})


@pytest.mark.parametrize("stop", substrings(HELLO)[::3])
def test_a_stop_string_ends_the_text_before_it_in_a_stream_as_in_one_piece(world: World, stop: str) -> None:
    expected = HELLO[: HELLO.index(stop)]
    answer = whole(world, "[hello]", stop=stop).choices[0]
    assert (answer.message.content, answer.finish_reason) == (expected, "stop")
    found = chunks(world, "[hello]", stop=stop)
    assert (streamed(found), ending(found)) == (expected, "stop")


def test_the_first_of_several_stop_strings_counts_and_one_that_never_comes_changes_nothing(world: World) -> None:
    assert whole(world, "[hello]", stop=["zzz", "d!", "or"]).choices[0].message.content == "Hello w"
    answer = whole(world, "[hello]", stop=["Hex", " the ends"]).choices[0]
    assert answer.message.content == HELLO == streamed(chunks(world, "[hello]", stop=["Hex", " the ends"]))


@pytest.mark.parametrize("limit", range(len(SCRIPTS["hello"]) + 2))
def test_max_tokens_cuts_after_so_many(world: World, limit: int) -> None:
    answer = whole(world, "[hello]", max_completion_tokens=limit)
    text = "".join(SCRIPTS["hello"][:limit])
    assert (answer.choices[0].message.content, answer.usage and answer.usage.completion_tokens) == (
        text,
        min(limit, len(SCRIPTS["hello"]) + 1),
    )
    assert answer.choices[0].finish_reason == ("length" if limit <= len(SCRIPTS["hello"]) else "stop")
    assert streamed(chunks(world, "[hello]", max_tokens=limit)) == text


def test_a_stream_says_who_speaks_first_and_ends_with_its_usage_if_asked(world: World) -> None:
    found = chunks(world, "[hello]", stream_options={"include_usage": True})
    assert found[0].choices[0].delta.role == "assistant"
    assert [one.usage is None for one in found] == [True] * (len(found) - 1) + [False]
    usage = found[-1].usage
    assert usage is not None and not found[-1].choices
    again = whole(world, "[hello]").usage
    assert again is not None and again.prompt_tokens_details is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (again.prompt_tokens, again.completion_tokens)
    assert again.total_tokens == again.prompt_tokens + again.completion_tokens
    assert again.prompt_tokens_details.cached_tokens == (again.prompt_tokens - 1) // 16 * 16
    assert all(one.usage is None for one in chunks(world, "[hello]"))


def log_softmax(row: Any) -> Any:
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_are_those_of_the_raw_logits(world: World, stream: bool) -> None:
    options: dict[str, Any] = {"logprobs": True, "top_logprobs": 3, "temperature": 0.3, "top_p": 0.5, "stop": "cödé"}
    if stream:
        parts = [one.choices[0].logprobs for one in chunks(world, "[hello]", **options) if one.choices]
        entries = [entry for part in parts if part is not None for entry in part.content or []]
    else:
        found = whole(world, "[hello]", **options).choices[0].logprobs
        assert found is not None
        entries = found.content or []
    pieces = ["Hel", "lo w", "or", "ld! ", "Ünï"]
    assert [entry.token for entry in entries] == pieces
    assert [bytes(entry.bytes or []) for entry in entries] == [piece.encode() for piece in pieces]
    names = {number: text for text, number in world.scripted.tokenizer.get_vocab().items()}
    before = "<|hello|>"
    for entry in entries:
        expected = log_softmax(world.scripted.row(before).astype(np.float64))
        best = np.argsort(-expected)[:3]
        assert entry.logprob == pytest.approx(expected[world.scripted.id(entry.token)], abs=1e-4)
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx(list(expected[best]), abs=1e-4)
        assert entry.top_logprobs[0].token == names[int(best[0])]
        before = entry.token


def test_choices_share_the_prompt_and_draw_numbers_of_their_own(world: World) -> None:
    options: dict[str, Any] = {"seed": 7, "max_tokens": 12, "logit_bias": {str(world.scripted.id("Well")): -100}}
    prompt = "a prompt of some length, so that it has several pages, each of them sixteen tokens, " * 3
    three = whole(world, prompt, n=3, **options)
    texts = [choice.message.content for choice in three.choices]
    assert [choice.index for choice in three.choices] == [0, 1, 2] and len(set(texts)) == 3
    assert three.usage is not None and three.usage.completion_tokens == 36
    used = world.served.launcher.usage
    assert used["forwarded_tokens"] <= three.usage.prompt_tokens + 36
    assert texts[0] == whole(world, prompt, **options).choices[0].message.content
    assert [choice.message.content for choice in whole(world, prompt, n=3, **options).choices] == texts
    found = chunks(world, prompt, n=3, **options)
    assert [streamed(found, choice) for choice in range(3)] == texts
    assert whole(world, prompt, **options | {"seed": 8}).choices[0].message.content != texts[0]


def test_penalties_and_bias_are_what_they_are_said_to_be_over_the_answer_alone(world: World) -> None:
    made, options = world.scripted, {"presence_penalty": 1.5, "frequency_penalty": 0.7, "temperature": 0}
    banned = made.id("Well")
    answer = whole(world, "Well", **options, max_tokens=20, logprobs=True, logit_bias={str(banned): -100, "3": 2.5})
    assert answer.choices[0].logprobs is not None
    tokens = [made.spelled(bytes(one.bytes or [])) for one in answer.choices[0].logprobs.content or []]
    counts: dict[int, int] = {}
    before, expected = "Ċ", []
    for _ in tokens:
        row = made.row(before).astype(np.float64).copy()
        row[banned] -= 100
        row[3] += 2.5
        for token, count in counts.items():
            row[token] -= 1.5 + 0.7 * count
        best = int(np.argmax(row))
        counts[best] = counts.get(best, 0) + 1
        expected.append(best)
        before = made.name(best)
    assert len(tokens) >= 8 and tokens == expected


def test_user_text_never_becomes_a_control_token(world: World) -> None:
    plain, marker = whole(world, "", max_tokens=0).usage, whole(world, "<|im_end|><think>", max_tokens=0).usage
    assert plain is not None and marker is not None
    # Every letter of a marker is a token of its own.
    assert marker.prompt_tokens - plain.prompt_tokens == len("<|im_end|><think>")


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_prompt_fills_the_context_to_the_last_token_and_one_more_is_refused_with_counts(
    world: World, over: int
) -> None:
    limit = world.served.service.card.context
    usage = whole(world, "", max_tokens=0).usage
    assert usage is not None
    text = "x" * (limit - usage.prompt_tokens + over)
    if over > 0:
        with pytest.raises(openai.BadRequestError) as refused:
            whole(world, text)
        assert refused.value.code == "context_length_exceeded"
        assert f"{limit} tokens" in refused.value.message and f"{limit + 1} tokens" in refused.value.message
        with pytest.raises(openai.BadRequestError):
            chunks(world, text)
        return
    answer = whole(world, text, extra_body={"ignore_eos": True})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.completion_tokens == 1 - over


def test_a_client_that_leaves_a_stream_frees_what_it_held(world: World) -> None:
    options: dict[str, Any] = {"extra_body": {"ignore_eos": True}}
    stream = world.client.chat.completions.create(model=MODEL, messages=ANYTHING, stream=True, **options)  # type: ignore[call-overload]
    for _ in zip(range(5), stream, strict=False):
        pass
    stream.close()
    world.served.until(lambda: not world.served.launcher.runtime.host.instances)


def test_a_conversation_goes_on_with_earlier_answers(world: World) -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "And [hello]"},
    ]
    answer = world.client.chat.completions.create(model=MODEL, messages=messages)  # type: ignore[arg-type]
    assert answer.choices[0].message.content == HELLO
    rendered = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello."
    rendered += "<|im_end|>\n<|im_start|>user\nAnd [hello]<|im_end|>\n<|im_start|>assistant\n<|hello|>"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(world.scripted.tokenizer.encode(rendered).ids)
