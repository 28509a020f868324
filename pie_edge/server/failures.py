"""What an error is to a client over HTTP: a status, and a kind that each provider has its own word for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pie_edge.errors import (
    ContextOverflow,
    DeviceLost,
    Disconnected,
    EpilogueError,
    InferletError,
    InferletTimeout,
    InvalidHandle,
    Irreversible,
    ModelNotFound,
    NotReady,
    OutOfMemory,
    OutOfPages,
    Overloaded,
    PieError,
    ResourceError,
    TemplateError,
    TokenizerError,
    Unauthorized,
    Unsupported,
    UsageError,
    by_code,
)

Kind = Literal["invalid", "context", "not-found", "overloaded", "unavailable", "timeout", "internal"]
"""``invalid``: the request can't be met as it is. ``context``: it is more than the model can read. ``overloaded`` and
``unavailable``: try again later. ``internal``: a fault of ours."""

RETRY_SECONDS = 1
"""When a request that there is no room for may come again."""

_KINDS: tuple[tuple[type[PieError], int, Kind], ...] = (
    (ContextOverflow, 400, "context"),
    (UsageError, 400, "invalid"),
    (TemplateError, 400, "invalid"),
    (TokenizerError, 400, "invalid"),
    (InvalidHandle, 400, "invalid"),
    (EpilogueError, 400, "invalid"),
    (Unsupported, 400, "invalid"),
    (ModelNotFound, 404, "not-found"),
    (Overloaded, 429, "overloaded"),
    (NotReady, 503, "unavailable"),
    (OutOfPages, 503, "unavailable"),
    (DeviceLost, 503, "unavailable"),
    (OutOfMemory, 503, "unavailable"),
    (Disconnected, 503, "unavailable"),
    (Unauthorized, 401, "invalid"),
    (InferletTimeout, 504, "timeout"),
    (Irreversible, 500, "internal"),
    (ResourceError, 400, "invalid"),
)
"""The more specific first. What the built-in inferlet can't have, it wants since a request asks for it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """``tokens`` and ``limit`` are of a context overflow, where they are known."""

    status: int
    kind: Kind
    message: str
    tokens: int | None = None
    limit: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": str(RETRY_SECONDS)} if self.kind in ("overloaded", "unavailable") else {}


def failure(error: PieError) -> Failure:
    """An inferlet's own failure is what it failed with, if that was an error of the tree."""
    kind: type[PieError] = type(error)
    if isinstance(error, InferletError) and error.cause is not None:
        kind = by_code(error.cause)
    counts = (error.tokens, error.limit) if isinstance(error, ContextOverflow) else (None, None)
    for known, status, name in _KINDS:
        if issubclass(kind, known):
            return Failure(status, name, error.message, *counts)
    return Failure(500, "internal", error.message)


def expected(error: Exception) -> PieError:
    """The error itself if it is of the tree; else one that says whose fault it is."""
    if isinstance(error, PieError):
        return error
    return PieError(f"pie-edge failed: {type(error).__name__}: {error}; please report it")
