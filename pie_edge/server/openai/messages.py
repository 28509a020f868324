"""Messages and tools of chat completions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from pie_edge.server.openai.errors import BadRequest
from pie_edge.server.openai.parameters import Strict

Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
TAGS = frozenset({"system", "developer", "user", "assistant", "tool", "function", "text", "refusal", "custom"})


class TextPart(Strict):
    type: Literal["text"]
    text: str


class RefusalPart(Strict):
    type: Literal["refusal"]
    refusal: str


class OtherPart(Strict):
    """Known to the API, and refused with a word why."""

    type: Literal["image_url", "input_audio", "file"]
    image_url: Any = None
    input_audio: Any = None
    file: Any = None


Part = Annotated[TextPart | RefusalPart | OtherPart, Field(discriminator="type")]


class SystemMessage(Strict):
    role: Literal["system"]
    content: str | list[Part]
    name: str | None = None


class DeveloperMessage(SystemMessage):
    role: Literal["developer"]  # type: ignore[assignment]


class UserMessage(SystemMessage):
    role: Literal["user"]  # type: ignore[assignment]


class FunctionCall(Strict):
    name: str
    arguments: str


class ToolCall(Strict):
    id: str
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(Strict):
    """As the API gives it, so that a client can send back what it got."""

    role: Literal["assistant"]
    content: str | list[Part] | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None


class ToolMessage(Strict):
    role: Literal["tool"]
    content: str | list[Part]
    tool_call_id: str


Message = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class Function(Strict):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Strict):
    type: Literal["function"]
    function: Function


class CustomTool(Strict):
    """Known to the API, and refused with a word why."""

    type: Literal["custom"]
    custom: Any = None


Tool = Annotated[FunctionTool | CustomTool, Field(discriminator="type")]


def plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As a chat template takes them. Raises BadRequest for parts that no text model reads."""
    return [_plain(f"messages[{number}]", message) for number, message in enumerate(messages)]


def _plain(place: str, message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": content(f"{place}.content", message.content)}
    if isinstance(message, ToolMessage):
        return found | {"tool_call_id": message.tool_call_id}
    if message.name is not None:
        found["name"] = message.name
    if isinstance(message, AssistantMessage):
        found |= _answered(message)
    return found


def _answered(message: AssistantMessage) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if message.refusal is not None and not message.content:
        found["content"] = message.refusal
    if message.reasoning_content is not None:
        found["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        found["tool_calls"] = [call.model_dump() for call in message.tool_calls]
    return found


def content(place: str, given: str | Sequence[Part] | None) -> Any:
    if given is None or isinstance(given, str):
        return given
    return [_part(f"{place}[{number}]", part) for number, part in enumerate(given)]


def _part(place: str, part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case RefusalPart():
            return {"type": "text", "text": part.refusal}
        case OtherPart():
            raise BadRequest(
                f"a part of type '{part.type}' was given, and this model reads text alone; give parts of type 'text'",
                f"{place}.type",
                "unsupported_content",
            )


def check_calls(messages: Sequence[Mapping[str, Any]], param: str) -> None:
    """Raises BadRequest for calls whose arguments are no JSON, or that what follows doesn't answer, all and at once."""
    for number, message in enumerate(messages):
        calls = message.get("tool_calls") or ()
        answers = itertools.takewhile(lambda one: one["role"] == "tool", messages[number + 1 :])
        answered = {one["tool_call_id"] for one in answers}
        called = {call["id"] for call in calls}
        # An answer to what wasn't called is told of as that, by whoever renders it.
        if (left := called - answered) and not answered - called:
            raise BadRequest(
                f"the tool call {', '.join(sorted(left))} has no answer right after the message that makes it; "
                "give one for each call",
                param,
            )
        for call in calls:
            _check_arguments(call, param)


def _check_arguments(call: Mapping[str, Any], param: str) -> None:
    try:
        json.loads(call["function"]["arguments"] or "{}")
    except (ValueError, RecursionError):
        raise BadRequest(f"the arguments of the tool call {call['id']} are no JSON", param) from None


def plain_tools(tools: Sequence[Tool] | None) -> list[dict[str, Any]]:
    """Raises BadRequest for one that is no function."""
    for number, tool in enumerate(tools or ()):
        if isinstance(tool, CustomTool):
            raise BadRequest(
                "a tool of type 'custom' was given; give functions", f"tools[{number}].type", "unsupported_parameter"
            )
    return [tool.model_dump(exclude_none=True) for tool in tools or ()]


def schema_text(schema: object) -> str:
    """A JSON Schema, for a constraint."""
    return json.dumps(schema, ensure_ascii=False)
