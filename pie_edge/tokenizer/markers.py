"""Tokens that are matched in text literally, before any model sees it: control tokens and user-defined ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Strip:
    """Whether a marker swallows the white space before (``left``) or after it (``right``)."""

    left: bool = False
    right: bool = False


_KEEP = Strip()


class Markers:
    """Finds markers in text, leftmost first and the longest where several start."""

    def __init__(self, ids: Mapping[str, int], strips: Mapping[int, Strip] | None = None) -> None:
        self.ids = dict(ids)
        self._strips = strips or {}
        lengths: dict[str, set[int]] = {}
        for text in self.ids:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        self._start = _starts(self._lengths)

    def spans(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Start, end and token id of each marker in the text, in order."""
        at = 0
        while self._start and (found := self._start.search(text, at)):
            at = found.start()
            length, token = self._longest(text, at)
            if length:
                yield at, at + length, token
            at += length or 1

    def split(self, text: str) -> Iterator[str | int]:
        """The text in order: stretches of ordinary text (never empty) as str, markers as their token ids."""
        done = 0
        for start, end, token in self.spans(text):
            if start < done:  # inside the white space that the marker before swallowed
                continue
            strip = self._strips.get(token, _KEEP)
            before = text[done:start].rstrip() if strip.left else text[done:start]
            if before:
                yield before
            yield token
            done = end
            while strip.right and done < len(text) and text[done].isspace():
                done += 1
        if done < len(text):
            yield text[done:]

    def _longest(self, text: str, at: int) -> tuple[int, int]:
        """Length and id of the longest marker that starts here; length 0 if none does."""
        for start in (text[at : at + 2], text[at]):
            for length in self._lengths.get(start, ()):
                token = self.ids.get(text[at : at + length])
                if token is not None:
                    return length, token
        return 0, 0

    def is_broken_at_end(self, text: str) -> bool:
        """Whether the text ends with the beginning of a marker, which what follows could complete."""
        longest = max((lengths[0] for lengths in self._lengths.values()), default=1)
        firsts = {start[0] for start in self._lengths}
        tails = (text[-n:] for n in range(1, min(longest, len(text) + 1)) if text[-n] in firsts)
        return any(marker.startswith(tail) and marker != tail for tail in tails for marker in self.ids)


def _starts(starts: Mapping[str, object]) -> re.Pattern[str] | None:
    """Matches where a marker may start, by its first two characters: most text is then skipped at C speed."""
    seconds: dict[str, str] = {}
    for start in starts:
        seconds.setdefault(start[0], "")
        seconds[start[0]] += start[1:]
    branches = [
        re.escape(first) + (f"[{re.escape(rest)}]" if first not in starts else "") for first, rest in seconds.items()
    ]
    return re.compile("|".join(branches)) if branches else None
