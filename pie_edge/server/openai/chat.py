"""``POST /v1/chat/completions``: the answer, whole or in pieces."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pie_edge import __version__
from pie_edge.server import streams, wire
from pie_edge.server.generation import (
    CallArguments,
    CallBegan,
    Ended,
    Event,
    Piece,
    Service,
    Thought,
    TokenLogprob,
    Usage,
)
from pie_edge.server.openai.chat_request import ChatBody
from pie_edge.server.openai.errors import check_model, form_of, in_stream, placed
from pie_edge.server.openai.parameters import parse

FINISH = {"stop": "stop", "stop-string": "stop", "length": "length", "context": "length", "calls": "tool_calls"}


async def create(service: Service, request: Request) -> Response:
    body = parse(ChatBody, await request.body())
    check_model(body.model, service.card)
    body.check_bias(service.card)
    head = Head(service.card.name)
    asked = body.request(service.card)
    schema = form_of(asked, "response_format.json_schema.schema")
    events = placed(service.generate(asked), "messages", schema)
    if body.stream:
        return await streams.streamed(request, events, lambda begun: _lines(begun, head, body), in_stream)
    return wire.json_response(await streams.whole(request, events, lambda coming: _whole(coming, head, body)))


@dataclass(frozen=True, slots=True)
class Head:
    """What every part of an answer says."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def of(self, kind: str, **more: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": fingerprint(),
            "service_tier": "default",
            **more,
        }


def fingerprint() -> str:
    return f"pie-edge-{__version__}"


@dataclass(slots=True)
class _Choice:
    """An answer as it gathers."""

    text: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: str = "stop"

    def take(self, event: Event) -> None:
        match event:
            case Piece():
                self.text.append(event.text)
                self.logprobs += event.logprobs
            case Thought():
                self.thoughts.append(event.text)
            case CallBegan():
                self.calls[event.index] = call(event)
            case CallArguments():
                self.calls[event.index]["function"]["arguments"] += event.text
            case Ended():
                self.finish = FINISH[event.reason]

    def message(self) -> dict[str, Any]:
        text = "".join(self.text)
        found: dict[str, Any] = {"role": "assistant", "content": None if self.calls and not text else text}
        found["refusal"] = None
        found["annotations"] = []
        if self.thoughts:
            found["reasoning_content"] = "".join(self.thoughts)
        if self.calls:
            found["tool_calls"] = list(self.calls.values())
        return found


async def _whole(events: AsyncIterator[Event], head: Head, body: ChatBody) -> dict[str, Any]:
    choices = [_Choice() for _ in range(body.n or 1)]
    counts: dict[str, Any] = {}
    async for event in events:
        if isinstance(event, Usage):
            counts = usage(event)
        elif (number := getattr(event, "choice", None)) is not None:
            choices[number].take(event)
    return head.of(
        "chat.completion",
        choices=[
            {
                "index": number,
                "message": choice.message(),
                "logprobs": logprobs(choice.logprobs) if body.logprobs else None,
                "finish_reason": choice.finish,
            }
            for number, choice in enumerate(choices)
        ],
        usage=counts,
    )


async def _lines(events: AsyncIterator[Event], head: Head, body: ChatBody) -> AsyncGenerator[str, None]:
    counted = body.counts_usage
    more: dict[str, Any] = {"usage": None} if counted else {}

    def chunk(number: int, delta: dict[str, Any], entries: Any = None, finish: str | None = None) -> str:
        choice = {"index": number, "delta": delta, "logprobs": entries, "finish_reason": finish}
        return wire.event(head.of("chat.completion.chunk", choices=[choice], **more))

    for number in range(body.n or 1):
        yield chunk(number, {"role": "assistant", "content": "", "refusal": None})
    async for event in events:
        match event:
            case Piece():
                entries = logprobs(event.logprobs) if body.logprobs else None
                yield chunk(event.choice, {"content": event.text}, entries)
            case Thought():
                yield chunk(event.choice, {"reasoning_content": event.text})
            case CallBegan():
                yield chunk(event.choice, {"tool_calls": [{"index": event.index, **call(event)}]})
            case CallArguments():
                function = {"arguments": event.text}
                yield chunk(event.choice, {"tool_calls": [{"index": event.index, "function": function}]})
            case Ended():
                yield chunk(event.choice, {}, finish=FINISH[event.reason])
            case Usage() if counted:
                yield wire.event(head.of("chat.completion.chunk", choices=[], usage=usage(event)))
    yield "data: [DONE]\n\n"


def call(event: CallBegan) -> dict[str, Any]:
    return {"id": event.id, "type": "function", "function": {"name": event.name, "arguments": ""}}


def logprobs(entries: Any) -> dict[str, Any]:
    return {
        "content": [{**_entry(one), "top_logprobs": [_entry(top) for top in one.top]} for one in entries],
        "refusal": None,
    }


def _entry(one: TokenLogprob) -> dict[str, Any]:
    return {"token": one.data.decode("utf-8", "replace"), "logprob": finite(one.logprob), "bytes": list(one.data)}


def finite(logprob: float | None) -> float | None:
    """JSON has no infinity; OpenAI's API says −9999 in its place."""
    return None if logprob is None else max(logprob, -9999.0)


def usage(event: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": event.prompt,
        "completion_tokens": event.generated,
        "total_tokens": event.prompt + event.generated,
        "prompt_tokens_details": {"cached_tokens": event.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": event.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
