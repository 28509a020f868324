"""HTTP/1.1 as uvicorn speaks it, with an answer of our own to what is no HTTP."""

from __future__ import annotations

import sys

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pie_edge.errors import UsageError
from pie_edge.server.exchange import request_id
from pie_edge.server.gate import Refuse

_BAD, _TOO_LONG = 400, 431
_LINGER_SECONDS = 1.0


def protocol(refuse: Refuse) -> type[H11Protocol]:
    """``refuse`` makes the answer, of the shape of the provider whose path was asked, if it came as far as that."""

    class Protocol(H11Protocol):
        _refused = False

        def data_received(self, data: bytes) -> None:
            if not self._refused:
                super().data_received(data)

        def send_400_response(self, msg: str) -> None:
            """Called while the error of h11's is handled; ``msg`` says nothing of it."""
            self._refused = True
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                asked = self.scope["path"] if self.cycle is not None and not self.cycle.response_complete else ""
                self.transport.write(_answer(self.conn, refuse, asked))
                self.transport.write_eof()
            # While it still sends, an end at once would take the answer from it.
            self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    return Protocol


def _answer(connection: h11.Connection, refuse: Refuse, path: str) -> bytes:
    error = sys.exception()
    # h11 has other hints too, of what this server never says otherwise.
    status = _TOO_LONG if getattr(error, "error_status_hint", _BAD) == _TOO_LONG else _BAD
    response = refuse(path, status, UsageError(f"what came is no request of HTTP/1.1: {error!s:.200}"))
    response.headers["connection"] = "close"
    response.headers["x-request-id"] = response.headers.get("request-id") or request_id("")
    head = h11.Response(status_code=status, headers=response.raw_headers)
    parts = (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage())
    return b"".join(connection.send(part) or b"" for part in parts)
