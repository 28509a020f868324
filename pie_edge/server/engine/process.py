"""``python -m pie_edge.server.engine.process``: the engine's process. The server starts it, and gives its orders on standard
input.

Orders are one line of JSON: the settings, and the folder for the socket. One line comes back on standard output: where to
connect. Standard input stays open as long as whoever started it lives, so that it never outlives them, however they end.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import secrets
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pie_edge.config import Settings, settings_from
from pie_edge.errors import BackendError, DeviceLost, PieError
from pie_edge.host.requests import told
from pie_edge.protocol.wire import Address
from pie_edge.server import lifeline
from pie_edge.server.engine.client import Client
from pie_edge.server.engine.desk import Desk
from pie_edge.server.engine.opened import Opener, open_model
from pie_edge.server.engine.watched import watched

FAILED, STUCK = 1, 75
"""Exit statuses: the model couldn't be opened; the device was lost and doesn't come back."""
_HEAR_SECONDS = 10.0
_SWITCH_SECONDS = 0.0005
_CLOSE_SECONDS = 5.0
_COLLECT = (10_000, 50, 1_000)
"""Thresholds of the garbage collector while it serves. Inferlets leave no cycles, so there is hardly anything to find; one look
at so many objects takes a millisecond."""
_LONGEST_PATH = 100
"""Of a Unix socket, in bytes: 104 on macOS, 108 on Linux."""


def main(opener: Opener = open_model) -> None:
    lifeline.ignore_signals()
    gc.set_threshold(100_000, 20, 100)
    # A thread that renders a long conversation holds Python's lock until it is asked for it: steps don't wait 5 ms for that.
    sys.setswitchinterval(_SWITCH_SECONDS)
    orders = json.loads(sys.stdin.buffer.readline() or b"null")
    if not isinstance(orders, dict):
        sys.exit("this is the engine of `pie-edge serve`, which starts it")
    tell = lifeline.take_output()
    sys.exit(asyncio.run(_serve(orders, opener, lambda address: tell(asdict(address)))))


def orders_of(settings: Settings, folder: Path) -> bytes:
    return json.dumps({"settings": asdict(settings), "folder": str(folder)}).encode() + b"\n"


async def _serve(orders: dict[str, Any], opener: Opener, tell: Callable[[Address], None]) -> int:
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(status: int) -> None:
        if not ending.done():
            ending.set_result(status)

    lifeline.watch(lambda: end(0))
    desk = Desk(secrets.token_urlsafe(32), lambda: end(STUCK))
    server, address = await _listen(desk, Path(orders["folder"]))
    tell(address)
    opening = asyncio.create_task(_open(desk, opener, settings_from(orders["settings"])))
    opening.add_done_callback(lambda task: None if task.cancelled() or task.result() else end(FAILED))
    status = await ending
    if status == STUCK:
        desk.failed(DeviceLost(desk.lost))
    desk.close()
    server.close()
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    # A driver may wait for ever for a device that is lost; the process's end frees all the same.
    with contextlib.suppress(*((BackendError, TimeoutError) if status == STUCK else ())):
        async with asyncio.timeout(_CLOSE_SECONDS if status == STUCK else None):
            await desk.close_engine()
    return status


async def _open(desk: Desk, opener: Opener, settings: Settings) -> bool:
    loop, mine = asyncio.get_running_loop(), threading.get_ident()

    def progress(done: int, total: int, what: str) -> None:
        if threading.get_ident() == mine:
            desk.loading(done, total, what)
        else:
            loop.call_soon_threadsafe(desk.loading, done, total, what)

    try:
        opened = watched(await opener(settings, progress), settings.serve)
    except Exception as error:
        desk.failed(told(error))
        await _until_heard(desk)
        return False
    # What loading made stays: without it a collection takes a tenth of the time, and no step waits for one.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)
    desk.ready(opened)
    return True


async def _until_heard(desk: Desk) -> None:
    """It may have failed sooner than anybody could connect."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HEAR_SECONDS):
            while not desk.clients:
                await asyncio.sleep(0.01)


async def _listen(desk: Desk, folder: Path) -> tuple[asyncio.Server, Address]:
    """A Unix socket in a folder that is the user's alone; where there are none, a port on loopback. Both ask for the secret."""
    loop = asyncio.get_running_loop()
    path = str(folder / "engine.sock")
    if hasattr(loop, "create_unix_server") and sys.platform != "win32" and len(os.fsencode(path)) <= _LONGEST_PATH:
        return await loop.create_unix_server(lambda: Client(desk), path), Address(path=path, secret=desk.secret)
    server = await loop.create_server(lambda: Client(desk), "127.0.0.1", 0)
    return server, Address(port=server.sockets[0].getsockname()[1], secret=desk.secret)


if __name__ == "__main__":
    try:
        main()
    except PieError as error:
        sys.exit(error.message)
