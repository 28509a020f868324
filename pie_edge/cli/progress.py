"""Notes and progress bars on stderr. On a terminal a bar redraws one line; elsewhere a stage that takes long is one line."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

REDRAW_SECONDS = 0.1
LONG_SECONDS = 1.0
BAR_WIDTH = 24


class Notes:
    """Callable as the ``progress(done, total, what)`` of the runtime and the model store; ``note`` says a sentence."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.quiet = quiet
        self.live = self.stream.isatty()
        self._what = ""
        self._began_at = 0.0
        self._told = False
        self._drawn_at = 0.0
        self._open_line = False

    def note(self, text: str) -> None:
        if not self.quiet:
            self.clear()
            print(f"pie-edge: {text}", file=self.stream, flush=True)

    def __call__(self, done: int, total: int, what: str) -> None:
        """``total`` 0 is work whose length isn't known."""
        if self.quiet:
            return
        now = time.monotonic()
        begins, finished = what != self._what, bool(total) and done >= total
        if begins:
            self._what, self._began_at, self._told = what, now, False
        if not self.live:
            # Work without a length is told at once: there may be no second call.
            if not self._told and not finished and (not total or now - self._began_at >= LONG_SECONDS):
                self._told = True
                self.note(what)
            return
        if begins or finished or now - self._drawn_at >= REDRAW_SECONDS:
            self._drawn_at = now
            self._draw(done, total, what)
        if finished:
            self.clear()

    def log(self, text: str) -> None:
        """What an inferlet writes to its standard error or logs; said even when our own notes are not."""
        self.clear()
        print(text, end="", file=self.stream, flush=True)

    def clear(self) -> None:
        """Wipe the bar: whoever writes next has a clean line."""
        if self._open_line:
            print("\r\x1b[2K", end="", file=self.stream, flush=True)
            self._open_line = False

    def _draw(self, done: int, total: int, what: str) -> None:
        line = f"pie-edge: {what}"
        if total:
            filled = BAR_WIDTH * done // total
            line += f" [{'#' * filled}{'.' * (BAR_WIDTH - filled)}] "
            small = total < 2**20  # things, and not bytes
            line += f"{done} of {total}" if small else f"{100 * done // total:3d} % of {total / 2**20:,.0f} MiB"
        else:
            line += " …"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[2K{line[:width]}", end="", file=self.stream, flush=True)
        self._open_line = True
