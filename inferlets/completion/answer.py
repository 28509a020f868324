"""One answer: made token by token, told as events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inferlet import Context, Sampler, chat, errors, model, reasoning, tools
from inferlet.generation import Generation
from parts import Logprobs, Parts, Plain
from prompts import Prompt
from sink import Sink

_SETTINGS = ("temperature", "top_p", "top_k", "min_p", "presence", "frequency", "repetition")


class Answer:
    def __init__(self, number: int, context: Context, prompt: Prompt, sink: Sink, begin: Callable[[], None]) -> None:
        self._number = number
        self._sink = sink
        self._begin = begin
        self._parts = Parts(_decoder(prompt))
        self._logprobs = None if prompt.request["logprobs"] is None else Logprobs(self._parts)
        self._generation = self._start(context, prompt)
        self._told = 0

    @property
    def generated(self) -> int:
        """Tokens that were made."""
        return self._generation.usage.generated

    @property
    def reasoning(self) -> int:
        """How many of them are."""
        return self._parts.reasoning

    async def run(self) -> None:
        generation = self._generation
        while await generation.step():
            self._begin()
            self._tell()
        self._end()

    def _start(self, context: Context, prompt: Prompt) -> Generation:
        request = prompt.request
        if request["constraint"] is not None or request["tool_choice"] not in ("auto", "none"):
            raise errors.Unsupported("answers can't be constrained yet; leave response_format and tool_choice out")
        parts = self._parts
        one_call = bool(prompt.tools) and not request["parallel_calls"]
        return context.generate(
            sampler(request["sampling"]),
            max_tokens=request["max_tokens"],
            stop=request["stop"],
            stop_tokens=() if request["ignore_stop_tokens"] else None,
            until=(lambda _: parts.finished > 0) if one_call else None,
            logprobs=request["logprobs"],
            decoder=parts,
        )

    def _tell(self) -> None:
        """What the last step gave."""
        parts, text = self._parts, self._generation.text
        if parts.thoughts:
            self._sink.add("t", self._number, parts.thoughts)
            parts.thoughts = ""
        if len(text) > self._told:
            self._sink.add("p", self._number, text[self._told :], *self._scores(len(text)))
            self._told = len(text)
        if parts.calls:
            for kind, *fields in parts.calls:
                self._sink.add(kind, self._number, *fields)
            parts.calls.clear()

    def _scores(self, length: int) -> list[Any]:
        if self._logprobs is None:
            return []
        return [self._logprobs.upto(self._generation.logprobs, length, last=self._generation.finish_reason is not None)]

    def _end(self) -> None:
        reason, by = self._generation.finish_reason, self._generation.stopped_by
        if isinstance(by, int) and by not in chat.stop_tokens():
            by = model.decode([by], special=True, continued=True)
        if reason == "until" or (self._parts.called and reason == "stop" and not isinstance(by, str)):
            reason = "calls"
        elif isinstance(by, str):
            reason = "stop-string"
        self._sink.add("e", self._number, reason, by if isinstance(by, str) else None)


def sampler(settings: dict[str, Any]) -> Sampler:
    given = {name: settings[name] for name in _SETTINGS if settings[name] is not None}
    bias = {int(token): value for token, value in settings["logit_bias"].items()}
    return Sampler(**given, logit_bias=bias)


def _decoder(prompt: Prompt) -> Plain | reasoning.Decoder | tools.Decoder:
    if prompt.conversation is None:
        return Plain()
    continued = bool(prompt.conversation["prefill"])
    if prompt.tools:
        return tools.Decoder(prompt.tools, thinking=prompt.thinking, continued=continued)
    return reasoning.Decoder(thinking=prompt.thinking, continued=continued)
