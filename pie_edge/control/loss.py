"""When a lost device is given up."""

from __future__ import annotations

from pie_edge.errors import BackendUnavailable, DeviceLost

MOST = 5
"""Steps in a row. Of one loss two come to nothing, for so many are on their way; so it was opened again twice, in vain."""


class Losses:
    """``sticky``: what is lost stays lost as long as the process lives, and is given up at once."""

    def __init__(self, *, sticky: bool) -> None:
        self.reason = ""
        """Why the device is given up; nothing while it isn't."""
        self._sticky = sticky
        self._in_a_row = 0

    def landed(self) -> None:
        """A step came back."""
        self._in_a_row = 0

    def failed(self, error: Exception) -> bool:
        """Something came to nothing. Whether the device is given up for it, now."""
        if self.reason or not isinstance(error, DeviceLost | BackendUnavailable):
            return False
        self._in_a_row += 1
        if self._sticky or self._in_a_row >= MOST:
            self.reason = str(error)
        return bool(self.reason)
