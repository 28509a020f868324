"""Texts by key that outlive the inferlets, and the process.

There is one store for all programs of a data folder: it is how they hand each other things, and a program's name proves
nothing about who wrote it. A program that wants a corner of its own begins its keys with a name of its own.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pie_edge.errors import ResourceError

LONGEST_KEY = 512
LONGEST_VALUE = 2**20
MOST_LISTED = 1000
"""Keys that one call lists."""
_PAGE = 4096
_PATIENCE = 0.25  # seconds that a call waits for another process; all guests wait with it


class Store:
    """``capacity`` is bytes of its file. Opened at first use; other processes may use the same file."""

    def __init__(self, path: Path, capacity: int = 256 * 2**20) -> None:
        self._path = path
        self._capacity = capacity
        self._connection: sqlite3.Connection | None = None

    def get(self, key: str) -> str | None:
        rows = self._run("SELECT value FROM entries WHERE key = ?", key)
        return rows[0][0] if rows else None

    def set(self, key: str, value: str) -> None:
        """Raises ResourceError for a key or value that is too long, or a store that is full."""
        if not 0 < len(key) <= LONGEST_KEY:
            raise ResourceError(f"a key of {len(key):,} characters; the store takes 1 to {LONGEST_KEY}")
        if len(value) > LONGEST_VALUE:
            raise ResourceError(
                f"a value of {len(value):,} characters for the key {key!r}; the store takes {LONGEST_VALUE:,}. Split it"
            )
        self._run(
            "INSERT INTO entries VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value
        )

    def delete(self, key: str) -> bool:
        return bool(self._run("DELETE FROM entries WHERE key = ? RETURNING 1", key))

    def exists(self, key: str) -> bool:
        return bool(self._run("SELECT 1 FROM entries WHERE key = ?", key))

    def keys(self, prefix: str, after: str | None, count: int) -> list[str]:
        """Up to ``count`` keys that begin with ``prefix``, in order, those after ``after``."""
        found = self._run(
            "SELECT key FROM entries WHERE key >= ? AND key > ? ORDER BY key LIMIT ?",
            prefix,
            after or "",
            min(count, MOST_LISTED),
        )
        # Keys with a prefix follow one another.
        return [key for (key,) in found if key.startswith(prefix)]

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._told():
            if self._connection is None:
                self._connection = self._open()
            return self._connection.execute(statement, values).fetchall()

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
        try:
            # The log makes a write 0.02 ms instead of two waits for the disk; a power cut may lose the last ones, whole.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA max_page_count = {self._capacity // _PAGE}")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
            )
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if "full" in str(error):
                remedy = f"it holds {self._capacity // 2**20} MiB; delete keys"
            else:
                remedy = "check the folder, or name another in PIE_EDGE_HOME"
            raise ResourceError(f"the store {self._path} refused: {error}; {remedy}") from None
