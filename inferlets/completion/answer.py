"""One answer, with reasoning before it or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import constraint
from inferlet import Context, Sampler, chat, model, reasoning, tools
from inferlet.generation import Generation
from inferlet.grammar import Grammar
from parts import Parts, Plain
from phase import Phase
from prompts import Prompt
from sink import Sink

_SETTINGS = ("temperature", "top_p", "top_k", "min_p", "presence", "frequency", "repetition")


class Answer:
    """``generated`` tokens were made, ``reasoning`` of them before the answer itself."""

    def __init__(
        self,
        number: int,
        context: Context,
        prompt: Prompt,
        grammar: Grammar | None,
        sink: Sink,
        begin: Callable[[], None],
    ) -> None:
        self.generated = 0
        self.reasoning = 0
        self._number = number
        self._context = context
        self._prompt = prompt
        self._request = prompt.request
        self._grammar = grammar
        self._sink = sink
        self._begin = begin
        self._sampler = _sampler(prompt.request["sampling"])

    async def run(self) -> None:
        if self._grammar is None:
            phase = await self._write(Parts(_decoder(self._prompt)))
        elif not constraint.may_reason(self._prompt):
            phase = await self._write(Parts(_decoder(self._prompt, answering=True)), self._grammar)
        else:
            phase = await self._reason()
            if phase.generation.finish_reason not in ("length", "context"):
                phase = await self._write(Parts(_decoder(self._prompt, answering=True)), self._grammar)
        self._end(phase)

    async def _reason(self) -> Phase:
        """Everything before the answer's first text, which no grammar holds for."""
        parts = Parts(reasoning.Decoder(thinking=self._prompt.thinking))
        phase = await self._write(parts, until=lambda _: parts.began)
        if parts.began:
            self.generated -= constraint.take_back(self._context)
        elif parts.reasoning and phase.generation.finish_reason == "stop":
            constraint.close(self._context)
        return phase

    async def _write(
        self, parts: Parts, grammar: Grammar | None = None, until: Callable[[Generation], bool] | None = None
    ) -> Phase:
        request, limit = self._request, self._request["max_tokens"]
        one_call = until is None and bool(self._prompt.tools) and not request["parallel_calls"]
        generation = self._context.generate(
            self._sampler,
            max_tokens=None if limit is None else max(limit - self.generated, 0),
            stop=request["stop"],
            stop_tokens=() if request["ignore_stop_tokens"] else None,
            until=(lambda _: parts.finished > 0) if one_call else until,
            logprobs=request["logprobs"],
            decoder=parts,
            grammar=grammar,
        )
        scored = request["logprobs"] is not None
        phase = Phase(self._number, generation, parts, self._sink, scored=scored, thinks=until is not None)
        await phase.run(self._begin)
        self.generated += generation.usage.generated
        self.reasoning += parts.reasoning
        return phase

    def _end(self, phase: Phase) -> None:
        reason: str | None = phase.generation.finish_reason
        by = phase.generation.stopped_by
        if isinstance(by, int) and by not in chat.stop_tokens():
            by = model.decode([by], special=True, continued=True)
        if reason == "until" or (phase.parts.called and reason == "stop" and not isinstance(by, str)):
            reason = "calls"
        elif isinstance(by, str):
            reason = "stop-string"
        self._sink.add("e", self._number, reason, by if isinstance(by, str) else None)


def _sampler(settings: dict[str, Any]) -> Sampler:
    given = {name: settings[name] for name in _SETTINGS if settings[name] is not None}
    bias = {int(token): value for token, value in settings["logit_bias"].items()}
    return Sampler(**given, logit_bias=bias)


def _decoder(prompt: Prompt, *, answering: bool = False) -> Plain | reasoning.Decoder | tools.Decoder:
    """``answering``: the reasoning is over."""
    if prompt.conversation is None:
        return Plain()
    opened = False if answering or prompt.conversation["prefill"] else None
    continued = bool(prompt.conversation["prefill"])
    if prompt.tools:
        return tools.Decoder(prompt.tools, thinking=prompt.thinking, opened=opened, continued=continued)
    if answering:
        return Plain()
    return reasoning.Decoder(thinking=prompt.thinking, opened=opened, continued=continued)
