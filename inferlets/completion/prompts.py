"""What the model reads: a conversation by its chat template, or a text as it is."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inferlet import Context, chat, errors, model, tokenizer
from inferlet import tools as calling

SEEDS = 2**64
_AT_ONCE = 2**18  # characters; the host takes four times as many


class TooLong(errors.ContextOverflow):
    """``counts``: tokens of the prompt, and how many the model can read."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"the prompt has {tokens} tokens, and {model.name()} can read {limit}; shorten it")
        self.counts = (tokens, limit)


class Prompt:
    """A request, and the context that it is to be answered in."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.request = request
        self.conversation: Mapping[str, Any] | None = None
        self.text: str | Sequence[int] = ""
        if "messages" in request["prompt"]:
            self.conversation = request["prompt"]
        else:
            self.text = request["prompt"]["content"]
        self.tokens = tokens_of(shown(request))
        if self.conversation is not None and self.conversation["shorten"]:
            self._shorten()
        self._check_length()

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """Those that may be called."""
        return [] if self.conversation is None else shown(self.request)["tools"]

    @property
    def thinking(self) -> bool | None:
        return None if self.conversation is None else self.conversation["thinking"]

    def context(self) -> Context:
        """Empty but for what every context begins with, which the tokens may begin with too."""
        seed = self.request["sampling"]["seed"]
        context = Context(seed=None if seed is None else seed % SEEDS, thinking=self.thinking)
        context.truncate(0)
        return context

    def _shorten(self) -> None:
        """Leaves out as few of the oldest turns as it takes for the answer to have room. The last one stays."""
        limit, wanted = model.context_size(), self.request["max_tokens"]
        room = limit - min(limit // 8 if wanted is None else wanted, limit // 2)
        prompt = shown(self.request)
        starts = [n for n, message in enumerate(prompt["messages"]) if message["role"] == "user"]
        head = [message for message in prompt["messages"][: starts[0]] if message["role"] == "system"] if starts else []

        def since(start: int) -> list[int]:
            return tokens_of({**prompt, "messages": [*head, *prompt["messages"][start:]], "after": None})

        if len(self.tokens) > room and len(starts) > 1:
            first = bisect.bisect_left(starts, True, 1, len(starts) - 1, key=lambda start: len(since(start)) <= room)
            self.tokens = since(starts[first])

    def _check_length(self) -> None:
        limit = model.context_size()
        if len(self.tokens) > limit:
            raise TooLong(len(self.tokens), limit)


def shown(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The prompt of a request, without tools where none may be called: a model calls what it knows."""
    prompt: Mapping[str, Any] = request["prompt"]
    return {**prompt, "tools": []} if request.get("tool_choice") == "none" and "tools" in prompt else prompt


def tokens_of(prompt: Mapping[str, Any]) -> list[int]:
    """Raises UsageError for an empty text where the model has no token to begin with, TemplateError for a conversation that it
    can't read, ContextOverflow for a prompt that is too long to be made tokens of."""
    try:
        return _tokens_of(prompt)
    except errors.ResourceError:
        texts = list(_texts(prompt))
    # More than the host makes tokens of at once; how many it would be is told all the same.
    count = sum(len(model.encode(part)) for text in texts for part in _parts(text))
    if count > model.context_size():
        raise TooLong(count, model.context_size())
    characters = sum(map(len, texts))
    raise errors.ContextOverflow(f"the prompt has {characters:,} characters, more than are read at once; shorten it")


def _texts(value: Any) -> Iterator[str]:
    """All that there is to read in a prompt."""
    if isinstance(value, str):
        yield value
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for part in parts:
        yield from _texts(part)


def _parts(text: str) -> Iterator[str]:
    for start in range(0, len(text), _AT_ONCE):
        yield text[start : start + _AT_ONCE]


def _tokens_of(prompt: Mapping[str, Any]) -> list[int]:
    if "messages" in prompt:
        if not chat.available():
            raise errors.TemplateError(
                f"{model.name()} has no chat template, so it can read no conversation; have it continue a text (/v1/completions) "
                "or serve a model that chats"
            )
        return [*_conversation(prompt), *model.encode(prompt["prefill"])]
    content = prompt["content"]
    tokens = [*chat.prefix(), *model.encode(content)] if isinstance(content, str) else [*content]
    first = tokenizer.eos()
    if not tokens and first is not None:
        tokens = [first]  # what ends a text comes before the next
    if not tokens:
        raise errors.UsageError("the prompt is empty; give it one token or more")
    return tokens


def _conversation(prompt: Mapping[str, Any]) -> list[int]:
    messages, tools, thinking, after = (prompt[name] for name in ("messages", "tools", "thinking", "after"))
    if after is not None:
        try:
            return [
                *after["tokens"],
                *_continued(messages[: after["messages"]], messages[after["messages"] :], thinking),
            ]
        except errors.TemplateError:
            pass  # a template that writes turns only as a whole: then the pages serve as far as its tokens are the same
    return chat.conversation(messages, tools=tools or None, thinking=thinking)


def _continued(
    known: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]], thinking: bool | None
) -> list[int]:
    """The turns that follow an answer. Raises TemplateError for turns that can't follow one by themselves."""
    answers = [message for message in messages if message["role"] == "tool"]
    turns = [message for message in messages if message["role"] != "tool"]
    if messages[: len(answers)] != answers:
        raise errors.TemplateError("what tools gave doesn't follow their calls")
    found = calling.answer(*_pairs(known, answers)) if answers else chat.seal()
    for message in turns:
        if message["role"] != "user" or not isinstance(message["content"], str):
            raise errors.TemplateError(f"a message of the {message['role']} can't follow an answer by itself")
        found += chat.user(message["content"])
    return [*found, *chat.cue(thinking=thinking)]


def _pairs(known: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]) -> list[tuple[calling.Call, Any]]:
    calls = {call["id"]: call["function"]["name"] for message in known for call in message.get("tool_calls") or ()}
    if any(answer["tool_call_id"] not in calls for answer in answers):
        raise errors.TemplateError("a tool answers what was not called")
    return [
        (calling.Call(calls[answer["tool_call_id"]], {}, answer["tool_call_id"]), answer["content"])
        for answer in answers
    ]
