"""One answer, with reasoning before it or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from constraint import Constraint, bound_of, close, may_precede, take_back
from inferlet import Context, Sampler, chat, model
from inferlet.generation import Generation
from inferlet.grammar import Grammar, Matcher
from parts import Parts, Plain, decoder_of
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
        constraint: Constraint,
        sink: Sink,
        begin: Callable[[], None],
    ) -> None:
        self.generated = 0
        self.reasoning = 0
        self._number = number
        self._context = context
        self._prompt = prompt
        self._request = prompt.request
        self._constraint = constraint
        self._sink = sink
        self._begin = begin
        self._sampler = _sampler(prompt.request["sampling"])
        self._bound = bound_of(prompt)

    async def run(self) -> None:
        given, phase = self._constraint, None
        if given.text is None:
            phase = await self._whole(None if given.calls is None else given.calls.fork())
        else:
            if may_precede(self._prompt):
                phase = await self._precede()
            if phase is None or not (phase.parts.called or phase.is_cut):
                phase = await self._write(Parts(Plain()), given.text)
        self._end(phase)

    async def _whole(self, matcher: Matcher | None) -> Phase:
        """All of it, in two where its reasoning is as long as it may be: then that is closed in between."""
        parts = Parts(decoder_of(self._prompt))
        if self._bound is None:
            return await self._write(parts, matcher)
        phase = await self._write(parts, matcher, until=lambda _: self._has_thought(parts))
        if not self._has_thought(parts) or phase.generation.finish_reason != "until":
            return phase
        closer = close(self._context)
        if matcher is not None:
            matcher.accept(closer)
        return await self._write(Parts(decoder_of(self._prompt, answering=True)), matcher)

    def _has_thought(self, parts: Parts) -> bool:
        """As much as it may, and hasn't ended that by itself."""
        return self._bound is not None and parts.reasoning >= self._bound and not parts.began and not parts.called

    async def _precede(self) -> Phase:
        """Everything up to the answer's first text, which no grammar holds for: reasoning, or calls in its place."""
        parts = Parts(decoder_of(self._prompt))
        phase = await self._write(parts, until=lambda _: parts.began or self._has_thought(parts), told=False)
        if parts.called or phase.is_cut:
            return phase
        if parts.began:
            taken = take_back(self._context)
            self.generated -= taken
            self._sink.count(-taken)
        elif parts.reasoning:
            close(self._context)
        return phase

    async def _write(
        self,
        parts: Parts,
        grammar: Grammar | Matcher | None = None,
        until: Callable[[Generation], bool] | None = None,
        told: bool = True,
    ) -> Phase:
        """``told``: its text is a part of the answer."""
        request, limit = self._request, self._request["max_tokens"]
        one_call = bool(self._prompt.tools) and not request["parallel_calls"]

        def ends(generation: Generation) -> bool:
            return (one_call and parts.finished > 0) or (until is not None and until(generation))

        generation = self._context.generate(
            self._sampler,
            max_tokens=None if limit is None else max(limit - self.generated, 0),
            stop=request["stop"],
            stop_tokens=() if request["ignore_stop_tokens"] else None,
            until=ends if one_call or until is not None else None,
            logprobs=request["logprobs"],
            decoder=parts,
            grammar=grammar,
        )
        scored = request["logprobs"] is not None
        phase = Phase(self._number, generation, parts, self._sink, scored=scored, thinks=not told)
        await phase.run(self._begin)
        self.generated += generation.usage.generated
        self.reasoning += parts.reasoning
        return phase

    def _end(self, phase: Phase) -> None:
        reason: str | None = phase.generation.finish_reason
        by = phase.generation.stopped_by
        if isinstance(by, int) and by not in chat.stop_tokens():
            by = model.decode([by], special=True, continued=True)
        if phase.parts.called and reason in ("until", "stop") and not isinstance(by, str):
            reason = "calls"
        elif isinstance(by, str):
            reason = "stop-string"
        self._sink.add("e", self._number, reason, by if isinstance(by, str) else None)


def _sampler(settings: dict[str, Any]) -> Sampler:
    """As asked for, and else as the checkpoint recommends."""
    given = model.sampling() | {name: settings[name] for name in _SETTINGS if settings[name] is not None}
    bias = {int(token): value for token, value in settings["logit_bias"].items()}
    return Sampler(**given, logit_bias=bias)
