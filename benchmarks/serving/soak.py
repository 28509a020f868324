"""Many requests in a row: whether memory stays flat and tokens keep their pace."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.serving.client import Client
from benchmarks.serving.load import answer_all
from benchmarks.serving.profiles import Profile
from benchmarks.serving.servers import Server

WINDOWS = 20
WARM = 2
"""Windows at the start that aren't compared: caches fill, kernels compile."""
SETTINGS = {"PIE_EDGE_KV_MEMORY": "64 MiB"}
"""Pages of prefixes fill what memory they may have, and take it when they are first written: this much within the warm-up."""
SMALL = Profile("soak", shared=20, own=(5, 30), tokens=(4, 12), first=60.0, next=60.0)


@dataclass(frozen=True)
class Window:
    """One part of the run: bytes at its end, seconds between tokens (median), requests that failed, and why the first did."""

    memory: int
    next: float
    errors: int
    why: str = ""


@dataclass(frozen=True)
class Soaked:
    windows: tuple[Window, ...]

    @property
    def compared(self) -> tuple[Sequence[Window], Sequence[Window]]:
        """The first and the last third of what comes after the warm-up."""
        rest = self.windows[WARM:]
        third = max(len(rest) // 3, 1)
        return rest[:third], rest[-third:]

    @property
    def growth(self) -> float:
        """Of memory, as a share."""
        first, last = self.compared
        return max(one.memory for one in last) / max(max(one.memory for one in first), 1) - 1

    @property
    def drift(self) -> float:
        """Of the time between tokens, as a share."""
        first, last = self.compared
        return statistics.median(one.next for one in last) / statistics.median(one.next for one in first) - 1


async def soak(
    client: Client, server: Server, requests: int, streams: int, progress: Callable[[Window], None]
) -> Soaked:
    """``progress`` is told of each part."""
    bodies = SMALL.requests(server.model, 1)
    windows = []
    for _ in range(WINDOWS):
        answers = await answer_all(client, list(itertools.islice(bodies, requests // WINDOWS)), streams)
        gaps = [gap for answer in answers for gap in answer.gaps]
        failed = [answer.error for answer in answers if answer.error]
        middle = statistics.median(gaps) if gaps else float("nan")
        windows.append(Window(server.memory, middle, len(failed), failed[0] if failed else ""))
        progress(windows[-1])
    return Soaked(tuple(windows))
