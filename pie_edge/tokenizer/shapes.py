"""What a chat template can take, found by its syntax and by giving it small conversations.

APIs allow the same message in several shapes (content null, a string or parts; tool arguments as JSON text or an object), while
each template knows only some. A template says little of that in its syntax: what it does with a shape is seen by trying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from pie_edge.errors import TemplateError

if TYPE_CHECKING:
    from jinja2 import nodes

Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Any] | None], str]
"""The text of messages and tools, as the template has them."""

# Words that no template trims, looks for or writes itself.
_ASK, _WORD, _OTHER, _NAME, _KEY, _CALL = "qzasked", "qzone", "qztwo", "qzname", "qzkey", "qzcall123"
_ANSWERED = [
    {"role": "tool", "content": "qzgiven", "tool_call_id": _CALL, "name": _NAME},
    {"role": "assistant", "content": "qzanswered"},
    {"role": "user", "content": _ASK},
]
_PYTHON = ("{'", '"type"', "None", "null")
"""How a value reads that a template took for text."""
_TOOL = {
    "type": "function",
    "function": {"name": _NAME, "description": "", "parameters": {"type": "object", "properties": {}}},
}


class Content(Enum):
    """What stands for no content."""

    MISSING = "missing"
    NULL = "null"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Syntax:
    """What the syntax tells. ``string``: content may be a string. ``tools``, ``tool_calls``: there is a place for them.
    ``inspected``: strings that it looks for in what it is given. ``reads``: the variables that it reads."""

    string: bool
    tools: bool
    tool_calls: bool
    inspected: frozenset[str]
    reads: frozenset[str]


def syntax_of(tree: nodes.Template) -> Syntax:
    from jinja2 import meta, nodes

    asks_type = any(
        test.name in ("string", "iterable", "sequence") and _mentions(test.node, "content")
        for test in tree.find_all(nodes.Test)
    )
    over_parts = any(_mentions(loop.iter, "content") for loop in tree.find_all(nodes.For))
    return Syntax(
        string=asks_type or not over_parts,
        tools=_mentions(tree, "tools"),
        tool_calls=_mentions(tree, "tool_calls"),
        inspected=frozenset(_inspected(tree)),
        reads=frozenset(meta.find_undeclared_variables(tree)),
    )


@dataclass(frozen=True, slots=True)
class Calling:
    """How turns that call tools are taken: the arguments ``as_object``, ``as_text``, and what stands for no content."""

    as_object: bool
    as_text: bool
    no_content: Content


class Shapes:
    """Each question is answered by renderings, once."""

    def __init__(self, syntax: Syntax, render: Render) -> None:
        self.syntax = syntax
        self._render = render
        self.takes_parts = cache(self._takes_parts)
        self.no_content = cache(self._no_content)
        self.calling = cache(self._calling)

    def _takes_parts(self, role: str) -> bool:
        """Whether a message of this role may have its content in parts."""
        parts = [{"type": "text", "text": _WORD}, {"type": "text", "text": _OTHER}]
        return self._shows([_WORD, _OTHER], self._around({"role": role, "content": parts}))

    def _no_content(self) -> Content:
        """Of the assistant's message that calls nothing. A null would be a call to some templates."""
        missing = self._shows([], self._around({"role": "assistant"}))
        return Content.MISSING if missing else Content.EMPTY

    def _calling(self) -> Calling:
        objects, texts = {_KEY: _WORD}, f'{{"{_KEY}":"{_WORD}"}}'
        # In the middle of a conversation, where some templates look closer, or at its end if they refuse the whole.
        for after in (_ANSWERED, []):
            for form in Content:
                as_object = self._shows([_NAME, _KEY, _WORD], [*self._call(objects, form), *after])
                as_text = self._shows([_NAME, texts], [*self._call(texts, form), *after])
                if as_object or as_text:
                    return Calling(as_object, as_text, form)
        return Calling(True, True, Content.EMPTY)

    def _around(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        asked = {"role": "user", "content": _ASK}
        match message["role"]:
            case "user":
                return [message]
            case "system" | "developer":
                return [message, asked]
            case "assistant":
                return [asked, message, asked]
            case "tool":
                calling = self.calling()
                arguments: Any = {} if calling.as_object else "{}"
                before = self._call(arguments, calling.no_content)
                return [*before, {**message, "tool_call_id": _CALL, "name": _NAME}]
            case _:
                return [asked, message]

    def _call(self, arguments: Any, form: Content) -> list[dict[str, Any]]:
        call = {"id": _CALL, "type": "function", "function": {"name": _NAME, "arguments": arguments}}
        return [{"role": "user", "content": _ASK}, empty({"role": "assistant", "tool_calls": [call]}, form)]

    def _shows(self, words: Sequence[str], messages: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the template writes all the words of this conversation, and no value as Python does."""
        plain = self._tried([{"role": "user", "content": _ASK}]) or ""
        text = self._tried(messages)
        if text is None or not all(word in text for word in words):
            return False
        return all(text.count(mark) <= plain.count(mark) for mark in _PYTHON)

    def _tried(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        # Some templates are for conversations with tools only.
        for tools in (None, [_TOOL]):
            try:
                return self._render(messages, tools)
            except TemplateError:
                continue
        return None


def empty(message: dict[str, Any], form: Content) -> dict[str, Any]:
    """The message without content."""
    match form:
        case Content.MISSING:
            return {key: value for key, value in message.items() if key != "content"}
        case Content.NULL:
            return {**message, "content": None}
        case Content.EMPTY:
            return {**message, "content": ""}


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


def _inspected(tree: nodes.Template) -> Iterable[str]:
    """String constants that the template compares with, splits at or hands to a method, rather than writes."""
    from jinja2 import nodes

    for node in tree.find_all((nodes.Compare, nodes.Call, nodes.Filter, nodes.Test)):
        if isinstance(node, nodes.Call) and not isinstance(node.node, nodes.Getattr):
            continue
        for constant in node.find_all(nodes.Const):
            if isinstance(constant.value, str):
                yield constant.value
