"""Device memory within a limit that is checked before the first byte moves, whatever the API."""

from __future__ import annotations

from pie_edge.errors import OutOfMemory


class BaseMemory:
    """``limit`` bytes in all, of ``most`` that the device ``name`` would give; buffers have whole granules."""

    def __init__(self, name: str, limit: int, most: int, granule: int) -> None:
        self.limit = limit
        self.used = 0
        self._name = name
        self._most = most
        self._granule = granule

    def rounded(self, nbytes: int) -> int:
        """Bytes that a buffer of so many takes."""
        return max(-(-nbytes // self._granule), 1) * self._granule

    def _within(self, nbytes: int, what: str) -> int:
        """Rounded. Raises OutOfMemory: what was asked, what is free."""
        nbytes = self.rounded(nbytes)
        if self.used + nbytes > self.limit:
            raise self._out_of_memory(nbytes, what)
        return nbytes

    def _out_of_memory(self, nbytes: int, what: str, refused: str = "") -> OutOfMemory:
        """``refused`` is why there is no more than that, where the limit allows it."""
        raised = ", raise memory" if self.limit < self._most and not refused else ""
        return OutOfMemory(
            f"{what} needs {mib(nbytes)} MiB of {self._name}; {mib(self.limit - self.used)} of {mib(self.limit)} MiB are free"
            f"{', but ' if refused else ''}{refused}. Lower kv_memory{raised} in the configuration, or take a smaller model"
        )


def mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f}"
