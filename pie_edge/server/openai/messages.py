"""Messages and tools of chat completions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, Field, StringConstraints

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


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise ValueError("the parameters of a function are a JSON Schema of type 'object'")
    return schema


Schema = Annotated[dict[str, Any], AfterValidator(_of_object)]
"""Of a function's parameters."""


class Function(Strict):
    name: Name
    description: str | None = None
    parameters: Schema | None = None
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


def check_calls(
    messages: Sequence[Mapping[str, Any]], param: str, answers: Sequence[str], arguments: Sequence[str]
) -> None:
    """Raises BadRequest for calls whose arguments are no JSON, for those that what follows doesn't answer, all and at once, and
    for answers to anything else. ``answers`` are the places of the tools' messages, in their order, and
    ``arguments`` those of the calls'."""
    places, given = iter(answers), iter(arguments)
    called: set[str] = set()
    left: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            _check_answer(message["tool_call_id"], called, left, next(places, param))
            left.discard(message["tool_call_id"])
            continue
        _check_all_answered(left, param)
        calls = message.get("tool_calls") or ()
        called = {call["id"] for call in calls}
        left = set(called)
        for call in calls:
            _check_arguments(call, next(given, param))
    _check_all_answered(left, param)


def _check_answer(id: str, called: set[str], left: set[str], place: str) -> None:
    if id in left:
        return
    if id in called:
        raise BadRequest(f"the tool call {id!r:.80} is answered twice; give one answer for each call", place)
    known = ", ".join(sorted(called)) or "none"
    raise BadRequest(
        f"the tool call {id!r:.80} is answered, and there is no such call right before; the calls there are: {known}. Put the "
        "assistant's message that calls it before the answer",
        place,
    )


def _check_all_answered(left: set[str], param: str) -> None:
    if left:
        raise BadRequest(
            f"the tool call {', '.join(sorted(left))} has no answer right after the message that makes it; "
            "give one for each call",
            param,
        )


def _check_arguments(call: Mapping[str, Any], place: str) -> None:
    try:
        json.loads(call["function"]["arguments"] or "{}", parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadRequest(f"the arguments of the tool call {call['id']} are no JSON", place) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON's")


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
