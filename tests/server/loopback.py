"""Routes served on this machine by a real server, in a thread of its own: clients of tests may block."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute


@contextmanager
def serving(routes: Sequence[BaseRoute]) -> Iterator[str]:
    """The address, without a path."""
    server = uvicorn.Server(
        uvicorn.Config(Starlette(routes=list(routes)), port=0, log_level="error", ws="none", lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server has ended before it began"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
    assert not thread.is_alive(), "the server doesn't end"
