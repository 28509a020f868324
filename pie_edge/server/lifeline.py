"""What ties a process to the one that started it: standard input, which ends when that one does, however it ends; and standard
output, which carries answers to it alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

GRACE_SECONDS = 5.0


def ignore_signals() -> None:
    """An interrupt of the terminal, or a service manager's signal, goes to all processes: whoever started this one decides when
    it ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def take_output() -> Callable[[Any], None]:
    """Writes a line of JSON to whoever started this. What else is printed here, by a driver say, goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)

    return tell


def watch(gone: Callable[[], None], grace: float = GRACE_SECONDS) -> None:
    """Calls ``gone`` in the running loop when whoever started this has gone, and ends the process if that doesn't in time."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        # Not through sys.stdin: a thread inside of it when Python ends is a fatal error.
        while os.read(0, 4096):
            pass
        try:
            loop.call_soon_threadsafe(gone)
        finally:
            # Loading may hold the loop up for long, and a device its closing.
            threading.Event().wait(grace)
            os._exit(0)

    threading.Thread(target=wait, name="pie-edge lifeline", daemon=True).start()
