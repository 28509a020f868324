"""A model's answer taken apart as it comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pie_edge.errors import UsageError
from pie_edge.tokenizer.detokenizer import Detokenizer
from pie_edge.tokenizer.formats.detect import HARMONY, NONE, Formats
from pie_edge.tokenizer.formats.events import Event, joined
from pie_edge.tokenizer.formats.stream import Stream
from pie_edge.tokenizer.tokenizer import Tokenizer


class Decoder:
    """``push`` text as it comes, use the events it gives, and ``flush`` at the end.

    However the text is cut, the events are the same once neighbours of a kind are joined, and their ``raw`` joined is the
    text. What could still become a marker is held back until it can't.
    """

    def __init__(
        self,
        formats: Formats,
        *,
        calls: bool = True,
        inside: bool = False,
        controls: frozenset[str] = frozenset(),
        tools: Mapping[str, Any] | None = None,
    ) -> None:
        """As ``Formats.parser`` takes it."""
        self._stream = Stream()
        self._flushed = False
        self._parser = formats.parser(self._stream, calls=calls, inside=inside, controls=controls, tools=tools)
        self._reading = self._parser.run()
        next(self._reading, None)

    def push(self, text: str) -> list[Event]:
        """Raises ``UsageError`` after a ``flush``."""
        self._check_open()
        self._stream.feed(text)
        return self._read()

    def push_marker(self, name: str) -> list[Event]:
        """A control token, which is one of the ``controls``."""
        self._check_open()
        self._stream.feed_mark(name)
        return self._read()

    def flush(self) -> list[Event]:
        """The end: what was held back, and a call that isn't whole as text."""
        self._flushed = True
        self._stream.close()
        return self._read()

    def _check_open(self) -> None:
        if self._flushed:
            raise UsageError("this decoder was flushed: its answer has ended; make another for the next")

    def _read(self) -> list[Event]:
        next(self._reading, None)
        found, self._parser.events = joined(self._parser.events), []
        return found


class TokenDecoder:
    """Takes tokens instead of text. A marker that is a control token is one only as that token: the same text, written in
    other tokens, is text."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        formats: Formats,
        *,
        calls: bool = True,
        inside: bool = False,
        continued: bool = True,
        tools: Sequence[Any] | None = None,
    ) -> None:
        """``continued`` is that of ``Tokenizer.decode``. ``tools`` are those the model was given."""
        # Where calls are text their markers are control tokens like others, and vanish.
        formats = formats if calls or formats.reasoning == HARMONY else replace(formats, calls=NONE)
        names = formats.markers & tokenizer.control_tokens.keys()
        self._markers = {tokenizer.control_tokens[name]: name for name in names}
        self._text = Detokenizer(tokenizer, continued=continued)
        self._decoder = Decoder(
            formats, calls=calls, inside=inside, controls=frozenset(names), tools=parameters_of(tools or ())
        )

    def push(self, token: int) -> list[Event]:
        """Raises ``InvalidHandle`` for no such token."""
        events = self._decoder.push(self._text.push(token))
        if token in self._markers:
            events += self._decoder.push_marker(self._markers[token])
        return events

    def flush(self) -> list[Event]:
        rest = self._text.flush()
        return (self._decoder.push(rest) if rest else []) + self._decoder.flush()


def parameters_of(tools: Sequence[Any]) -> dict[str, Any]:
    """The parameters of each function, by its name."""
    functions = [tool.get("function", tool) for tool in tools if isinstance(tool, Mapping)]
    return {one["name"]: one.get("parameters") for one in functions if "name" in one}
