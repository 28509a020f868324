"""gpt-oss's format: an answer is a row of messages, each with a channel and perhaps a recipient.

``<|channel|>analysis<|message|>…<|end|>`` is one, and ``<|start|>assistant<|channel|>commentary to=functions.f
<|constrain|>json<|message|>{…}<|call|>`` the next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pie_edge.tokenizer.formats.parser import BrokenError, Parser
from pie_edge.tokenizer.formats.stream import Stream, Wait

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = frozenset({START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS})

_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


class Harmony(Parser):
    """The stream begins after ``<|start|>assistant``. Without ``calls``, what is for a tool is text."""

    def __init__(
        self,
        stream: Stream,
        controls: frozenset[str] = frozenset(),
        tools: Mapping[str, Any] | None = None,
        *,
        calls: bool = True,
    ) -> None:
        super().__init__(stream, controls, tools)
        self._calls = calls
        self._ends = self.needles(*ENDS, START)
        self._heads = self.needles(MESSAGE, *ENDS, START)

    def run(self) -> Wait[None]:
        marker = START
        while marker:
            header, marker = yield from self._header()
            if marker == MESSAGE:
                self.record()
                self.mark(header + marker)
                marker = yield from self._message(header)
            elif header.strip() and header != "assistant":
                self.text(header)  # no message: whatever it is, it isn't lost
                self.mark(marker)
            else:
                self.mark(header + marker)

    def _header(self) -> Wait[tuple[str, str]]:
        header = ""
        while True:
            text, marker = yield from self.stream.find(self._heads)
            header += text
            if marker in (CHANNEL, CONSTRAIN):
                header += marker
            elif marker or not text:
                return header, marker

    def _message(self, header: str) -> Wait[str]:
        recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        name = recipient[1].removeprefix("functions.") if recipient else ""
        if self._calls and name and name.isprintable():
            return (yield from self._call(name))
        say = self.reason if channel and channel[1] == "analysis" else self.text
        while True:
            marker = yield from self.until(self._ends, say)
            self.mark(marker)
            if marker in (*ENDS, START, ""):
                return marker

    def _call(self, name: str) -> Wait[str]:
        parts: list[str] = []

        def argue(raw: str) -> None:
            parts.append(raw)
            self.argue(raw)

        self.begin(name, None)
        marker = yield from self.until(self._ends, argue)
        if not parts:
            self.argue("", "{}")
        try:
            self.end(name, None, "".join(parts) or "{}")
        except BrokenError:
            self.malformed(marker)
        else:
            self.mark(marker)
        return marker
