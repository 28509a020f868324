"""Chat templates: messages to the text, or the tokens, that a model was trained on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from pie_edge.errors import TemplateError
from pie_edge.tokenizer.compiled import Compiled, Conversation
from pie_edge.tokenizer.guard import Guard
from pie_edge.tokenizer.messages import check_tools, conform
from pie_edge.tokenizer.tokenizer import Tokenizer

_LOOP = re.compile(r"\{%[-+]?\s*for\b")

DEFAULT = "default"
WITH_TOOLS = "tool_use"
"""The template of this name, where a model has one, is used when there are tools."""

_THINKING = ("enable_thinking", "thinking")
"""Variables by which templates let a model think before it answers, or not."""

MISSING = (
    "this model has no chat template (it may be a base model): use prefix() and encode(text), "
    "or give a template when the model is imported"
)


class ChatTemplate:
    """A model's template, compiled at first use. ``source`` is one template, or several by name.

    ``tokens`` are the strings a template knows as ``bos_token``, ``eos_token``, …; ``clock`` is what ``strftime_now``
    reads.
    """

    def __init__(
        self,
        source: str | Mapping[str, str],
        tokens: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.sources = {DEFAULT: source} if isinstance(source, str) else dict(source)
        if not any(self.sources.values()):
            raise TemplateError(MISSING)
        self.tokens = {"bos_token": "", "eos_token": "", **(tokens or {})}
        self._clock = clock
        self._compiled: dict[str, Compiled] = {}

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate:
        """The template in a GGUF file's metadata, with its named variants. Raises ``TemplateError`` if it has none."""
        key = "tokenizer.chat_template"
        # By name only: to look at all values would decode a file's large arrays.
        named = {name.removeprefix(f"{key}."): metadata[name] for name in metadata if name.startswith(f"{key}.")}
        sources = {DEFAULT: metadata.get(key), **named}
        return cls(_texts(sources), token_names(tokenizer))

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], tokenizer: Tokenizer, files: Mapping[str, str] | None = None
    ) -> ChatTemplate:
        """The template of tokenizer_config.json, or of ``files``: chat_template.jinja as "default" and
        additional_chat_templates/NAME.jinja by name, which go first. Raises ``TemplateError`` if there is none."""
        given = config.get("chat_template")
        if isinstance(given, list):
            sources = {one.get("name"): one.get("template") for one in given if isinstance(one, Mapping)}
        else:
            sources = {DEFAULT: given}
        return cls(_texts({**sources, **(files or {})}), token_names(tokenizer))

    def render(
        self,
        messages: Iterable[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The text of a conversation. ``variables`` are passed on (``enable_thinking``, ``documents``, …).

        Raises ``TemplateError`` if the template refuses the messages, fails on them or is broken."""
        compiled = self._template(tools)
        given = Conversation(conform(messages, compiled.shapes), tools, add_generation_prompt, variables)
        text = compiled.render(given)
        compiled.check_calls(given)
        return text

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Iterable[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int]:
        """The tokens of a conversation: control tokens where the template writes them, never where users do.

        BOS is there if the template writes it, and only then. For texts without markers these are exactly the ids of
        ``encode(render(…), special=True)``. Raises ``TemplateError`` like ``render``."""
        compiled = self._template(tools)
        given = Conversation(conform(messages, compiled.shapes), tools, add_generation_prompt, variables)
        guard = Guard(tokenizer, compiled.source, given.messages, tools, variables)
        # A model's own turns carry tags that the template looks for (<think>); ends of turns are never among them.
        ends = {tokenizer.token_bytes(token).decode() for token in tokenizer.stop_tokens}
        tags = (compiled.shapes.syntax.inspected & tokenizer.control_tokens.keys()) - ends - set(self.tokens.values())
        guarded = [guard.protect(one, tags if one["role"] == "assistant" else ()) for one in given.messages]
        known = guard.protect(variables)
        text = compiled.render(Conversation(guarded, guard.protect(tools), add_generation_prompt, known))
        compiled.check_calls(given)
        return tokenizer.encode_guarded(guard.rendered(text), guard.character)

    @cached_property
    def may_write_bos(self) -> bool:
        """Whether conversations may start with BOS, told from the source: Jinja2 takes too long to load for programs that
        only ask what a context starts with."""
        source = self.sources.get(DEFAULT, "")
        before_turns = _LOOP.split(source, maxsplit=1)[0]
        return "bos_token" in source or (bool(self.tokens["bos_token"]) and self.tokens["bos_token"] in before_turns)

    @property
    def takes_tools(self) -> bool:
        name = WITH_TOOLS if WITH_TOOLS in self.sources else DEFAULT
        return name in self.sources and self._compile(name).shapes.syntax.tools

    def thinking(self, is_on: bool) -> dict[str, bool]:
        """The variables that make the model think before it answers, or not. Raises ``TemplateError`` if the template has
        no such switch."""
        reads = self._template(None).shapes.syntax.reads
        switches = {name: is_on for name in _THINKING if name in reads}
        if not switches:
            raise TemplateError(
                "this model's chat template can't switch thinking on or off: the model thinks always or never; leave it "
                "as it is, or ask for what the template knows in a system message"
            )
        return switches

    def _template(self, tools: Sequence[Any] | None) -> Compiled:
        """The one for conversations with these tools."""
        check_tools(tools)
        name = WITH_TOOLS if tools and WITH_TOOLS in self.sources else DEFAULT
        if name not in self.sources:
            names = ", ".join(sorted(self.sources))
            raise TemplateError(
                f"this model has no default chat template, only {names}; give one of these as the template"
            )
        compiled = self._compile(name)
        if tools and not compiled.shapes.syntax.tools:
            raise TemplateError(
                "this model's chat template has no place for tools; describe them in a system message, "
                "or give a template that takes tools"
            )
        return compiled

    def _compile(self, name: str) -> Compiled:
        if name not in self._compiled:
            self._compiled[name] = Compiled(self.sources[name], self.tokens, self._clock)
        return self._compiled[name]


def token_names(tokenizer: Tokenizer) -> dict[str, str]:
    """The special tokens as a template knows them; "" where the model has none."""
    named = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
    return {name: "" if token is None else tokenizer.token_bytes(token).decode() for name, token in named.items()}


def _texts(sources: Mapping[Any, Any]) -> dict[str, str]:
    return {name: text for name, text in sources.items() if isinstance(name, str) and isinstance(text, str) and text}
