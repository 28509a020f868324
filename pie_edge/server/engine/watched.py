"""What the engine's process writes down while it runs, if it is asked to: a timeline, and the tokens of inferlets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pie_edge.config import ServeSettings
from pie_edge.host.tokens import TokenLog, Tokens
from pie_edge.profile import TraceFile
from pie_edge.server import logs
from pie_edge.server.engine.opened import Closing, Opened

PART = ".part"
"""Ends the names of files that the server joins into one when it ends."""


def part_of(profile: str, process: str) -> Path:
    """Where a process writes its own part of a timeline. An engine that was started anew has a number of its own."""
    return Path(f"{profile}.{process}-{os.getpid()}{PART}")


def watched(opened: Opened, settings: ServeSettings) -> Opened:
    """The same, watched as the settings say. Raises OSError for a file that can't be made."""
    if settings.log_tokens:
        logs.configure("json" if settings.log == "json" else "human")
        opened.host.follow_tokens(TokenLog(_tell))
    if not settings.profile:
        return opened
    trace = TraceFile(part_of(settings.profile, "engine"), "engine")
    opened.host.follow(trace)
    return replace(opened, close=_closing(opened.close, trace))


def _closing(close: Closing, trace: TraceFile) -> Closing:
    async def closing() -> None:
        try:
            await close()
        finally:
            trace.close()

    return closing


def _tell(name: str, contexts: Sequence[Tokens], left_out: int) -> None:
    """An inferlet of a request has the request's id in its name."""
    told = "; ".join(f"read {one.read}, chose {one.chosen}" for one in contexts)
    logs.event(
        "tokens", f"{name}: {told}", inferlet=name, contexts=[asdict(one) for one in contexts], left_out=left_out
    )
