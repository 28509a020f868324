"""An answer taken apart: what is text of it, what isn't, and which tokens the text consists of."""

from __future__ import annotations

from typing import Any

from inferlet import model, reasoning, tokenizer, tools
from inferlet.generation import Logprob
from prompts import Prompt


def written(entry: Logprob) -> list[Any]:
    """As it goes into an event: the token, its bytes as Latin-1, its log probability, and the alternatives."""
    return [entry.token, _spelled(entry.token), entry.logprob, [[t, _spelled(t), p] for t, p in entry.alternatives]]


def _spelled(token: int) -> str:
    return model.spelling(token).decode("latin-1")


class Plain:
    """Text alone, as tokens spell it."""

    def __init__(self) -> None:
        self._decoder = tokenizer.Decoder(continued=True)

    def push(self, token: int) -> list[tools.Event]:
        return [tools.Text(text)] if (text := self._decoder.push(token)) else []

    def flush(self) -> list[tools.Event]:
        return [tools.Text(text)] if (text := self._decoder.flush()) else []


def decoder_of(prompt: Prompt, *, answering: bool = False) -> Plain | reasoning.Decoder | tools.Decoder:
    """What takes the answer to a prompt apart; ``answering``: what follows its reasoning."""
    conversation = prompt.conversation
    if conversation is None:
        return Plain()
    continued = bool(conversation["prefill"])
    opened = False if continued or answering else None
    if prompt.tools:
        return tools.Decoder(prompt.tools, thinking=prompt.thinking, opened=opened, continued=continued)
    return reasoning.Decoder(thinking=prompt.thinking, opened=opened, continued=continued)


class Parts:
    """The decoder of a generation: gives the text alone, which stop strings are looked for in, and keeps the rest.

    ``thoughts`` and ``calls`` are events since they were last taken; ``reasoning`` counts tokens.
    """

    def __init__(self, decoder: Plain | reasoning.Decoder | tools.Decoder) -> None:
        self.thoughts = ""
        self.calls: list[tuple[Any, ...]] = []
        self.called = 0
        self.finished = 0
        """How many calls have begun, and how many are whole."""
        self.reasoning = 0
        self.placed: list[tuple[int, int, int]] = []
        """Of each token that is text: its number, and where its text begins and ends."""
        self._made = 0
        self._decoder = decoder
        self._length = 0
        self._waiting = 0
        """How many of the last tokens gave nothing by themselves."""

    @property
    def began(self) -> bool:
        """Whether there is any text."""
        return self._length > 0

    def push(self, token: int) -> str:
        self._made += 1
        self._waiting += 1
        events = self._decoder.push(token)
        return self._take(events) if events else ""

    def flush(self) -> str:
        return self._take(self._decoder.flush())

    def _take(self, events: list[tools.Event]) -> str:
        text = ""
        for event in events:
            match event:
                case tools.Text():
                    text += event.text
                case tools.Reasoning():
                    self.thoughts += event.text
                case tools.CallStart():
                    self.called += 1
                    self.calls.append(("c", event.index, event.id, event.name))
                case tools.Arguments():
                    self.calls.append(("a", event.index, event.text))
                case tools.Call():
                    self.finished += 1
                case tools.Malformed(index=None):
                    text += event.text
        self._settle(text, any(isinstance(event, tools.Reasoning) for event in events))
        return text

    def _settle(self, text: str, thought: bool) -> None:
        """What the tokens that waited have turned out to be."""
        if text:
            begin, self._length = self._length, self._length + len(text)
            self.placed += [(number, begin, self._length) for number in range(self._made - self._waiting, self._made)]
        elif thought:
            self.reasoning += self._waiting
        self._waiting = 0


class Logprobs:
    """Hands out the log probabilities of tokens together with the text that they end in."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._next = 0

    def upto(self, entries: list[Logprob], length: int, *, last: bool) -> list[Any]:
        """Of the tokens of the text's first ``length`` characters that weren't handed out. At the ``last``, one counts that only
        begins there."""
        found, placed = [], self._parts.placed
        while self._next < len(placed):
            number, begin, end = placed[self._next]
            if end > length and not (last and begin < length):
                break
            self._next += 1
            # A marker before the text shows nothing, and isn't a part of it.
            if model.decode([entries[number].token], continued=True):
                found.append(written(entries[number]))
        return found
