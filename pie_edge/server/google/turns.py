"""Contents of Google's shape as a ``Conversation`` has them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pie_edge.errors import UsageError
from pie_edge.server.google.contents import Content, FunctionCall, FunctionResponse, Part

_KINDS = ("text", "function_call", "function_response")


def conversation(system: Content | None, contents: Sequence[Content]) -> list[dict[str, Any]]:
    """Calls have ids of their own or, by their order, ``call00000`` and so on. Raises UsageError for what is no conversation."""
    messages: list[dict[str, Any]] = []
    if system is not None:
        messages.append({"role": "system", "content": _text(_texts(system.parts, "systemInstruction"))})
    turns = list(_merged(contents))
    if turns[-1][0] == "model":
        raise UsageError("contents: the last is the model's; end with the user's, or with a functionResponse")
    open_calls: list[tuple[str, FunctionCall]] = []
    made = 0
    for role, parts in turns:
        if role == "model":
            calls = [part.function_call for part in parts if part.function_call is not None]
            open_calls = [(call.id or f"call{made + number:05}", call) for number, call in enumerate(calls)]
            made += len(calls)
            messages.append(_model(parts, open_calls))
        else:
            messages += _user(parts, open_calls)
            open_calls = []
    return messages


def _merged(contents: Sequence[Content]) -> Iterator[tuple[str, list[Part]]]:
    """One turn of what one side says in several contents."""
    role = ""
    parts: list[Part] = []
    for place, content in enumerate(contents):
        for part in content.parts:
            if sum(getattr(part, kind) is not None for kind in _KINDS) != 1:
                raise UsageError(f"contents[{place}].parts: each has one of text, functionCall and functionResponse")
        one = "model" if content.role == "model" else "user"
        if one != role and parts:
            yield role, parts
            parts = []
        role = one
        parts = parts + content.parts
    yield role, parts


def _model(parts: Sequence[Part], calls: Sequence[tuple[str, FunctionCall]]) -> dict[str, Any]:
    if any(part.function_response is not None for part in parts):
        raise UsageError("contents: a functionResponse is the user's to give, and the model gives one")
    message: dict[str, Any] = {"role": "assistant"}
    if thoughts := [part.text for part in parts if part.thought and part.text]:
        message["reasoning_content"] = "".join(thoughts)
    texts = [part.text for part in parts if part.text is not None and not part.thought]
    message["content"] = "".join(texts) if texts or not calls else None
    if calls:
        message["tool_calls"] = [_call(name, call) for name, call in calls]
    return message


def _user(parts: Sequence[Part], calls: Sequence[tuple[str, FunctionCall]]) -> list[dict[str, Any]]:
    if any(part.function_call is not None or part.thought for part in parts):
        raise UsageError("contents: only the model thinks and calls functions, and the user does")
    left = list(calls)
    messages = [_response(part.function_response, left) for part in parts if part.function_response is not None]
    if left and (messages or parts):
        names = ", ".join(call.name for _, call in left)
        raise UsageError(f"contents: the functionCall of {names} has no functionResponse right after it")
    texts = [part.text for part in parts if part.text is not None]
    return [*messages, {"role": "user", "content": _text(texts)}] if texts else messages


def _call(name: str, call: FunctionCall) -> dict[str, Any]:
    arguments = json.dumps(call.args, ensure_ascii=False)
    return {"id": name, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _response(response: FunctionResponse, left: list[tuple[str, FunctionCall]]) -> dict[str, Any]:
    """The answer to the call of this id or, without ids, to the first of this name. Takes it from those that are left."""
    for answered in left:
        id, call = answered
        if call.name == response.name and response.id in (None, call.id, id):
            left.remove(answered)
            return {"role": "tool", "tool_call_id": id, "name": call.name, "content": _output(response.response)}
    raise UsageError(f"contents: functionResponse {response.name!r} answers no functionCall right before it")


def _output(response: dict[str, Any]) -> str:
    """By Google's convention ``output`` or ``result`` is what the function gave, and ``error`` why it failed."""
    if len(response) == 1:
        [(key, value)] = response.items()
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if key in ("output", "result"):
            return text
        if key == "error":
            return f"Error: {text}"
    return json.dumps(response, ensure_ascii=False)


def _texts(parts: Sequence[Part], where: str) -> list[str]:
    if any(part.text is None for part in parts):
        raise UsageError(f"{where}: its parts are text alone")
    return [part.text for part in parts if part.text is not None]


def _text(texts: Sequence[str]) -> str | list[dict[str, str]]:
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]
