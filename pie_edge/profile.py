"""A timeline in a file, in the JSON that Perfetto (https://ui.perfetto.dev) and Chrome's tracing read.

A list of events, one a line: what was written is readable even if its process was killed, and several processes' files join
into one. Spans go to the file while it grows, so that memory doesn't; a thread does that.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

from pie_edge.errors import UsageError

TRACKS = ("requests", "queue", "batch", "control", "device", "guest")
"""From top to bottom; others come below as they are first named."""
MOST = 2_000_000
"""Events in a file; it says how many more there would have been."""
HANDFUL = 64
"""Events that are written at a time, so that whoever waits for Python's lock gets it within a fraction of a millisecond."""
Span = tuple[str, str, float, float, int | None, dict[str, Any]]


class TraceFile:
    """``span`` is a Timeline's. Times are those of ``time.perf_counter``, which processes of a machine share. Raises OSError if
    the file can't be made; ``close`` does if something couldn't be written."""

    def __init__(self, path: Path, process: str, most: int = MOST) -> None:
        self._room = most
        self._dropped = 0
        self._pending: list[Span] = []
        self._chunks: SimpleQueue[list[Span] | None] = SimpleQueue()
        self._problem: OSError | None = None
        self._pid = os.getpid()
        self._tracks: dict[str, int] = {}
        self._file = path.open("w", encoding="utf-8")
        try:
            self._begin(process)
        except OSError:
            self._file.close()
            raise
        self._writer = threading.Thread(target=self._write_all, name="pie-edge profile", daemon=True)
        self._writer.start()

    def span(self, track: str, name: str, began: float, ended: float, key: int | None = None, **details: Any) -> None:
        if not self._room:
            self._dropped += 1
            return
        self._room -= 1
        self._pending.append((track, name, began, ended, key, details))
        if len(self._pending) >= HANDFUL:
            self._chunks.put(self._pending)
            self._pending = []

    def close(self) -> None:
        """Nothing more is taken, and all that was is in the file."""
        self._room = 0
        self._chunks.put(self._pending)
        self._chunks.put(None)
        self._writer.join()
        with self._file as file:
            if self._problem is not None:
                raise self._problem
            if self._dropped:
                told = {
                    "name": f"{self._dropped} more spans had no room",
                    "ph": "i",
                    "s": "p",
                    "ts": time.perf_counter() * 1e6,
                }
                _write(file, told | {"pid": self._pid, "tid": 0})
            file.write("\n]\n")

    def _begin(self, process: str) -> None:
        named = {"name": "process_name", "ph": "M", "pid": self._pid, "tid": 0, "args": {"name": process}}
        self._file.write("[\n" + json.dumps(named))
        for track in TRACKS:
            self._name(track)
        self._file.flush()

    def _name(self, track: str) -> None:
        number = self._tracks[track] = len(self._tracks)
        place = {"ph": "M", "pid": self._pid, "tid": number}
        _write(self._file, {"name": "thread_name", "args": {"name": track}} | place)
        _write(self._file, {"name": "thread_sort_index", "args": {"sort_index": number}} | place)

    def _write_all(self) -> None:
        while (chunk := self._chunks.get()) is not None:
            if self._problem is not None:
                continue
            try:
                for span in chunk:
                    for event in self._events(*span):
                        _write(self._file, event)
                self._file.flush()
            except OSError as error:
                self._problem = error
            time.sleep(0)

    def _events(
        self, track: str, name: str, began: float, ended: float, key: int | None, details: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        if track not in self._tracks:
            self._name(track)
        place = {"name": name, "cat": track, "pid": self._pid, "tid": self._tracks[track]}
        if key is None:
            yield place | {"ph": "X", "ts": began * 1e6, "dur": (ended - began) * 1e6, "args": details}
            return
        place["id"] = key
        yield place | {"ph": "b", "ts": began * 1e6, "args": details}
        yield place | {"ph": "e", "ts": ended * 1e6}


def begin(path: Path, process: str, asked: Path | None = None) -> TraceFile:
    """Raises UsageError for a file that can't be made; ``asked`` is what the user named, if that is another one."""
    try:
        return TraceFile(path, process)
    except OSError as error:
        raise UsageError(
            f"--profile {asked or path} can't be written: {error.strerror or error}; name another file"
        ) from None


@contextmanager
def traced(path: Path | None, process: str) -> Iterator[TraceFile | None]:
    """A timeline that is whole however the block ends; None without a path. Raises UsageError, and at the end OSError."""
    trace = None if path is None else begin(path, process)
    try:
        yield trace
    finally:
        if trace is not None:
            trace.close()


def join(parts: Iterable[Path], path: Path) -> None:
    """One file of what several processes wrote. A part whose process was killed counts as far as it goes; parts are removed."""
    found = list(parts)
    with path.open("w", encoding="utf-8") as file:
        separator = "[\n"
        for part in found:
            for event in _events_of(part):
                file.write(separator + json.dumps(event))
                separator = ",\n"
        file.write("\n]\n" if separator != "[\n" else "[]\n")
    for part in found:
        part.unlink()


def _events_of(part: Path) -> Iterator[dict[str, Any]]:
    with part.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line.rstrip().rstrip(","))
            except ValueError:  # a bracket, or the end of a file whose process was killed
                continue
            if isinstance(event, dict):
                yield event


def _write(file: TextIO, event: dict[str, Any]) -> None:
    file.write(",\n" + json.dumps(event))
