"""Output items of a response, and the events of a stream, made of a generation's events.

A response that comes whole is made by the same steps, so the two can't differ.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

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
from pie_edge.server.openai.chat import finite

Wire = dict[str, Any]


@dataclass(slots=True)
class _Open:
    """The item that is being written, its text so far, and what its deltas are called."""

    item: Wire
    index: int
    part: Wire | None
    name: str
    text: list[str] = field(default_factory=list)
    logprobs: list[Wire] = field(default_factory=list)

    @property
    def place(self) -> Wire:
        content = {} if self.part is None else {"content_index": 0}
        return {"item_id": self.item["id"], "output_index": self.index, **content}


class Output:
    """``take`` events in their order. ``items`` are those that are whole; ``reason`` is why it is incomplete, if it is."""

    def __init__(self, scored: bool) -> None:
        self.items: list[Wire] = []
        self.reason: str | None = None
        self.usage: Wire | None = None
        self._scored = scored
        self._open: _Open | None = None

    def take(self, event: Event) -> Iterator[Wire]:
        match event:
            case Thought():
                yield from self._begin_part("reasoning", "rs", {"type": "reasoning_text", "text": ""}, "reasoning_text")
                yield self._delta(event.text)
            case Piece():
                part: Wire = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                yield from self._begin_part("message", "msg", part, "output_text")
                entries = [_entry(one) for one in event.logprobs] if self._scored else []
                yield self._delta(event.text, logprobs=entries)
            case CallBegan():
                yield from self._begin_call(event)
            case CallArguments():
                yield self._delta(event.text)
            case Ended():
                if event.reason in ("length", "context"):
                    self.reason = "max_output_tokens"
                yield from self._finish("incomplete" if self.reason else "completed")
            case Usage():
                self.usage = _usage(event)

    def message(self) -> Wire:
        """The whole as a message of a conversation."""
        found: Wire = {"role": "assistant", "content": None}
        for item in self.items:
            match item["type"]:
                case "reasoning":
                    found["reasoning_content"] = item["content"][0]["text"]
                case "message":
                    found["content"] = (found["content"] or "") + item["content"][0]["text"]
                case "function_call":
                    function = {"name": item["name"], "arguments": item["arguments"]}
                    call = {"id": item["call_id"], "type": "function", "function": function}
                    found.setdefault("tool_calls", []).append(call)
        if found["content"] is None and "tool_calls" not in found:
            found["content"] = ""
        return found

    def _begin_part(self, kind: str, prefix: str, part: Wire, name: str) -> Iterator[Wire]:
        """Goes on with the item that is open if it is of this kind."""
        if self._open is not None and self._open.item["type"] == kind:
            return
        role: Wire = {"role": "assistant"} if kind == "message" else {"summary": []}
        item = {"id": _id(prefix), "type": kind, "status": "in_progress", **role, "content": []}
        yield from self._begin(item, part, name)
        assert self._open is not None
        yield {"type": "response.content_part.added", **self._open.place, "part": dict(part)}

    def _begin_call(self, event: CallBegan) -> Iterator[Wire]:
        call = {"call_id": event.id, "name": event.name, "arguments": ""}
        item = {"id": _id("fc"), "type": "function_call", "status": "in_progress", **call}
        yield from self._begin(item, None, "function_call_arguments")

    def _begin(self, item: Wire, part: Wire | None, name: str) -> Iterator[Wire]:
        yield from self._finish("completed")
        self._open = _Open(item, len(self.items), part, name)
        yield {"type": "response.output_item.added", "output_index": self._open.index, "item": dict(item)}

    def _delta(self, text: str, **more: list[Wire]) -> Wire:
        assert self._open is not None
        self._open.text.append(text)
        self._open.logprobs += more.get("logprobs", [])
        return {"type": f"response.{self._open.name}.delta", **self._open.place, "delta": text, **more}

    def _finish(self, status: str) -> Iterator[Wire]:
        """Closes the item that is open, if one is."""
        one, self._open = self._open, None
        if one is None:
            return
        text = "".join(one.text)
        done: Wire = {"type": f"response.{one.name}.done", **one.place}
        if one.part is None:
            one.item["arguments"] = text
            yield done | {"name": one.item["name"], "arguments": text}
        else:
            scores = {"logprobs": one.logprobs} if "logprobs" in one.part else {}
            part = one.part | {"text": text} | scores
            one.item["content"] = [part]
            yield done | {"text": text} | scores
            yield {"type": "response.content_part.done", **one.place, "part": part}
        one.item["status"] = status
        self.items.append(one.item)
        yield {"type": "response.output_item.done", "output_index": one.index, "item": one.item}


def _id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def _entry(one: TokenLogprob) -> Wire:
    return {**_scored(one), "top_logprobs": [_scored(top) for top in one.top]}


def _scored(one: TokenLogprob) -> Wire:
    return {"token": one.data.decode("utf-8", "replace"), "logprob": finite(one.logprob), "bytes": list(one.data)}


def _usage(event: Usage) -> Wire:
    return {
        "input_tokens": event.prompt,
        "input_tokens_details": {"cached_tokens": event.cached},
        "output_tokens": event.generated,
        "output_tokens_details": {"reasoning_tokens": event.reasoning},
        "total_tokens": event.prompt + event.generated,
    }
