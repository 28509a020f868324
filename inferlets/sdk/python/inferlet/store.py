"""Texts by key that are still there tomorrow.

There is one store for all programs of a host: it is how they hand each other things. A program that wants a corner of its own
begins its keys with a name of its own. Every function raises ResourceError where there is no store, or its disk refuses.
"""

from __future__ import annotations

from collections.abc import Iterator

from inferlet._host import host

_AT_ONCE = 1000


def get(key: str) -> str | None:
    """None if nothing has that key."""
    return host().store_get(key)


def set(key: str, value: str) -> None:
    """Raises ResourceError for a key of more than 512 characters or a value of more than 1,048,576, or if the store is full."""
    host().store_set(key, value)


def delete(key: str) -> bool:
    """Whether there was something to delete."""
    return host().store_delete(key)


def exists(key: str) -> bool:
    return host().store_exists(key)


def keys(prefix: str = "") -> Iterator[str]:
    """The keys that begin with ``prefix``, in order."""
    last: str | None = None
    while True:
        found = host().store_keys(prefix, last, _AT_ONCE)
        yield from found
        if not found:
            return
        last = found[-1]
