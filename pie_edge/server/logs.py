"""Logs of the server on standard error, for people or as JSON lines: one for each request. Bodies, headers and keys are in
none."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from pie_edge.server.exchange import QUIET, Exchange

LOGGER = logging.getLogger("pie_edge")
UVICORN = logging.getLogger("uvicorn")
_REFUSED = "ASGI callable returned without completing handshake."
"""uvicorn's word for a WebSocket that was answered with a status, which is no error of ours."""
Format = Literal["human", "json"]


def configure(form: Format, stream: TextIO | None = None, quiet: bool = False) -> None:
    """From now on what we and uvicorn log goes to the stream, standard error by default; with ``quiet`` warnings and errors
    alone."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Human())
    handler.addFilter(lambda record: record.getMessage() != _REFUSED)
    for logger, level in ((LOGGER, logging.WARNING if quiet else logging.INFO), (UVICORN, logging.WARNING)):
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def event(name: str, text: str, /, **fields: Any) -> None:
    """Something that happened: ``text`` is for people; in JSON there are ``event`` and the fields."""
    LOGGER.info(text, extra={"event": name, "fields": fields})


class RequestLog:
    """A Listener."""

    def ended(self, exchange: Exchange) -> None:
        # Health fails on purpose while a model loads.
        if exchange.path in QUIET and exchange.status in (200, 503):
            return
        event("request", _sentence(exchange), **_fields(exchange))


def _fields(exchange: Exchange) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": exchange.id,
        "method": exchange.method,
        "path": exchange.path,
        "status": exchange.status,
        "seconds": round(exchange.seconds, 6),
    }
    if exchange.code:
        found["error"] = exchange.code
    if exchange.parent:
        found["trace"] = exchange.parent.split("-")[1] if exchange.parent.count("-") == 3 else ""
    if exchange.model:
        counts = {"prompt_tokens": exchange.prompt, "cached_tokens": exchange.cached}
        found |= {"model": exchange.model} | counts | {"generated_tokens": exchange.generated}
        found["queue_seconds"] = round(exchange.started - exchange.began, 6)
        found["first_token_seconds"] = None if exchange.to_first_token is None else round(exchange.to_first_token, 6)
        if exchange.last > exchange.first:
            found["decode_seconds"] = round(exchange.last - exchange.first, 6)
    return found


def _sentence(exchange: Exchange) -> str:
    text = f"{exchange.method} {exchange.path} {exchange.status} in {exchange.seconds:.2f} s"
    if exchange.model:
        text += f": {exchange.prompt} tokens ({exchange.cached} cached), {exchange.generated} generated"
        if exchange.to_first_token is not None:
            text += f", the first after {exchange.to_first_token:.2f} s"
    return text + (f": {exchange.code}" if exchange.code else "") + f" [{exchange.id}]"


class _Human(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = "pie-edge: " + record.getMessage()
        return told + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
        }
        name = getattr(record, "event", None)
        if name is None:
            line |= {"event": "log", "message": record.getMessage()}
        else:
            line |= {"event": name} | getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
