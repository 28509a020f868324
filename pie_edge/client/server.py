"""A server of one's own, beside a Python program: it starts with a block, and ends with it."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from pie_edge import errors
from pie_edge.client.client import Client, connect
from pie_edge.errors import Disconnected

_CLOSE_SECONDS = 40.0


class Server:
    """``async with Server("smollm2-135m") as server:`` has a server on a free port of this machine, with the model loaded;
    ``url`` and ``api_key`` are for whatever client. It runs in processes of its own, which end with this one, however it ends.

    ``settings`` are those of the configuration, by name: ``{"backend": "cpu", "serve.queue": 10}``.
    """

    def __init__(self, model: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.url = ""
        self.api_key = secrets.token_urlsafe(24)
        given = {"model": model, "serve.port": 0, **(settings or {})}
        self._flags = {name: value for name, value in given.items() if value is not None}
        self._flags["serve.api_keys"] = [*self._flags.get("serve.api_keys", []), self.api_key]
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Server:
        """Raises what the server can't start with: ConfigError, ModelError, BackendError."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._flags).encode() + b"\n")
        try:
            self.url = str((await self._told())["url"])
            await self._told()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        async with connect(self.url, self.api_key) as client:
            yield client

    def _command(self) -> tuple[str, ...]:
        return (sys.executable, "-P", "-m", "pie_edge.server")

    async def _told(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise Disconnected(f"the server ended before it was ready, with status {await self._process.wait()}")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise errors.by_code(told["error"]["code"])(told["error"]["message"])
        return told

    async def _end(self) -> None:
        """Its standard input closes: it finishes what it has begun, and ends."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _CLOSE_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
