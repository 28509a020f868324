"""One HTTP request as whoever watches over the server sees it: when its stages were, what it took, how it ended."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

QUIET = ("/health", "/metrics")
"""What is asked for all the time: told of only when it fails."""
_OWN_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,100}")
"""What a client may name a request. Nothing else of a client's gets into logs and headers unescaped."""


@dataclass(slots=True)
class Exchange:
    """Times are seconds of ``time.perf_counter``, 0 for what hasn't come; ``wall`` is nanoseconds since 1970 at ``began``.

    ``path`` is the route's, with names for what differs from request to request; ``parent`` the client's ``traceparent``.
    """

    id: str
    method: str
    path: str
    parent: str = ""
    began: float = field(default_factory=time.perf_counter)
    wall: int = field(default_factory=time.time_ns)
    started: float = 0.0
    """When its turn to be worked on came."""
    first: float = 0.0
    last: float = 0.0
    ended: float = 0.0
    status: int = 0
    model: str = ""
    prompt: int = 0
    cached: int = 0
    generated: int = 0
    code: str = ""
    """Of the error it ended with."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def stages(self) -> Sequence[tuple[str, float, float]]:
        """*queue* until its turn came, *prefill* until the first token, *decode* until the last one: those
        that it had, with when they began and ended."""
        moments = (
            ("queue", self.began, self.started),
            ("prefill", self.started, self.first),
            ("decode", self.first, self.last),
        )
        return [stage for stage in moments if stage[1] and stage[2]]

    @property
    def to_first_token(self) -> float | None:
        return self.first - self.began if self.first else None


class Listener(Protocol):
    def ended(self, exchange: Exchange) -> None: ...


current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)
"""The request that is being answered."""


def request_id(asked: str) -> str:
    """The client's own, if it is one that may stand in a log, or a new one."""
    return asked if _OWN_ID.fullmatch(asked) else f"req_{secrets.token_hex(12)}"
