"""Contexts kept on disk by name: a folder with a file for each."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Coroutine
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pie_edge.control.snapshot import Content, PageState
from pie_edge.errors import InvalidHandle, ResourceError
from pie_edge.host.language import write_whole

if TYPE_CHECKING:
    from pie_edge.control.space import Space
    from pie_edge.host.snapshot_format import Model

_SUFFIX = ".kv"
_LONGEST_NAME = 128  # bytes; a file's name is eight fifths of that
_LONGEST_NOTE = 16 * 2**20
MOST_SNAPSHOTS = 1000


class ContextEngine(Protocol):
    """The engine, as far as it is needed here."""

    @property
    def page_states(self) -> tuple[PageState, ...]: ...

    @property
    def slot_states(self) -> tuple[PageState, ...]: ...

    def save_context(self, space: Space, working_set: int, length: int) -> Coroutine[Any, Any, Content]: ...

    def load_context(self, space: Space, working_set: int, content: Content) -> None: ...


class Snapshots:
    """``capacity`` is bytes of all files. ``fingerprint`` of the model is asked for at first use: it may read the weights."""

    def __init__(
        self,
        folder: Path,
        engine: ContextEngine,
        model: str,
        fingerprint: Callable[[], str],
        capacity: int = 16 * 2**30,
    ) -> None:
        self._folder = folder
        self._engine = engine
        self._name = model
        self._fingerprint = fingerprint
        self._capacity = capacity

    def save(self, space: Space, context: int, name: str, length: int, note: str) -> Coroutine[Any, Any, None]:
        """Behind the passes that the context has before it: what is wrong with the call is raised at once."""
        path = self._path(space.name, name)
        if len(note) > _LONGEST_NOTE:
            raise ResourceError(f"{space.name} saves a note of {len(note):,} characters; the most is {_LONGEST_NOTE:,}")
        content = self._engine.save_context(space, context, length)

        async def finish() -> None:
            kept = await content
            await asyncio.to_thread(self._write, space.name, path, kept, note)

        return finish()

    async def load(self, space: Space, context: int, name: str) -> str:
        path = self._path(space.name, name)
        content, note = await asyncio.to_thread(self._read, space.name, name, path)
        self._engine.load_context(space, context, content)
        return note

    def names(self) -> list[str]:
        return sorted(name for file in self._files() if (name := _named(file)) is not None)

    def delete(self, name: str) -> None:
        try:
            self._path("an inferlet", name).unlink()
        except FileNotFoundError:
            raise self._unknown(name) from None
        except OSError as error:
            raise ResourceError(
                f"the snapshot {name!r} can't be deleted: {error.strerror}; check {self._folder}"
            ) from None

    @cached_property
    def _model(self) -> Model:
        from pie_edge.host.snapshot_format import Model  # NumPy, which few need at the start

        return Model(self._name, self._fingerprint(), self._engine.page_states, self._engine.slot_states)

    def _write(self, who: str, path: Path, content: Content, note: str) -> None:
        from pie_edge.host.snapshot_format import encode

        data = encode(self._model, content, note)
        others = [file for file in self._files() if file != path]
        used = sum(file.stat().st_size for file in others)
        if len(others) >= MOST_SNAPSHOTS or used + len(data) > self._capacity:
            raise ResourceError(
                f"{who} saves a snapshot of {len(data):,} bytes; {self._folder} has {len(others)} of {used:,} bytes, and "
                f"room for {MOST_SNAPSHOTS} of {self._capacity:,}. Delete some"
            )
        try:
            write_whole(path, data)
        except OSError as error:
            raise ResourceError(f"{who} can't save to {self._folder}: {error.strerror}; check the folder") from None

    def _read(self, who: str, name: str, path: Path) -> tuple[Content, str]:
        from pie_edge.host.snapshot_format import DamagedError, MismatchError, decode

        try:
            return decode(self._model, path.read_bytes())
        except FileNotFoundError:
            raise self._unknown(name) from None
        except OSError as error:
            raise ResourceError(
                f"the snapshot {name!r} can't be read: {error.strerror}; check {self._folder}"
            ) from None
        except DamagedError as error:
            raise ResourceError(
                f"{who} loads the snapshot {name!r}, which is damaged: {error}; delete it and save it again"
            ) from None
        except MismatchError as error:
            raise ResourceError(
                f"{who} loads the snapshot {name!r} for {self._name} ({self._model.fingerprint:.12}), and {error}; "
                "run that model, or save it again with this one"
            ) from None

    def _unknown(self, name: str) -> InvalidHandle:
        names = self.names()
        known = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
        return InvalidHandle(f"there is no snapshot {name!r}; there are {known or 'none'}")

    def _path(self, who: str, name: str) -> Path:
        encoded = name.encode()
        if not 0 < len(encoded) <= _LONGEST_NAME:
            raise ResourceError(f"{who}: a snapshot's name of {len(encoded)} bytes; give it 1 to {_LONGEST_NAME}")
        # Any name makes a file of this folder, and none makes another's on a disk that doesn't tell cases apart.
        return self._folder / (base64.b32encode(encoded).decode().rstrip("=").lower() + _SUFFIX)

    def _files(self) -> list[Path]:
        try:
            return list(self._folder.glob("*" + _SUFFIX))
        except OSError as error:
            raise ResourceError(f"{self._folder} can't be read: {error.strerror}; check the folder") from None


def _named(file: Path) -> str | None:
    """The name a file keeps; None for a file that isn't ours."""
    encoded = file.stem.upper()
    try:
        return base64.b32decode(encoded + "=" * (-len(encoded) % 8)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
