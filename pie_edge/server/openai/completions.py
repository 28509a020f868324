"""``POST /v1/completions``: texts and tokens, continued as they are."""

from __future__ import annotations

import codecs
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pie_edge.server import streams, wire
from pie_edge.server.generation import Began, Ended, Event, Piece, Service, TokenLogprob, Usage
from pie_edge.server.openai.chat import FINISH, Head, finite, usage
from pie_edge.server.openai.completions_request import CompletionsBody
from pie_edge.server.openai.errors import check_model, in_stream, placed
from pie_edge.server.openai.parameters import parse

_Decoder = codecs.getincrementaldecoder("utf-8")

Events = AsyncIterator[tuple[int, Event]]
"""With the number of their prompt."""


async def create(service: Service, request: Request) -> Response:
    body = parse(CompletionsBody, await request.body())
    check_model(body.model, service.card)
    body.check_bias(service.card)
    head = Head(service.card.name, f"cmpl-{secrets.token_hex(12)}")
    body.check_tokens(service.card)
    generations = zip(body.requests(), body.places(), strict=True)
    events = streams.merged([placed(service.generate(one), place) for one, place in generations])
    if body.stream:
        return await streams.streamed(request, events, lambda begun: _lines(begun, head, body), in_stream)
    return wire.json_response(await streams.whole(request, events, lambda coming: _whole(coming, head, body)))


class _Place:
    """How far a text has come. A character counts where its last byte comes, and bytes that are of none count as the character
    that the text has in their place."""

    def __init__(self) -> None:
        self._length = self._decoded = 0
        self._decoder = _Decoder("replace")

    def take(self, piece: Piece) -> list[int]:
        """Where the tokens of the next piece are."""
        if self._decoded != self._length:  # the text was cut, or what there was of a character was given up
            self._decoder.reset()
            self._decoded = self._length
        offsets = []
        for one in piece.logprobs:
            offsets.append(self._decoded)
            self._decoded += len(self._decoder.decode(one.data))
        self._length += len(piece.text)
        return offsets


@dataclass(slots=True)
class _Choice:
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    place: _Place = field(default_factory=_Place)
    finish: str = "stop"

    def take(self, event: Event) -> None:
        match event:
            case Piece():
                self.logprobs += event.logprobs
                self.offsets += self.place.take(event)
                self.text += event.text
            case Ended():
                self.finish = FINISH[event.reason]

    def likelihood(self, echoed: int) -> float:
        """The mean of its tokens' log probabilities, without those of the prompt, which come first."""
        known = [one.logprob for one in self.logprobs[echoed:] if one.logprob is not None]
        return sum(known) / max(len(known), 1)


async def _whole(events: Events, head: Head, body: CompletionsBody) -> dict[str, Any]:
    prompts = len(body.prompts())
    made = [[_Choice() for _ in range(body.best_of or body.choices)] for _ in range(prompts)]
    used = Usage(0, 0, 0)
    echoed = [0] * prompts
    async for prompt, event in events:
        if isinstance(event, Usage):
            used = _added(used, event)
        elif isinstance(event, Began):
            echoed[prompt] = event.prompt if body.echo else 0
        elif (number := getattr(event, "choice", None)) is not None:
            made[prompt][number].take(event)
    choices = [choice for n, several in enumerate(made) for choice in _best(several, body.choices, echoed[n])]
    shown = [
        {
            "index": index,
            "text": choice.text,
            "logprobs": None if body.logprobs is None else _logprobs(choice.logprobs, choice.offsets),
            "finish_reason": choice.finish,
        }
        for index, choice in enumerate(choices)
    ]
    return head.of("text_completion", choices=shown, usage=usage(used))


def _best(several: list[_Choice], count: int, echoed: int) -> list[_Choice]:
    if len(several) == count:
        return several
    return sorted(several, key=lambda one: one.likelihood(echoed), reverse=True)[:count]


async def _lines(events: Events, head: Head, body: CompletionsBody) -> AsyncGenerator[str, None]:
    more: dict[str, Any] = {"usage": None} if body.counts_usage else {}
    used = Usage(0, 0, 0)
    places: dict[int, _Place] = {}
    async for prompt, event in events:
        match event:
            case Piece():
                index = prompt * body.choices + event.choice
                offsets = places.setdefault(index, _Place()).take(event)
                entries = None if body.logprobs is None else _logprobs(event.logprobs, offsets)
                choice = {"index": index, "text": event.text, "logprobs": entries, "finish_reason": None}
            case Ended():
                index, finish = prompt * body.choices + event.choice, FINISH[event.reason]
                choice = {"index": index, "text": "", "logprobs": None, "finish_reason": finish}
            case Usage():
                used = _added(used, event)
                continue
            case _:
                continue
        yield wire.event(head.of("text_completion", choices=[choice], **more))
    if body.counts_usage:
        yield wire.event(head.of("text_completion", choices=[], usage=usage(used)))
    yield "data: [DONE]\n\n"


def _added(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.prompt + other.prompt,
        one.cached + other.cached,
        one.generated + other.generated,
        one.reasoning + other.reasoning,
    )


def _logprobs(entries: Sequence[TokenLogprob], offsets: Sequence[int]) -> dict[str, Any]:
    return {
        "tokens": [_spelled(one.data) for one in entries],
        "token_logprobs": [finite(one.logprob) for one in entries],
        "top_logprobs": [_top(one) for one in entries],
        "text_offset": list(offsets),
    }


def _top(one: TokenLogprob) -> dict[str, float | None] | None:
    """The likeliest, and the token itself."""
    if one.logprob is None:
        return None
    return {_spelled(each.data): finite(each.logprob) for each in (*one.top, one)}


def _spelled(data: bytes) -> str:
    """A part of a character has no text of its own."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
