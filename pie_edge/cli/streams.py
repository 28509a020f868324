"""The standard streams as the commands find them: three that are open, whatever the shell handed over."""

from __future__ import annotations

import io
import os
import sys

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare() -> None:
    """To be called before anything else is opened: a closed descriptor's number would go to the next file, and a library that
    writes to standard output would write there."""
    for name, mode in _STREAMS:
        if getattr(sys, name) is None:
            # Who closed it (``>&-``) wants nothing written, or has nothing to say: that is what the null device does.
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115  It stays open, as the others do.
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            # A terminal that lacks a character of the model's shows a ? for it; that is no reason to fail.
            output.reconfigure(errors="replace")
