"""The pieces of a conversation as tokens: what programs that own their context put into it one turn at a time.

A template renders whole conversations. Each piece here is the difference of two of its renderings, with and without the
turn, so a piece is what the template itself writes at that place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from pie_edge.errors import TemplateError
from pie_edge.tokenizer.formats import Formats, detect
from pie_edge.tokenizer.formats.detect import NONE
from pie_edge.tokenizer.template import DEFAULT, MISSING, ChatTemplate
from pie_edge.tokenizer.tokenizer import Tokenizer

# Words that no template trims, looks for or writes itself.
_ASK, _ANSWER, _NEXT = "qzasked", "qzanswered", "qznext"

_ANYTHING = {"type": "object", "properties": {}}
_WHOLE = "encode the whole conversation with the chat template instead"


class Turns:
    """The pieces fit together: with no system message, ``prefix() + preamble() + user(q) + cue()`` are the tokens of
    the template's own rendering of one question, and ``prefix() + system(s) + user(q) + cue()`` with one.

    All but ``prefix`` raise ``TemplateError`` for a model without a template, or with one that has no such piece. Where a
    piece takes ``thinking``, True or False has the model think before it answers, or not; None leaves it as it is.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template

    @property
    def source(self) -> str:
        """The template as it was written, in Jinja; empty where there is none."""
        return "" if self._template is None else self._template.sources.get(DEFAULT, "")

    def prefix(self) -> list[int]:
        """What a context must start with: BOS or nothing, and no system message."""
        bos = self._tokenizer.bos
        return [bos] if bos is not None and self._needs_bos else []

    def preamble(self, thinking: bool | None = None) -> list[int]:
        """What the template puts before the first user message if there is no system message: for some models a
        default system message, for most nothing."""
        return self._opened(_ASK, thinking)[0]

    def system(self, text: str, thinking: bool | None = None) -> list[int]:
        """A system message, right after ``prefix``."""
        whole = self._without_bos(self._ids(_says("system", text), _says("user", _ASK), thinking=thinking))
        turn = self._opened(_ASK)[1]
        if not _ends_with(whole, turn):
            raise TemplateError(f"this model's chat template writes the system message into the user's turn; {_WHOLE}")
        return whole[: len(whole) - len(turn)]

    def equip(self, tools: Sequence[Any], system: str | None = None, thinking: bool | None = None) -> list[int]:
        """What tells the model of its tools, with a system message or without, right after ``prefix``."""
        messages = [*([] if system is None else [_says("system", system)]), _says("user", _ASK)]
        turn = self._opened(_ASK)[1]
        # Llama's puts them into the first question unless it is told not to.
        for variables in ({}, {"tools_in_user_message": False}):
            whole = self._without_bos(self._ids(*messages, tools=tools, thinking=thinking, **variables))
            if _ends_with(whole, turn):
                return whole[: len(whole) - len(turn)]
        raise TemplateError(f"this model's chat template writes the tools into the user's turn; {_WHOLE}")

    def answer(self, answers: Sequence[Mapping[str, Any]]) -> list[int]:
        """What closes the model's turn that called tools, and then their answers: each a mapping with the ``name`` of the call,
        its ``id`` if it has one, its ``arguments``, and the ``content`` of the answer."""
        called = [{**one, "id": one.get("id") or f"call{number:05}"} for number, one in enumerate(answers)]
        calls = [{"id": one["id"], "type": "function", "function": _function(one)} for one in called]
        asked = [_says("user", _ASK), {"role": "assistant", "content": None, "tool_calls": calls}]
        results = [{**_says("tool", one["content"]), "tool_call_id": one["id"], "name": one["name"]} for one in called]
        tools = [_tool(one["name"]) for one in called] if self._ready.takes_tools else []
        before, after = self._ids(*asked, tools=tools), self._ids(*asked, *results, tools=tools)
        # A template may write the last turn otherwise than an earlier one, but each turn's end is there in both.
        ends = [place for place, token in enumerate(after) if token in self._tokenizer.stop_tokens]
        turns = sum(token in self._tokenizer.stop_tokens for token in before)
        if not 0 < turns <= len(ends):
            raise TemplateError(f"this model's chat template closes no turn that calls tools; {_WHOLE}")
        return after[ends[turns - 1] :]

    def conversation(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        thinking: bool | None = None,
        cue: bool = True,
    ) -> list[int]:
        """All of a conversation at once, ``prefix`` included: any shape of it that the template takes."""
        ids = self._ids(*messages, tools=tools, thinking=thinking, cued=cue)
        return ids if ids[:1] == self.prefix() else [*self.prefix(), *ids]

    def opens_reasoning(self, thinking: bool | None = None) -> bool:
        """Whether what makes the model answer has opened its reasoning already."""
        if not self.formats.has_tags:
            return False
        return self.formats.is_inside(self._tokenizer.decode(self.cue(thinking), special=True))

    @property
    def takes_tools(self) -> bool:
        """Whether the template has a place for tools."""
        return self._template is not None and self._template.takes_tools

    @cached_property
    def thinks(self) -> Literal["never", "always", "switched"]:
        """Whether the model thinks before it answers; ``switched``: its template can be told to have it think, or not."""
        if self._template is None or self.formats.reasoning == NONE:
            return "never"
        try:
            self._template.thinking(True)
        except TemplateError:
            return "always"
        return "switched"

    @cached_property
    def formats(self) -> Formats:
        """How the model writes its reasoning and its calls of tools."""
        sources = {} if self._template is None else self._template.sources
        return detect("\n".join(sources.values()), self._tokenizer.control_tokens.keys())

    def user(self, text: str) -> list[int]:
        """A user's message, anywhere in a conversation."""
        return self._opened(text)[1]

    def assistant(self, text: str) -> list[int]:
        """An answer of the model's that is known already, with what opens and closes it."""
        asked, answered = _says("user", _ASK), _says("assistant", text)
        head, turn = self._unended(asked), self._opened(_NEXT)[1]
        # Between two questions where possible: some templates write more into a conversation's last turn.
        for whole, tail in (
            (self._unended(asked, answered, _says("user", _NEXT)), turn),
            (self._ids(asked, answered), []),
        ):
            if whole[: len(head)] == head and _ends_with(whole[len(head) :], tail):
                return whole[len(head) : len(whole) - len(tail)]
        raise TemplateError(f"this model's chat template rewrites earlier turns when an answer follows; {_WHOLE}")

    def cue(self, thinking: bool | None = None) -> list[int]:
        """What makes the model answer: the opening of its turn. Nothing for some models."""
        asked = [_says("user", _ASK)]
        head, whole = self._unended(*asked, thinking=thinking), self._ids(*asked, thinking=thinking, cued=True)
        if whole[: len(head)] == head:
            return whole[len(head) :]
        variables = self._variables(thinking)
        before, after = (self._ready.render(asked, None, cued, **variables) for cued in (False, True))
        if not after.startswith(before):
            raise TemplateError(
                f"this model's chat template writes the question otherwise when an answer is due; {_WHOLE}"
            )
        # Where a token spans the end of the question, the opening by itself is the next best.
        return self._tokenizer.encode(after[len(before) :], special=True)

    def seal(self) -> list[int]:
        """What closes an answer after the model's last word. A stop token that the model has said is its first token."""
        try:
            # Between two questions: a conversation's last turn may end otherwise.
            text = self._tokenizer.decode(self.assistant(_ANSWER), special=True, continued=True)
        except TemplateError:
            text = self._ready.render([_says("user", _ASK), _says("assistant", _ANSWER)], None, False)
        _, found, tail = text.rpartition(_ANSWER)
        if not found:
            raise TemplateError(f"this model's chat template leaves out what the model answers; {_WHOLE}")
        return self._tokenizer.encode(tail, special=True)

    @property
    def _ready(self) -> ChatTemplate:
        if self._template is None:
            raise TemplateError(MISSING)
        return self._template

    @cached_property
    def _needs_bos(self) -> bool:
        """Whether the model wants BOS, or its template starts a conversation with it, and not each turn: some models'
        BOS is the marker that opens a turn."""
        if self._tokenizer.adds_bos or self._template is None or not self._template.may_write_bos:
            return self._tokenizer.adds_bos
        try:
            ids = self._ids(_says("user", _ASK), _says("assistant", _ANSWER), _says("user", _ASK))
        except TemplateError:
            # A template that is broken, or wants other turns, must not keep programs from plain text.
            return False
        return ids[:1] == [self._tokenizer.bos] and ids.count(ids[0]) == 1

    def _variables(self, thinking: bool | None) -> dict[str, bool]:
        return {} if thinking is None else self._ready.thinking(thinking)

    def _ids(
        self,
        *messages: Mapping[str, Any],
        tools: Sequence[Any] | None = None,
        thinking: bool | None = None,
        cued: bool = False,
        **variables: Any,
    ) -> list[int]:
        known = variables | self._variables(thinking)
        return self._ready.encode(self._tokenizer, messages, tools, cued, **known)

    def _unended(self, *messages: Mapping[str, Any], thinking: bool | None = None) -> list[int]:
        """Without the end of the text that some templates write where no answer is due."""
        ids = self._ids(*messages, thinking=thinking)
        if not ids or ids[-1] not in self._tokenizer.stop_tokens:
            return ids
        cued = self._ids(*messages, thinking=thinking, cued=True)
        pairs = zip(ids, cued, strict=False)
        same = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(ids), len(cued)))
        return ids[:same] if self._tokenizer.stop_tokens.issuperset(ids[same:]) else ids

    def _without_bos(self, ids: list[int]) -> list[int]:
        return ids[1:] if ids and ids[0] in self.prefix() else ids

    def _opened(self, text: str, thinking: bool | None = None) -> tuple[list[int], list[int]]:
        """The preamble and the turn of a conversation that starts with this user message.

        The turn by itself is what the same message adds to a longer conversation; what stands before is the preamble.
        """
        first = self._without_bos(self._unended(_says("user", text), thinking=thinking))
        earlier = (_says("user", _ASK), _says("assistant", _ANSWER))
        after = self._unended(*earlier, _says("user", text))
        # Where an answer that comes last ends otherwise than an earlier one, the cue tells that it isn't the last.
        cued, cue = self._ids(*earlier, cued=True), self.cue()
        for before in (cued[: len(cued) - len(cue)], self._unended(*earlier)):
            turn = self._without_bos(after[len(before) :])
            if after[: len(before)] == before and turn and _ends_with(first, turn):
                return first[: len(first) - len(turn)], turn
        return [], first


def _function(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": answer["name"], "arguments": answer.get("arguments", {})}


def _tool(name: str) -> dict[str, Any]:
    """Stands in for a tool that the model has been told of before."""
    return {"type": "function", "function": {"name": name, "description": "", "parameters": _ANYTHING}}


def _says(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _ends_with(ids: list[int], tail: list[int]) -> bool:
    return len(ids) >= len(tail) and ids[len(ids) - len(tail) :] == tail
