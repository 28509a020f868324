"""What ``run`` prints for people: the inferlet's text as it comes, its result, and a line of figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from pie_edge.cli.progress import Notes


class Printed:
    """The inferlet's text, on stdout as it comes; with ``silent`` it is only gathered."""

    def __init__(self, notes: Notes, *, silent: bool) -> None:
        self.text = ""
        self.notes = notes
        self.silent = silent

    def __call__(self, piece: str) -> None:
        self.text += piece
        if not self.silent:
            self.notes.clear()
            sys.stdout.write(piece)
            sys.stdout.flush()

    def finish(self, result: Any) -> None:
        """The result, unless its text was streamed already.

        What streams text has that for its output: a result that is no text is a note then, and a pipe gets text alone.
        """
        told = shown(result)
        streamed = self.text.strip()
        if streamed and not self.text.endswith("\n"):
            sys.stdout.write("\n")
        if streamed and _text(result) is None:
            sys.stdout.flush()
            if told:
                self.notes.note(f"result {json.dumps(result, ensure_ascii=False)}")
        elif told and told.strip() != streamed:
            print(told)
        sys.stdout.flush()


def _text(result: Any) -> str | None:
    """A result that is text, or an object that holds nothing but its text."""
    if isinstance(result, dict) and set(result) == {"text"}:
        result = result["text"]
    return result if isinstance(result, str) else None


def shown(result: Any) -> str:
    """A result for people: text as it is, anything else as JSON, nothing for None."""
    text = _text(result)
    if text is not None:
        return text
    return "" if result is None else json.dumps(result, ensure_ascii=False, indent=2)


def summary(usage: Mapping[str, Any], timings: Mapping[str, float]) -> str:
    """``32 tokens, the first after 0.21 s, then 41.3 a second``; less for an inferlet that ran fewer passes."""
    count = usage["sampled"]
    parts = [f"{count} token{'s' * (count != 1)}"]
    if "time_to_first_token" in timings:
        parts.append(f"the first after {timings['time_to_first_token']:.2f} s")
    if "tokens_per_second" in timings:
        parts.append(f"then {timings['tokens_per_second']:.1f} a second")
    return ", ".join(parts)
