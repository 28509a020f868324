"""The pieces of a conversation as tokens: what programs that own their context put into it one turn at a time.

A template renders whole conversations. Each piece here is the difference of two of its renderings, with and without the
turn, so a piece is what the template itself writes at that place.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pie_edge.errors import TemplateError
from pie_edge.tokenizer.template import DEFAULT, MISSING, ChatTemplate
from pie_edge.tokenizer.tokenizer import Tokenizer

# Words that no template trims, looks for or writes itself.
_ASK, _ANSWER, _NEXT = "qzasked", "qzanswered", "qznext"

_WHOLE = "encode the whole conversation with the chat template instead"


class Turns:
    """The pieces fit together: with no system message, ``prefix() + preamble() + user(q) + cue()`` are the tokens of
    the template's own rendering of one question, and ``prefix() + system(s) + user(q) + cue()`` with one.

    All but ``prefix`` raise ``TemplateError`` for a model without a template, or with one that has no such piece.
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

    def preamble(self) -> list[int]:
        """What the template puts before the first user message if there is no system message: for some models a
        default system message, for most nothing."""
        return self._opened(_ASK)[0]

    def system(self, text: str) -> list[int]:
        """A system message, right after ``prefix``."""
        whole = self._without_bos(self._ids(_says("system", text), _says("user", _ASK)))
        turn = self._opened(_ASK)[1]
        if not _ends_with(whole, turn):
            raise TemplateError(f"this model's chat template writes the system message into the user's turn; {_WHOLE}")
        return whole[: len(whole) - len(turn)]

    def user(self, text: str) -> list[int]:
        """A user's message, anywhere in a conversation."""
        return self._opened(text)[1]

    def assistant(self, text: str) -> list[int]:
        """An answer of the model's that is known already, with what opens and closes it."""
        asked, answered = _says("user", _ASK), _says("assistant", text)
        head, turn = self._ids(asked), self._opened(_NEXT)[1]
        # Between two questions where possible: some templates write more into a conversation's last turn.
        for whole, tail in ((self._ids(asked, answered, _says("user", _NEXT)), turn), (self._ids(asked, answered), [])):
            if whole[: len(head)] == head and _ends_with(whole[len(head) :], tail):
                return whole[len(head) : len(whole) - len(tail)]
        raise TemplateError(f"this model's chat template rewrites earlier turns when an answer follows; {_WHOLE}")

    def cue(self) -> list[int]:
        """What makes the model answer: the opening of its turn. Nothing for some models."""
        asked = [_says("user", _ASK)]
        before, after = (self._ready.render(asked, None, cued) for cued in (False, True))
        if not after.startswith(before):
            raise TemplateError(
                f"this model's chat template writes the question otherwise when an answer is due; {_WHOLE}"
            )
        head, whole = self._ids(*asked), self._ids(*asked, cued=True)
        # Where a token spans the end of the question, the opening by itself is the next best.
        fits = whole[: len(head)] == head
        return whole[len(head) :] if fits else self._tokenizer.encode(after[len(before) :], special=True)

    def seal(self) -> list[int]:
        """What closes an answer after the model's last word. A stop token that the model has said is its first token."""
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

    def _ids(self, *messages: dict[str, Any], cued: bool = False) -> list[int]:
        return self._ready.encode(self._tokenizer, messages, None, cued)

    def _without_bos(self, ids: list[int]) -> list[int]:
        return ids[1:] if ids and ids[0] in self.prefix() else ids

    def _opened(self, text: str) -> tuple[list[int], list[int]]:
        """The preamble and the turn of a conversation that starts with this user message.

        The turn by itself is what the same message adds to a longer conversation; what stands before is the preamble.
        """
        first = self._without_bos(self._ids(_says("user", text)))
        earlier = (_says("user", _ASK), _says("assistant", _ANSWER))
        before, after = self._ids(*earlier), self._ids(*earlier, _says("user", text))
        turn = self._without_bos(after[len(before) :])
        if after[: len(before)] == before and turn and _ends_with(first, turn):
            return first[: len(first) - len(turn)], turn
        return [], first


def _says(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _ends_with(ids: list[int], tail: list[int]) -> bool:
    return len(ids) >= len(tail) and ids[len(ids) - len(tail) :] == tail
