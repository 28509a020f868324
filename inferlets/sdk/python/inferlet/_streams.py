"""``sys.stdout`` and ``sys.stderr`` of a program, line by line to the host."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Callable
from typing import Any

from inferlet._host import host


class _Stream(io.RawIOBase):
    """Bytes in, whole characters out: a buffer that fills up may end in the middle of one."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = self._decoder.decode(bytes(data))
        if text:
            self._emit(text)
        return len(data)


def _text_stream(emit: Callable[[str], None]) -> io.TextIOWrapper:
    buffer = io.BufferedWriter(_Stream(emit))
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)


_installed: list[io.TextIOWrapper] = []


def install() -> None:
    """Lines arrive as they end, the rest at every wait and at the end; nothing is lost if the guest is stopped between."""
    sys.stdout = sys.__stdout__ = _text_stream(lambda text: host().print("output", text))
    sys.stderr = sys.__stderr__ = _text_stream(lambda text: host().print("error", text))
    _installed[:] = [sys.stdout, sys.stderr]


def flush() -> None:
    """Ours, whatever the program has put into their places."""
    for stream in _installed:
        if not stream.closed:
            stream.flush()
