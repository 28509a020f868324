"""The command line: ``pie-edge`` and its short name ``pie``. Each file here is one command or group of commands."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 failed, 2 asked for wrongly or for what isn't there, 130 interrupted, 141 the reader
    went away."""
    # Starting makes a hundred thousand objects that stay: looking for garbage among them costs 15 ms and finds none.
    gc.set_threshold(100_000, 20, 100)
    try:
        from pie_edge.cli import streams

        streams.prepare()
        from pie_edge.cli.app import start

        start(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        sys.exit(130)
