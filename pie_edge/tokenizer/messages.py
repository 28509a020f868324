"""Brings messages into the shape that a template expects.

APIs allow the same message in several shapes (content null, a string or parts; tool arguments as JSON text or an
object), while each template knows only some. What it knows is read off its syntax tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pie_edge.errors import TemplateError

if TYPE_CHECKING:
    from jinja2 import nodes

_TEXT_PARTS = ("text", "input_text", "output_text")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a template knows.

    ``null``: it asks whether content is null. ``string``, ``parts``: content may be a string, may be a list of parts.
    ``tools``, ``tool_calls``: it has a place for them. ``argument_objects``: calls carry their arguments as an object,
    not as JSON text. ``inspected``: strings it looks for in what it is given.
    """

    null: bool
    string: bool
    parts: bool
    tools: bool
    tool_calls: bool
    argument_objects: bool
    inspected: frozenset[str]


def shape_of(tree: nodes.Template) -> Shape:
    from jinja2 import nodes

    tests = list(tree.find_all(nodes.Test))
    filters = list(tree.find_all(nodes.Filter))
    loops = [loop.iter for loop in tree.find_all(nodes.For)]
    asks_type = any(t.name in ("string", "iterable", "sequence") and _mentions(t.node, "content") for t in tests)
    over_parts = any(_mentions(iterated, "content") for iterated in loops)
    return Shape(
        null=any(t.name == "none" and _mentions(t.node, "content") for t in tests) or _compares_content_to_none(tree),
        string=asks_type or not over_parts,
        parts=asks_type or over_parts,
        tools=_mentions(tree, "tools"),
        tool_calls=_mentions(tree, "tool_calls"),
        argument_objects=any(
            f.name in ("tojson", "items", "dictsort") and f.node is not None and _mentions(f.node, "arguments")
            for f in filters
        )
        or any(_mentions(iterated, "arguments") for iterated in loops),
        inspected=frozenset(_inspected(tree)),
    )


def conform(messages: Iterable[Any], shape: Shape) -> list[dict[str, Any]]:
    """Copies of the messages as the template expects them. Raises ``TemplateError`` naming the message that is none, or
    that has what the template would leave out."""
    conformed = [_conform(number, message, shape) for number, message in enumerate(messages)]
    if not conformed:
        raise TemplateError("there are no messages for the chat template; give at least one")
    return conformed


def _conform(number: int, message: Any, shape: Shape) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise TemplateError(f"message {number} is {message!r:.80}; a message is an object with a role and content")
    conformed = dict(message)
    content = conformed.get("content")
    # Null is for a turn that only calls tools; it would read "None" elsewhere.
    null = content is None and shape.null and message["role"] == "assistant"
    conformed["content"] = None if null else _content(number, "" if content is None else content, shape)
    calls = conformed.pop("tool_calls", None)
    # An empty list is no call, but templates take the key for one.
    if calls:
        if not shape.tool_calls:
            raise TemplateError(f"message {number} calls tools, and this model's chat template has no place for calls")
        conformed["tool_calls"] = [_tool_call(call, shape) for call in calls]
    return conformed


def _content(number: int, content: Any, shape: Shape) -> Any:
    if isinstance(content, str):
        return content if shape.string else [{"type": "text", "text": content}]
    if not isinstance(content, Sequence):
        raise TemplateError(f"message {number} has {type(content).__name__} content; give a string or a list of parts")
    return content if shape.parts else "\n".join(_text(number, part) for part in content)


def _text(number: int, part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise TemplateError(f"message {number} has a part of type {kind!r}, and this model's chat template takes text only")


def _tool_call(call: Any, shape: Shape) -> Any:
    if not isinstance(call, Mapping):
        return call
    call = dict(call)
    if isinstance(call.get("function"), Mapping):
        call["function"] = _tool_call(call["function"], shape)
    arguments = call.get("arguments")
    if shape.argument_objects and isinstance(arguments, str):
        call["arguments"] = _object(arguments)
    elif not shape.argument_objects and isinstance(arguments, Mapping):
        call["arguments"] = json.dumps(arguments, ensure_ascii=False)
    return call


def _object(text: str) -> Any:
    """The object that JSON text holds; text that holds none stays as the model wrote it."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def _mentions(node: nodes.Node, field: str) -> bool:
    """Whether an expression reads ``x.field``, ``x['field']``, ``x.get('field')`` or a variable of that name."""
    from jinja2 import nodes

    found = [node, *node.find_all((nodes.Getattr, nodes.Const, nodes.Name))]
    return any(
        (isinstance(n, nodes.Getattr) and n.attr == field)
        or (isinstance(n, nodes.Const) and n.value == field)
        or (isinstance(n, nodes.Name) and n.name == field)
        for n in found
    )


def _compares_content_to_none(tree: nodes.Template) -> bool:
    from jinja2 import nodes

    for compare in tree.find_all(nodes.Compare):
        sides = [compare.expr, *(operand.expr for operand in compare.ops)]
        if any(isinstance(side, nodes.Const) and side.value is None for side in sides) and _mentions(
            compare, "content"
        ):
            return True
    return False


def _inspected(tree: nodes.Template) -> Iterable[str]:
    """String constants that the template compares with, splits at or hands to a method, rather than writes."""
    from jinja2 import nodes

    for node in tree.find_all((nodes.Compare, nodes.Call, nodes.Filter, nodes.Test)):
        if isinstance(node, nodes.Call) and not isinstance(node.node, nodes.Getattr):
            continue
        for constant in node.find_all(nodes.Const):
            if isinstance(constant.value, str):
                yield constant.value
