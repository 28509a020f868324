"""A generation's events as those of Anthropic's streams; a message that isn't streamed is what such a stream adds up to."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from pie_edge.server import wire
from pie_edge.server.anthropic.signature import sign
from pie_edge.server.generation import Began, CallArguments, CallBegan, Ended, Event, Piece, Thought, Usage

_STOPS = {
    "stop": "end_turn",
    "stop-string": "stop_sequence",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
    "calls": "tool_use",
}

WireEvent = dict[str, Any]
"""An event as it is sent: an object with its ``type``."""


class Stream:
    """Makes the events of one message. Each block begins when the first of it comes, and ends before the next."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._block: WireEvent | None = None
        self._index = -1
        self._thought = ""
        self._ended: Ended | None = None

    def push(self, event: Event) -> Iterator[WireEvent]:
        match event:
            case Began():
                yield {"type": "message_start", "message": self._message(event)}
                yield {"type": "ping"}
            case Thought():
                self._thought += event.text
                yield from self._delta({"type": "thinking", "thinking": "", "signature": ""}, "thinking", event.text)
            case Piece():
                yield from self._delta({"type": "text", "text": ""}, "text", event.text)
            case CallBegan():
                yield from self._begin({"type": "tool_use", "id": event.id, "name": event.name, "input": {}})
            case CallArguments():
                yield self._change({"type": "input_json_delta", "partial_json": event.text})
            case Ended():
                yield from self._end()
                self._ended = event
            case Usage():
                yield {"type": "message_delta", "delta": self._stop(), "usage": _usage(event)}
                yield {"type": "message_stop"}

    def _message(self, began: Began) -> dict[str, Any]:
        return {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "usage": _usage(Usage(began.prompt, began.cached, 0)) | {"service_tier": "standard"},
        }

    def _delta(self, block: WireEvent, field: str, text: str) -> Iterator[WireEvent]:
        if not text:
            return
        if self._block is None or self._block["type"] != block["type"]:
            yield from self._begin(block)
        yield self._change({"type": f"{field}_delta", field: text})

    def _begin(self, block: WireEvent) -> Iterator[WireEvent]:
        yield from self._end()
        self._block = block
        self._index += 1
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _change(self, delta: dict[str, str]) -> WireEvent:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _end(self) -> Iterator[WireEvent]:
        if self._block is None:
            return
        if self._block["type"] == "thinking":
            yield self._change({"type": "signature_delta", "signature": sign(self._thought)})
            self._thought = ""
        self._block = None
        yield {"type": "content_block_stop", "index": self._index}

    def _stop(self) -> dict[str, Any]:
        assert self._ended is not None, "a generation's usage came before its end"
        ended = self._ended
        return {"stop_reason": _STOPS[ended.reason], "stop_sequence": ended.stopped_by, "stop_details": None}


def message(events: Iterable[WireEvent]) -> dict[str, Any]:
    """The message that a whole stream adds up to."""
    made: dict[str, Any] = {}
    arguments = ""
    for event in events:
        match event:
            case {"type": "message_start", "message": begun}:
                made = dict(begun)
            case {"type": "content_block_start", "content_block": block}:
                made["content"].append(dict(block))
                arguments = ""
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": text}}:
                arguments += text
            case {"type": "content_block_delta", "delta": delta}:
                field = delta["type"].removesuffix("_delta")
                made["content"][-1][field] += delta[field]
            case {"type": "content_block_stop"} if arguments:
                made["content"][-1]["input"] = _arguments(arguments)
            case {"type": "message_delta", "delta": delta, "usage": usage}:
                made |= delta
                made["usage"] = made["usage"] | usage
    return made


def _arguments(text: str) -> Any:
    """As far as they came: ``max_tokens`` may have cut them. What is no JSON object is wrapped as Anthropic's own pages do it."""
    try:
        values = wire.said(text, cut=True)
    except ValueError:
        values = None
    return values if isinstance(values, dict) else {"INVALID_JSON": text}


def _usage(usage: Usage) -> dict[str, Any]:
    """``input_tokens`` are those that had to be read; those found in the cache are counted beside them."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.generated,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }
