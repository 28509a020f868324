"""One chat template, compiled: conversations in, text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pie_edge.errors import TemplateError
from pie_edge.tokenizer.messages import calls_of
from pie_edge.tokenizer.shapes import Shapes, syntax_of

if TYPE_CHECKING:
    from jinja2 import Template

    from pie_edge.tokenizer.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a template is given. ``cue``: whether it opens the model's own turn at the end."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Any] | None
    cue: bool
    variables: Mapping[str, Any] = field(default_factory=dict)


class Compiled:
    """``tokens`` are the strings that the template knows by name; ``clock`` is what ``strftime_now`` reads."""

    def __init__(self, source: str, tokens: Mapping[str, str], clock: Callable[[], datetime]) -> None:
        from pie_edge.tokenizer import sandbox

        self.source = source
        self._tokens = tokens
        self._sandbox: Sandbox = sandbox.Sandbox(clock)
        self._template: Template = sandbox.compile_template(self._sandbox, source)

    @cached_property
    def shapes(self) -> Shapes:
        from pie_edge.tokenizer import sandbox

        syntax = syntax_of(sandbox.parse_template(self._sandbox, self.source))
        return Shapes(syntax, lambda messages, tools: self.render(Conversation(messages, tools, False)))

    def render(self, given: Conversation) -> str:
        from pie_edge.tokenizer import sandbox

        # Templates take an empty list for tools and write their header; no tools are null.
        known = {"messages": given.messages, "tools": given.tools or None, "add_generation_prompt": given.cue}
        return sandbox.render(self._sandbox, self._template, {**self._tokens, **given.variables, **known})

    def check_calls(self, given: Conversation) -> None:
        """Some templates write only the first call of a turn, or none beside text: raises rather than lose one."""
        called = [(number, call["name"]) for number, message in enumerate(given.messages) for call in calls_of(message)]
        if not called:
            return
        marks = iter(f"qzcall{index}z" for index in range(len(called)))
        marked = [
            {**message, "tool_calls": [_renamed(call, next(marks)) for call in message["tool_calls"]]}
            if "tool_calls" in message
            else message
            for message in given.messages
        ]
        text = self.render(replace(given, messages=marked))
        for index, (number, name) in enumerate(called):
            if f"qzcall{index}z" not in text:
                raise TemplateError(
                    f"message {number} calls {name!r}, and this model's chat template leaves that call out of the "
                    "conversation; give each call, and the text beside it, a message of its own"
                )


def _renamed(call: Mapping[str, Any], name: str) -> dict[str, Any]:
    if "function" in call:
        return {**call, "function": {**call["function"], "name": name}}
    return {**call, "name": name}
