"""What an inferlet printed and logged, and nobody has read: a program's ``print`` can't wait, so it is bounded by forgetting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_MOST = 2**18
"""Characters."""

Deliver = Callable[[str, bool, int], bool]
"""Takes text, whether it is of the log, and how many characters before it were dropped; or says False: not now."""


class Transcript:
    def __init__(self) -> None:
        self._lines: deque[tuple[str, bool]] = deque()
        self._size = 0
        self._dropped = 0
        self._deliver: Deliver | None = None

    @property
    def empty(self) -> bool:
        return not self._lines

    def output(self, text: str) -> None:
        self._add(text, False)

    def log(self, text: str) -> None:
        self._add(text, True)

    def deliver_to(self, deliver: Deliver | None) -> None:
        """From now on ``deliver`` gets it, what is unread first; None leaves it here."""
        self._deliver = deliver
        self.resume()

    def resume(self) -> None:
        """``deliver`` may take more now."""
        while self._lines and self._deliver is not None and self._deliver(*self._lines[0], self._dropped):
            self._size -= len(self._lines.popleft()[0])
            self._dropped = 0

    def _add(self, text: str, log: bool) -> None:
        if len(text) > _MOST:
            self._dropped += self._size + len(text) - _MOST
            self._lines.clear()
            self._size, text = 0, text[-_MOST:]
        self._lines.append((text, log))
        self._size += len(text)
        self.resume()
        while self._size > _MOST:
            lost, _ = self._lines.popleft()
            self._size -= len(lost)
            self._dropped += len(lost)
