"""Named snapshots of contexts, which survive a restart: what was forwarded needn't be forwarded again.

The host keeps keys and values with the digest of the model they are of, and refuses them to any other.
"""

from __future__ import annotations

import json

from inferlet._host import host
from inferlet._seeds import first_seed
from inferlet._transcript import Transcript
from inferlet.context import Context, Turn
from inferlet.errors import ResourceError, UsageError

_VERSION = 1
_LONGEST_NAME = 128


async def save(context: Context, name: str) -> None:
    """Keeps the context under ``name``, in place of what had that name."""
    _check(name)
    state = {"version": _VERSION, "turn": context.turn.name, "opened": context.opened}
    await context.transcript.save(name, lambda seen: json.dumps(state | {"seen": seen, "tokens": context.tokens}))


async def load(name: str, *, seed: int | None = None) -> Context:
    """A context that goes on where the saved one was. Like any new one it draws its own numbers."""
    _check(name)
    transcript = Transcript(first_seed() if seed is None else seed)
    state = json.loads(await transcript.load(name))
    if state.get("version") != _VERSION:
        raise ResourceError(
            f"the snapshot {name!r} was written by another version of the SDK (format {state.get('version')}, this one "
            f"reads {_VERSION}); fill the context anew and save it again"
        )
    transcript.restore(state["tokens"], state["seen"])
    return Context.of(transcript, Turn[state["turn"]], opened=state["opened"])


def names() -> list[str]:
    """Of all snapshots there are."""
    return host().list_snapshots()


def delete(name: str) -> None:
    _check(name)
    host().delete_snapshot(name)


def _check(name: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise UsageError(f"{name!r} can't name a snapshot; give 1 to {_LONGEST_NAME} printable characters")
