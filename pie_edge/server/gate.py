"""What every request passes on its way in: an id, who may ask, how much, whether the server still takes any; and how it ends when
its client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pie_edge.errors import Disconnected, NotReady, PieError, Unauthorized, UsageError
from pie_edge.server.access import Access
from pie_edge.server.exchange import request_id

_BODY_SECONDS = 60.0
"""That a body may take to come."""
_WRITE_SECONDS = 60.0
"""That a client may read nothing for, while there is something to read: it holds a place, and pages, that others wait for."""
_POLICY = 1008

Refuse = Callable[[str, int, PieError], Response]
"""The answer to a request that is refused: its path, the status, why."""


class BodyTooLong(UsageError):  # noqa: N818
    """A body beyond the limit."""


class BodyEncoded(UsageError):  # noqa: N818
    """A body in an encoding that isn't read."""


class Gate:
    """``app`` gets requests whose body has come whole. ``refuse`` makes the provider's own answer to what is refused here."""

    def __init__(self, app: ASGIApp, access: Access, longest_body: int, refuse: Refuse) -> None:
        self.draining = False
        self.working = 0
        """Requests without their whole answer."""
        self._app = app
        self._access = access
        self._longest_body = longest_body
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._admit(scope)
        except PieError as error:
            if "websocket.http.response" in scope.get("extensions", {}):
                await self._refused(scope, error)(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": _POLICY, "reason": error.message[:100]})
            return
        await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        named = request_id(headers.get("x-request-id", ""))
        scope.setdefault("state", {})["request_id"] = named
        exchange = _Exchange(receive, send, named)
        try:
            self._admit(scope)
            body = await self._body(headers, receive)
        except PieError as error:
            if not isinstance(error, Disconnected):
                await self._refused(scope, error)(scope, receive, exchange.send)
            return
        self.working += 1
        try:
            await exchange.run(body, lambda ask, answer: self._app(scope, ask, answer))
        finally:
            self.working -= 1

    def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        self._access.check(scope["path"], scope["query_string"], headers, scope["type"] == "websocket")
        if self.draining and scope["path"] != "/health":
            raise NotReady("the server is ending; it takes no more requests")

    def _refused(self, scope: Scope, error: PieError) -> Response:
        match error:
            case Unauthorized():
                status = 401
            case NotReady():
                status = 503
            case BodyTooLong():
                status = 413
            case BodyEncoded():
                status = 415
            case _:
                status = 403
        response = self._refuse(scope["path"], status, error)
        if status == 401:
            response.headers["www-authenticate"] = "Bearer"
        if status in (401, 413, 415):
            # What is left of the body isn't read.
            response.headers["connection"] = "close"
        return response

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Raises BodyTooLong, BodyEncoded, and Disconnected for one that doesn't come."""
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise BodyEncoded(
                f"the body is sent in the encoding {encoding[:40]!r}; send it as it is, without an encoding"
            )
        with suppress(ValueError):
            self._check_length(int(headers.get("content-length", "0")))
        parts, size = [], 0
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Disconnected("the client went away before its request was whole")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    self._check_length(size)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise Disconnected(f"the request's body didn't come in {_BODY_SECONDS:g} s") from None

    def _check_length(self, size: int) -> None:
        if size > self._longest_body:
            raise BodyTooLong(
                f"the body has {size:,} bytes or more, the most is {self._longest_body:,} (serve.body in the settings)"
            )


class _Exchange:
    """One request and its answer. ``send`` doesn't wait for ever on a client."""

    def __init__(self, receive: Receive, send: Send, request_id: str) -> None:
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._whole = False
        self._gone = asyncio.Event()
        self._body: bytes | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["x-request-id"] = self._request_id
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await self._send(message)
        except TimeoutError:
            raise Disconnected(f"the client read nothing for {_WRITE_SECONDS:g} s") from None
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._whole = True

    async def receive(self) -> Message:
        """The body, and then the client's going."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def run(self, body: bytes, work: Callable[[Receive, Send], Awaitable[None]]) -> None:
        """Until the answer is whole. When the client has gone before, ``work`` is cancelled, whatever it waits for."""
        self._body = body

        async def watch() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                pass
            self._gone.set()

        task = asyncio.ensure_future(work(self.receive, self.send))
        watching = asyncio.create_task(watch())
        try:
            await asyncio.wait({task, watching}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() or self._whole:  # a server says that the client is gone after the answer, too
                await task
        except Disconnected:
            pass
        finally:
            task.cancel()
            watching.cancel()
            await asyncio.gather(task, watching, return_exceptions=True)
