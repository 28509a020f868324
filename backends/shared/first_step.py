"""A note on why a first step takes long: drivers compile kernels as they first run."""

from __future__ import annotations

import threading
from collections.abc import Callable

LONG_SECONDS = 2.0
"""What a first step may take before the note."""


class FirstSteps:
    """Of one backend; the note comes once. From a thread: some drivers compile while they take a step, which holds up the event
    loop."""

    def __init__(self, progress: Callable[[int, int, str], None]) -> None:
        self._progress = progress
        self._told = ""
        self._timer: threading.Timer | None = None

    def begin(self, device: str) -> None:
        """A Program's first run is about to be enqueued, and somebody will read what it gives."""
        if not self._told and self._timer is None:
            what = f"a first step on {device}: its driver compiles kernels as they first run"
            self._timer = threading.Timer(LONG_SECONDS, self._tell, [what])
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """It was read, or nobody will."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            if self._told:
                self._progress(1, 1, self._told)

    def _tell(self, what: str) -> None:
        self._told = what
        self._progress(0, 0, what)
