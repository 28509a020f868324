"""``python -m pie_edge.server``: a server for the Python program that started it (``pie_edge.client.Server``).

Its settings are one line of JSON on standard input, by name; it ends when standard input does. Lines of JSON on standard output
say where it listens, and that its model is there, or the error that it ends with.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pie_edge.config import load
from pie_edge.errors import PieError
from pie_edge.server import lifeline
from pie_edge.server.serve import serving
from pie_edge.server.supervisor import ENGINE


def main(command: Sequence[str] = ENGINE) -> None:
    lifeline.ignore_signals()
    flags = json.loads(sys.stdin.buffer.readline() or b"null")
    if not isinstance(flags, dict):
        sys.exit("this is the server of pie_edge.client.Server, which starts it; start your own with `pie-edge serve`")
    tell = lifeline.take_output()
    try:
        asyncio.run(_serve(flags, tell, command))
    except PieError as error:
        tell({"error": {"code": error.code, "message": error.message}})
        sys.exit(1)


async def _serve(flags: dict[str, Any], tell: Callable[[Any], None], command: Sequence[str]) -> None:
    async with serving(load(flags, typed=False).settings, command=command) as server:
        lifeline.watch(server.stop, grace=server.drain + lifeline.GRACE_SECONDS)
        tell({"url": server.url})
        running = asyncio.create_task(server.run())
        ready = asyncio.create_task(server.supervisor.ready())
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done() and ready.exception() is None:
            tell({"ready": True})
        else:
            ready.cancel()
        await running


if __name__ == "__main__":
    main()
