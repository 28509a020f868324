"""Named snapshots of contexts, which survive a restart: what was forwarded needn't be forwarded again.

``Context.save`` and ``Context.load`` make and take them. The host keeps keys and values with the digest of the model they are
of, and refuses them to any other.
"""

from __future__ import annotations

import json
from typing import Any

from inferlet._host import host
from inferlet._transcript import Transcript
from inferlet.errors import ResourceError, UsageError

_VERSION = 1
_LONGEST_NAME = 128


def names() -> list[str]:
    """Of all snapshots there are."""
    return host().list_snapshots()


def delete(name: str) -> None:
    _check(name)
    host().delete_snapshot(name)


async def save(transcript: Transcript, name: str, state: dict[str, Any]) -> None:
    """With what else a context has to know; for ``Context.save``."""
    _check(name)
    kept = state | {"version": _VERSION, "tokens": transcript.tokens}
    await transcript.save(name, lambda seen: json.dumps(kept | {"seen": seen}))


async def load(transcript: Transcript, name: str) -> dict[str, Any]:
    """Into an empty transcript, for ``Context.load``: what ``save`` was given."""
    _check(name)
    state: dict[str, Any] = json.loads(await transcript.load(name))
    if state.get("version") != _VERSION:
        raise ResourceError(
            f"the snapshot {name!r} was written by another version of the SDK (format {state.get('version')}, this one "
            f"reads {_VERSION}); fill the context anew and save it again"
        )
    transcript.restore(state["tokens"], state["seen"], state.get("adapter"))
    return state


def _check(name: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise UsageError(f"{name!r} can't name a snapshot; give 1 to {_LONGEST_NAME} printable characters")
