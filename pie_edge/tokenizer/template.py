"""Chat templates: messages to the text, or the tokens, that a model was trained on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pie_edge.errors import TemplateError
from pie_edge.tokenizer.guard import Guard
from pie_edge.tokenizer.messages import Shape, conform, shape_of
from pie_edge.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from jinja2 import Template

    from pie_edge.tokenizer.sandbox import Sandbox

_LOOP = re.compile(r"\{%[-+]?\s*for\b")

DEFAULT = "default"
WITH_TOOLS = "tool_use"
"""The template of this name, where a model has one, is used when there are tools."""

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
        self._compiled: dict[str, _Compiled] = {}

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
        compiled, conformed = self._prepared(messages, tools)
        return compiled.render(conformed, tools, add_generation_prompt, self.tokens | variables)

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
        compiled, conformed = self._prepared(messages, tools)
        guard = Guard(tokenizer, compiled.source, conformed, tools, variables)
        # A model's own turns carry tags that the template looks for (<think>); ends of turns are never among them.
        ends = {tokenizer.token_bytes(token).decode() for token in tokenizer.stop_tokens}
        tags = (compiled.shape.inspected & tokenizer.control_tokens.keys()) - ends - set(self.tokens.values())
        guarded = [guard.protect(one, tags if one["role"] == "assistant" else ()) for one in conformed]
        known = self.tokens | guard.protect(variables)
        text = compiled.render(guarded, guard.protect(tools), add_generation_prompt, known)
        return tokenizer.encode_guarded(guard.rendered(text), guard.character)

    @cached_property
    def may_write_bos(self) -> bool:
        """Whether conversations may start with BOS, told from the source: Jinja2 takes too long to load for programs that
        only ask what a context starts with."""
        source = self.sources.get(DEFAULT, "")
        before_turns = _LOOP.split(source, maxsplit=1)[0]
        return "bos_token" in source or (bool(self.tokens["bos_token"]) and self.tokens["bos_token"] in before_turns)

    def _prepared(
        self, messages: Iterable[Mapping[str, Any]], tools: Sequence[Any] | None
    ) -> tuple[_Compiled, list[dict[str, Any]]]:
        compiled = self._template(tools)
        if tools and not compiled.shape.tools:
            raise TemplateError(
                "this model's chat template has no place for tools; describe them in a system message, "
                "or give a template that takes tools"
            )
        return compiled, conform(messages, compiled.shape)

    def _template(self, tools: Sequence[Any] | None) -> _Compiled:
        name = WITH_TOOLS if tools and WITH_TOOLS in self.sources else DEFAULT
        if name not in self.sources:
            names = ", ".join(sorted(self.sources))
            raise TemplateError(
                f"this model has no default chat template, only {names}; give one of these as the template"
            )
        if name not in self._compiled:
            self._compiled[name] = _Compiled(self.sources[name], self._clock)
        return self._compiled[name]


class _Compiled:
    def __init__(self, source: str, clock: Callable[[], datetime]) -> None:
        from pie_edge.tokenizer import sandbox

        self.source = source
        self._sandbox: Sandbox = sandbox.Sandbox(clock)
        self._template: Template = sandbox.compile_template(self._sandbox, source)

    @cached_property
    def shape(self) -> Shape:
        from pie_edge.tokenizer import sandbox

        return shape_of(sandbox.parse_template(self._sandbox, self.source))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        from pie_edge.tokenizer import sandbox

        # Templates take an empty list for tools and write their header; no tools are null.
        known = {"messages": messages, "tools": tools or None, "add_generation_prompt": add_generation_prompt}
        return sandbox.render(self._sandbox, self._template, {**variables, **known})


def token_names(tokenizer: Tokenizer) -> dict[str, str]:
    """The special tokens as a template knows them; "" where the model has none."""
    named = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
    return {name: "" if token is None else tokenizer.token_bytes(token).decode() for name, token in named.items()}


def _texts(sources: Mapping[Any, Any]) -> dict[str, str]:
    return {name: text for name, text in sources.items() if isinstance(name, str) and isinstance(text, str) and text}
