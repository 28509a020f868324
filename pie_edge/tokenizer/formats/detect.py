"""Which formats a model speaks, told from its chat template and its control tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pie_edge.tokenizer.formats import calls
from pie_edge.tokenizer.formats.harmony import MARKERS, Harmony
from pie_edge.tokenizer.formats.parser import Parser
from pie_edge.tokenizer.formats.stream import Stream
from pie_edge.tokenizer.formats.tagged import Tagged, Tags

NONE = "none"
HARMONY = "harmony"

CALLS: Mapping[str, type[Tagged]] = {
    "hermes": calls.Hermes,
    "mistral": calls.Mistral,
    "pythonic": calls.Pythonic,
    "json-list": calls.JsonList,
    "llama": calls.Llama,
    "gemma": calls.Fenced,
}
"""Formats of calls by name, beside ``harmony``."""

REASONING: Mapping[str, Tags] = {
    "think": Tags("<think>", "</think>"),
    "think-response": Tags("<think>", "</think>", ("<response>", "</response>")),
    "brackets": Tags("[THINK]", "[/THINK]"),
}
"""Formats of reasoning by name, beside ``harmony``."""

# In this order: a vocabulary may hold the markers of the model that it was made from.
_BY_MARKERS = {
    HARMONY: ("<|channel|>", "<|call|>"),
    "mistral": ("[TOOL_CALLS]",),
    "pythonic": ("<|tool_call_start|>",),
    "json-list": ("<|tool_call|>",),
    "hermes": ("<tool_call>",),
    "llama": ("ipython", '"parameters": '),
}
_FOREIGN = ("<arg_key>", "<invoke ", "<tool_calls>")
"""Of formats that share a marker with ours, and that none of ours reads."""


@dataclass(frozen=True, slots=True)
class Formats:
    """The names of a model's formats of calls and of reasoning; ``none`` where it has none."""

    calls: str = NONE
    reasoning: str = NONE

    @property
    def markers(self) -> frozenset[str]:
        """Everything that may be a control token with a meaning."""
        if self.reasoning == HARMONY or self.calls == HARMONY:
            return MARKERS
        found: set[str] = set()
        if self.calls in CALLS:
            found |= {*CALLS[self.calls].openers, *CALLS[self.calls].closers, *CALLS[self.calls].inner}
        if self.reasoning in REASONING:
            tags = REASONING[self.reasoning]
            found |= {tags.open, tags.close, *tags.others}
        return frozenset(found)

    def parser(
        self,
        stream: Stream,
        *,
        calls: bool = True,
        inside: bool = False,
        controls: frozenset[str] = frozenset(),
        tools: Mapping[str, Any] | None = None,
    ) -> Parser:
        """Reads an answer in these formats. Without ``calls``, calls are text. ``inside``: the prompt has opened the reasoning.
        ``controls``: markers that come as control tokens. ``tools``: the parameters of functions by name."""
        if HARMONY in (self.reasoning, self.calls):
            return Harmony(stream, controls, tools, calls=calls)
        kind = CALLS.get(self.calls, Tagged) if calls else Tagged
        return kind(stream, REASONING.get(self.reasoning), inside, controls, tools)

    @property
    def has_tags(self) -> bool:
        """Whether reasoning stands between tags."""
        return self.reasoning in REASONING

    def is_inside(self, prompt: str) -> bool:
        """Whether a prompt that ends so has opened the reasoning."""
        tags = REASONING.get(self.reasoning)
        return tags is not None and prompt.rfind(tags.open) > prompt.rfind(tags.close)


def detect(template: str, control: Collection[str] = ()) -> Formats:
    """The formats of a model with this template (empty if it has none), and control tokens of these names.

    The template has the word. Control tokens count where it is silent, as many templates are of calls, and only those that
    nothing else means."""
    if not template:
        return Formats()
    return Formats(_calls(template, control), _reasoning(template, control))


def _calls(template: str, control: Collection[str]) -> str:
    for name, markers in _BY_MARKERS.items():
        if all(marker in template for marker in markers):
            return NONE if any(marker in template for marker in _FOREIGN) else name
    if "<start_of_turn>" in template and "tools" not in template:
        return "gemma"
    known = (name for name, markers in _BY_MARKERS.items() if all(marker in control for marker in markers))
    return next(known, NONE)


def _reasoning(template: str, control: Collection[str]) -> str:
    if "<|channel|>" in template and "analysis" in template:
        return HARMONY
    if "</think>" in template:
        return "think-response" if "<response></response>" in template else "think"
    if "[THINK]" in template or "[THINK]" in control:
        return "brackets"
    return NONE
