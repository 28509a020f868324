"""What a model thinks before it answers, told from the answer itself."""

from __future__ import annotations

from collections.abc import Iterable

from inferlet import _check
from inferlet._events import Event, Reasoning, Text
from inferlet._host import AnswerDecoder, host

__all__ = ["Decoder", "Reasoning", "Text", "format", "opens"]

_AT_ONCE = 4096


def format() -> str:
    """How the model writes it: ``think``, ``think-response``, ``brackets``, ``harmony``, or ``none``."""
    return host().formats()[1]


def opens(*, thinking: bool | None = None) -> bool:
    """Whether ``chat.cue`` has opened the reasoning already: the answer then begins inside of it."""
    return format() != "none" and host().opens_reasoning(_check.switch(thinking, "reasoning.opens"))


class Decoder:
    """Takes an answer apart into ``Text`` and ``Reasoning``, as its tokens come; calls of tools are text.

    ``thinking`` is what the cue was given. ``opened`` says instead whether the answer begins inside of the reasoning, for one
    that follows no cue. ``continued``: the tokens follow text, so that a leading space stays.
    """

    _calls = False

    def __init__(self, *, thinking: bool | None = None, opened: bool | None = None, continued: bool = False) -> None:
        self._decoder = self._make(None, thinking, opened, continued)

    @classmethod
    def _make(cls, tools: str | None, thinking: bool | None, opened: bool | None, continued: bool) -> AnswerDecoder:
        inside = opens(thinking=thinking) if opened is None else bool(opened)
        return host().answer_decoder(cls._calls, inside, bool(continued), tools)

    def push(self, tokens: int | Iterable[int]) -> list[Event]:
        """What has become certain with these tokens; may be nothing."""
        given = _check.tokens([tokens] if isinstance(tokens, int) else tokens, "Decoder.push")
        parts = (given[start : start + _AT_ONCE] for start in range(0, len(given), _AT_ONCE))
        return [event for part in parts for event in self._decoder.push(part)]

    def flush(self) -> list[Event]:
        """What was held back at the end of the answer."""
        return self._decoder.flush()
