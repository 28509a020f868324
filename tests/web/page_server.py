"""What the page talks to, played: chat completions, models, metrics, and the protocol of /ws with one inferlet."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import uvicorn
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from pie_edge.server import page
from pie_edge.server.metrics import EngineMetrics

KEY = "a-key/with+signs=&%"
EVIL = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'
ANSWER = ["Hello ", EVIL, " — ", "wörld\n", "bye"]
SNAPSHOT = {"info": {}, "counters": {"read_rows": 7}, "gauges": {"pages": 8, "pages_used": 2}, "histograms": {}}
MODEL = {"name": EVIL, "backend": "cpu", "device": "a processor"}


class Played:
    """``asked`` are the bodies of chat requests, ``launched`` the messages that launched."""

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.asked: list[dict[str, Any]] = []
        self.launched: list[dict[str, Any]] = []
        self.granted = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                *page.routes(),
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/metrics", self._metrics),
                WebSocketRoute("/ws", self._ws),
            ]
        )

    def _refused(self, request: Request) -> Response | None:
        if not self.key or request.headers.get("authorization") == f"Bearer {self.key}":
            return None
        return JSONResponse({"error": {"message": "a key is missing"}}, 401)

    async def _models(self, request: Request) -> Response:
        return self._refused(request) or JSONResponse({"data": [{"id": "tiny"}]})

    async def _metrics(self, request: Request) -> Response:
        return self._refused(request) or Response(generate_latest(EngineMetrics(SNAPSHOT)))

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        if body["messages"][-1]["content"] == "fail":
            return JSONResponse({"error": {"message": f"No. {EVIL}"}}, 400)

        async def pieces() -> AsyncIterator[bytes]:
            whole = "".join(
                f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]}, ensure_ascii=False)}\n\n"
                for piece in ANSWER
            )
            data = (whole + 'data: {"choices": [], "usage": {}}\n\ndata: [DONE]\n\n').encode()
            # Pieces that end anywhere, in the middle of characters and lines too.
            for first in range(0, len(data), 7):
                yield data[first : first + 7]
                await asyncio.sleep(0)

        return StreamingResponse(pieces(), media_type="text/event-stream")

    async def _ws(self, websocket: WebSocket) -> None:
        if self.key and websocket.query_params.get("key") != self.key:
            await websocket.close(1008)
            return
        await websocket.accept()

        async def send(op: str, **fields: Any) -> None:
            await websocket.send_bytes(msgpack.packb({"op": op, **fields}))

        try:
            hello = msgpack.unpackb(await websocket.receive_bytes())
            assert hello["op"] == "hello" and hello["version"] == 1
            await send("welcome", version=1, server="played")
            await send("state", id=0, phase="ready", done=0, total=0, what="", model=MODEL, programs=["echo", EVIL])
            while True:
                message = msgpack.unpackb(await websocket.receive_bytes())
                if message["op"] == "credit":
                    self.granted += message["amount"]
                    continue
                self.launched.append(message)
                await send("launched", id=message["id"], instance="i1", name="echo")
                await send("output", instance="i1", text=f"so far {EVIL}\n", log=False, dropped=0)
                await send("message", instance="i1", text="x" * 300 + "ü\n")
                await send(
                    "ended", instance="i1", result=message["input"], code="", message="", usage={"passes": 2**40}
                )
        except WebSocketDisconnect:
            pass


@contextmanager
def serving(played: Played) -> Iterator[str]:
    """The URL."""
    config = uvicorn.Config(played.app(), port=0, log_config=None, lifespan="off", ws="websockets-sansio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            threading.Event().wait(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
