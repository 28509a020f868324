"""Stop strings in a stream of text: nothing of one gets out, and nothing before it is lost."""

from __future__ import annotations

from collections.abc import Iterable

from inferlet.errors import UsageError


class StopStrings:
    """``push`` each piece, pass on what it gives, and ``flush`` at the end, unless ``found`` says which string ended it.

    Text that may be the beginning of a stop string is held back until it is known not to be.
    """

    def __init__(self, stops: str | Iterable[str]) -> None:
        self._stops = [stops] if isinstance(stops, str) else list(stops)
        for stop in self._stops:
            if not isinstance(stop, str) or not stop:
                raise UsageError(f"{stop!r} can't stop a generation; give strings of one character or more")
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.found: str | None = None

    def push(self, piece: str) -> str:
        text = self._held + piece
        # What is complete first counts, so that it doesn't matter how the text is cut into pieces.
        ends = [(place + len(stop), place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if ends:
            _, place, self.found = min(ends)
            self._held = ""
            return text[:place]
        kept = self._suspicious(text)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def flush(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held

    def _suspicious(self, text: str) -> int:
        """How many characters at the end begin some stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
