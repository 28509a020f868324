"""Items of the Responses API: what goes in, as messages of a conversation."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from pie_edge.server.openai.errors import BadRequest
from pie_edge.server.openai.parameters import Strict

TAGS = frozenset(
    {"message", "function_call", "function_call_output", "reasoning", "input_text", "output_text", "refusal", "other"}
)
Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Strict):
    type: Literal["input_text"]
    text: str


class OutputText(Strict):
    type: Literal["output_text"]
    text: str
    annotations: list[Any] = Field(default_factory=list)
    logprobs: list[Any] | None = None


class RefusalText(Strict):
    type: Literal["refusal"]
    refusal: str


class OtherPart(Strict):
    """Known to the API, and refused with a word why."""

    model_config = Strict.model_config | {"extra": "allow"}
    type: str = Field(json_schema_extra={"not": {"enum": [*sorted(TAGS)]}})


def _kind(value: Any) -> str:
    """Which branch of a union an object belongs to; one without a type is a message."""
    kind = value.get("type", "message") if isinstance(value, dict) else getattr(value, "type", "message")
    # What isn't hashable is in no set.
    return kind if isinstance(kind, str) and kind in TAGS else "other"


Part = Annotated[
    Annotated[InputText, Tag("input_text")]
    | Annotated[OutputText, Tag("output_text")]
    | Annotated[RefusalText, Tag("refusal")]
    | Annotated[OtherPart, Tag("other")],
    Discriminator(_kind),
]


class MessageItem(Strict):
    """From a user or an operator, or an answer as the API gave it."""

    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer", "assistant"]
    content: str | list[Part]
    id: str | None = None
    status: Status | None = None
    phase: str | None = None


class FunctionCallItem(Strict):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: Status | None = None


class FunctionOutputItem(Strict):
    type: Literal["function_call_output"]
    call_id: str
    output: str | list[Part]
    id: str | None = None
    status: Status | None = None


class ReasoningText(Strict):
    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(Strict):
    type: Literal["reasoning"]
    id: str | None = None
    summary: list[Any] = Field(default_factory=list)
    content: list[ReasoningText] | None = None
    encrypted_content: None = None
    status: Status | None = None


class OtherItem(OtherPart):
    pass


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[FunctionOutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[OtherItem, Tag("other")],
    Discriminator(_kind),
]
Input = str | Annotated[list[Item], Field(min_length=1)]


def messages(given: Input) -> list[dict[str, Any]]:
    """As a chat template takes them: reasoning, text and calls of one answer are one message. Raises BadRequest."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    found: list[dict[str, Any]] = []
    for number, item in enumerate(given):
        _add(found, f"input[{number}]", item)
    return found


def answers(given: Input) -> list[str]:
    """The places of what tools gave, in their order."""
    items = () if isinstance(given, str) else given
    return [f"input[{n}].call_id" for n, item in enumerate(items) if isinstance(item, FunctionOutputItem)]


def arguments(given: Input) -> list[str]:
    """The places of calls' arguments, in their order."""
    items = () if isinstance(given, str) else given
    return [f"input[{n}].arguments" for n, item in enumerate(items) if isinstance(item, FunctionCallItem)]


def listed(given: Input | None) -> list[dict[str, Any]]:
    """As they are shown again: each with an id."""
    if given is None or isinstance(given, str):
        part = {"type": "input_text", "text": given or ""}
        return [{"id": _id(), "type": "message", "role": "user", "status": "completed", "content": [part]}]
    return [item.model_dump(exclude_none=True) | {"id": getattr(item, "id", None) or _id()} for item in given]


def _id() -> str:
    return f"item_{secrets.token_hex(16)}"


def _add(found: list[dict[str, Any]], place: str, item: Item) -> None:
    match item:
        case MessageItem(role="assistant"):
            _answer(found, "content")["content"] = _text(place, item.content)
        case MessageItem():
            found.append({"role": item.role, "content": _text(place, item.content)})
        case FunctionCallItem():
            call = {"name": item.name, "arguments": item.arguments}
            calls = _answer(found).setdefault("tool_calls", [])
            calls.append({"id": item.call_id, "type": "function", "function": call})
        case FunctionOutputItem():
            found.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(place, item.output)})
        case ReasoningItem():
            text = "".join(part.text for part in item.content or ())
            if text:
                _answer(found, "reasoning_content", "content", "tool_calls")["reasoning_content"] = text
        case OtherItem():
            raise BadRequest(
                f"an item of type '{item.type}' was given; messages, function calls, their outputs and reasoning are read",
                f"{place}.type",
                "unsupported_content",
            )


def _answer(found: list[dict[str, Any]], *taken: str) -> dict[str, Any]:
    """The model's message that is being put together; a new one where it has one of ``taken`` already."""
    last = found[-1] if found else None
    if last is None or last["role"] != "assistant" or any(last.get(name) is not None for name in taken):
        last = {"role": "assistant", "content": None}
        found.append(last)
    return last


def _text(place: str, content: str | Sequence[Part]) -> str:
    if isinstance(content, str):
        return content
    return "".join(_part(f"{place}.content[{number}]", part) for number, part in enumerate(content))


def _part(place: str, part: Part) -> str:
    match part:
        case InputText() | OutputText():
            return part.text
        case RefusalText():
            return part.refusal
        case OtherPart():
            raise BadRequest(
                f"a part of type '{part.type}' was given, and this model reads text alone; give parts of type 'input_text'",
                f"{place}.type",
                "unsupported_content",
            )
