"""Brings messages into the shape that a template expects, and refuses what is none or would be left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pie_edge.errors import TemplateError
from pie_edge.tokenizer.formats.parser import BrokenError, from_json
from pie_edge.tokenizer.shapes import Content, Shapes, empty

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
"""Of APIs. A template may name others itself."""

_TEXT_PARTS = ("text", "input_text", "output_text")
_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of what a model thought before it answered, in the order in which they count. Templates read the first, or the second."""


def conform(messages: Iterable[Any], shapes: Shapes) -> list[dict[str, Any]]:
    """Copies of the messages as the template expects them. Raises ``TemplateError`` naming the message that is none, or
    that has what the template would leave out."""
    known = [_checked(number, message, shapes) for number, message in enumerate(messages)]
    if not known:
        raise TemplateError("there are no messages for the chat template; give at least one")
    if shapes.syntax.tool_calls:
        _check_answers(known)
    return [_conform(number, message, shapes) for number, message in enumerate(known)]


def check_tools(tools: Sequence[Any] | None) -> None:
    """Raises ``TemplateError`` for what describes no function."""
    for number, tool in enumerate(tools or ()):
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
            raise TemplateError(
                f"tool {number} is {tool!r:.80}; a tool is an object with a function's name, description and parameters"
            )
        parameters = function.get("parameters", {})
        if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
            raise TemplateError(
                f"tool {number}, {name!r}, has the parameters {parameters!r:.80}; they are a JSON Schema of type object"
            )


def calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The functions that a message calls: objects with a name and arguments."""
    return [call.get("function", call) for call in message.get("tool_calls", ())]


def _checked(number: int, message: Any, shapes: Shapes) -> Mapping[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise TemplateError(f"message {number} is {message!r:.80}; a message is an object with a role and content")
    role, known = message["role"], ROLES | {word for word in shapes.syntax.inspected if word.isidentifier()}
    if role not in known:
        raise TemplateError(f"message {number} has the role {role!r:.40}; it is one of {', '.join(sorted(ROLES))}")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, Sequence) or isinstance(calls, str) or not all(map(_is_call, calls)):
        raise TemplateError(
            f"message {number} has the tool calls {calls!r:.80}; they are a list of objects, each with the name and the "
            "arguments of a function"
        )
    if calls and not shapes.syntax.tool_calls:
        raise TemplateError(f"message {number} calls tools, and this model's chat template has no place for calls")
    if calls and role != "assistant":
        raise TemplateError(f"message {number} calls tools as {role!r}; only the assistant calls them")
    return message


def _is_call(call: Any) -> bool:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    return (
        isinstance(function, Mapping)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments", {}), str | Mapping)
    )


def _check_answers(messages: Sequence[Mapping[str, Any]]) -> None:
    """Each tool's answer is to a call before it; where calls have ids, to the one of that id."""
    calls = 0
    ids: set[Any] = set()
    for number, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            calls += 1
            ids.add(call.get("id"))
        if message["role"] != "tool":
            continue
        answered = message.get("tool_call_id")
        if not calls or (answered is not None and ids != {None} and answered not in ids):
            known = ", ".join(sorted(map(str, ids - {None}))) or "none"
            raise TemplateError(
                f"message {number} answers the tool call {answered!r}, and there is no such call before it; the calls "
                f"are: {known}. Put the assistant's message that calls it before the answer"
            )


def _conform(number: int, message: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
    conformed = {key: value for key, value in message.items() if value is not None}
    role, calls, content = message["role"], conformed.pop("tool_calls", None), conformed.get("content")
    thought = next((conformed[name] for name in _REASONING if name in conformed), None)
    if thought is not None:
        conformed = {"thinking": thought, **conformed, "reasoning_content": thought}
    # An empty list is no call, but templates take the key for one.
    if calls:
        conformed["tool_calls"] = [_tool_call(call, shapes) for call in calls]
    if content is not None:
        return {**conformed, "content": _content(number, role, content, shapes)}
    if role != "assistant":
        return empty(conformed, Content.EMPTY)
    return empty(conformed, shapes.calling().no_content if calls else shapes.no_content())


def _content(number: int, role: str, content: Any, shapes: Shapes) -> Any:
    if isinstance(content, str):
        return content if shapes.syntax.string else [{"type": "text", "text": content}]
    if not isinstance(content, Sequence):
        raise TemplateError(f"message {number} has {type(content).__name__} content; give a string or a list of parts")
    texts = [_text(number, part) for part in content]
    if texts and (not shapes.syntax.string or shapes.takes_parts(role)):
        return [{"type": "text", "text": text} for text in texts]
    return "\n".join(texts)


def _text(number: int, part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise TemplateError(
        f"message {number} has a part of type {kind!r}, and conversations here take text only; give the text by itself"
    )


def _tool_call(call: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _tool_call(call["function"], shapes)}
    known, arguments = shapes.calling(), call.get("arguments", {})
    if isinstance(arguments, str) and not known.as_text:
        arguments = _object(arguments)
    elif isinstance(arguments, Mapping) and not known.as_object:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "arguments": arguments}


def _object(text: str) -> Any:
    """The object that JSON text holds; text that holds none stays as the model wrote it."""
    try:
        value = from_json(text)
    except BrokenError:
        return text
    return value if isinstance(value, dict) else text
