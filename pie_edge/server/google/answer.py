"""A generation's events as the chunks of Google's streams; an answer that isn't streamed is what such a stream adds up to."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pie_edge.server import wire
from pie_edge.server.generation import (
    CallArguments,
    CallBegan,
    Ended,
    Event,
    Piece,
    Thought,
    TokenLogprob,
    Usage,
)

_REASONS = {"stop": "STOP", "stop-string": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "context": "MAX_TOKENS"}

Chunk = dict[str, Any]


@dataclass
class _Candidate:
    """What is known of a choice that hasn't ended: the call that its arguments are coming for, and what its tokens' log
    probabilities add up to."""

    call: CallBegan | None = None
    arguments: str = ""
    logprob: float = 0.0
    tokens: int = 0
    ended: dict[str, Any] = field(default_factory=dict)


class Stream:
    """Makes the chunks of one answer. A call comes whole; why each choice ended comes in the last chunk, with the counts."""

    def __init__(self, model: str, thoughts: bool) -> None:
        self._head = {"modelVersion": model, "responseId": secrets.token_urlsafe(15)}
        self._thoughts = thoughts
        self._candidates: dict[int, _Candidate] = {}

    def push(self, event: Event) -> Iterator[Chunk]:
        match event:
            case Piece():
                yield from self._piece(event)
            case Thought() if self._thoughts and event.text:
                yield self._chunk(event.choice, [{"text": event.text, "thought": True}])
            case CallBegan():
                yield from self._called(event.choice)
                self._candidate(event.choice).call = event
            case CallArguments():
                self._candidate(event.choice).arguments += event.text
            case Ended():
                yield from self._called(event.choice, cut=event.reason in ("length", "context"))
                self._end(event)
            case Usage():
                yield self._last(event)

    def _candidate(self, choice: int) -> _Candidate:
        return self._candidates.setdefault(choice, _Candidate())

    def _chunk(self, choice: int, parts: list[dict[str, Any]], **more: Any) -> Chunk:
        content = {"parts": parts, "role": "model"}
        return {"candidates": [{"content": content, "index": choice, **more}], **self._head}

    def _piece(self, event: Piece) -> Iterator[Chunk]:
        yield from self._called(event.choice)
        parts = [{"text": event.text}] if event.text else []
        if event.logprobs:
            candidate = self._candidate(event.choice)
            candidate.logprob += sum(_finite(one.logprob) for one in event.logprobs)
            candidate.tokens += len(event.logprobs)
            yield self._chunk(event.choice, parts, logprobsResult=_logprobs(event.logprobs))
        elif parts:
            yield self._chunk(event.choice, parts)

    def _called(self, choice: int, cut: bool = False) -> Iterator[Chunk]:
        """The call whose arguments have all come, or were ``cut``. One that they make no object for is told of at the end."""
        candidate = self._candidate(choice)
        call, candidate.call, arguments, candidate.arguments = candidate.call, None, candidate.arguments, ""
        if call is None:
            return
        try:
            values = wire.said(arguments or ("" if cut else "{}"))
        except ValueError:
            values = None
        if isinstance(values, dict):
            yield self._chunk(choice, [{"functionCall": {"id": call.id, "name": call.name, "args": values}}])
        else:
            message = f"the arguments of {call.name} are no object: {arguments}"
            candidate.ended = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": message}

    def _end(self, event: Ended) -> None:
        candidate = self._candidate(event.choice)
        candidate.ended = candidate.ended or {"finishReason": _REASONS[event.reason]}
        if candidate.tokens:
            candidate.ended["avgLogprobs"] = candidate.logprob / candidate.tokens

    def _last(self, usage: Usage) -> Chunk:
        """With a part that says nothing: the SDK keeps no turn in a chat that has a content without parts."""
        ends = [
            {"content": {"parts": [{"text": ""}], "role": "model"}, "index": choice, **candidate.ended}
            for choice, candidate in sorted(self._candidates.items())
        ]
        return {"candidates": ends, "usageMetadata": _usage(usage), **self._head}


def whole(chunks: Iterable[Chunk]) -> Chunk:
    """What a stream adds up to."""
    made: Chunk = {}
    candidates: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        made |= chunk
        for one in chunk["candidates"]:
            found = candidates.setdefault(one["index"], {"content": {"parts": [], "role": "model"}})
            _add_parts(found["content"]["parts"], one["content"]["parts"])
            if "logprobsResult" in one:
                known = found.setdefault("logprobsResult", {name: [] for name in one["logprobsResult"]})
                for name, values in one["logprobsResult"].items():
                    known[name] += values
            found |= {name: value for name, value in one.items() if name not in ("content", "logprobsResult")}
    return made | {"candidates": [candidates[index] for index in sorted(candidates)]}


def _add_parts(parts: list[dict[str, Any]], more: Sequence[dict[str, Any]]) -> None:
    for part in more:
        if part.get("text") == "":
            continue
        last = parts[-1] if parts else {}
        if "text" in part and "text" in last and part.get("thought") == last.get("thought"):
            last["text"] += part["text"]
        else:
            parts.append(dict(part))


def _logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    found: dict[str, Any] = {"chosenCandidates": [_logprob(token) for token in tokens]}
    if any(token.top for token in tokens):
        found["topCandidates"] = [{"candidates": [_logprob(one) for one in token.top]} for token in tokens]
    return found


def _logprob(token: TokenLogprob) -> dict[str, Any]:
    text = token.data.decode("utf-8", "replace")
    return {"token": text, "tokenId": token.token, "logProbability": _finite(token.logprob)}


def _finite(logprob: float | None) -> float:
    """JSON has no infinity."""
    return max(logprob or 0.0, -9999.0)


def _usage(usage: Usage) -> dict[str, Any]:
    """Thoughts are counted beside the candidates' tokens, and what was cached among the prompt's."""
    found = {
        "promptTokenCount": usage.prompt,
        "candidatesTokenCount": usage.generated - usage.reasoning,
        "totalTokenCount": usage.prompt + usage.generated,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.prompt}],
    }
    if usage.cached:
        found["cachedContentTokenCount"] = usage.cached
    if usage.reasoning:
        found["thoughtsTokenCount"] = usage.reasoning
    return found
