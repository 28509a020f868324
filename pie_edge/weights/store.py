"""The user's models: one folder each under the data directory, with an ``entry.json`` that says what the model is.

    <home>/models/<name>/entry.json      and the model's files, if the store owns them
    <home>/models/.partial/<name>/       a fetch in progress; renamed when it is whole
    <home>/models/.locks/<name>          held by the process that fetches or imports

A model is *owned* (its files lie in its folder) or *referenced* (they lie where the user keeps them; removing the model
leaves them alone). Folders appear by rename, so a reader sees a whole model or none.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pie_edge.errors import BadCheckpoint, ModelError, ModelNotFound, UsageError
from pie_edge.weights.catalogue import BUILT_IN

Progress = Callable[[int, int, str], None]
"""``progress(done, total, what)``: bytes done of a total, and what is being done. ``total`` is 0 if unknown."""

HOME_VARIABLE = "PIE_EDGE_HOME"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ENTRY = "entry.json"


def silent(done: int, total: int, what: str) -> None:
    """The progress of those who don't want to see any."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file of a model as it was when imported. ``path`` is absolute, or relative to the model's folder if owned."""

    path: str
    nbytes: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model the store knows. ``path`` is what ``open_checkpoint`` takes; ``source`` is where it came from."""

    name: str
    path: Path
    source: str
    owned: bool
    files: tuple[FileRecord, ...]

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)


def home() -> Path:
    """The data directory: ``PIE_EDGE_HOME``, or the platform's usual place."""
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "pie-edge"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "pie-edge"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "pie-edge"


def store_dir() -> Path:
    return home() / "models"


def partial_folder(name: str) -> Path:
    return store_dir() / ".partial" / name


def exists(path: Path) -> bool:
    """``Path.exists`` for any text a user may type."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def sizes_below(folder: Path) -> Iterator[tuple[Path, int]]:
    """Files below ``folder`` with their sizes; files and folders that vanish meanwhile are left out."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            try:
                found = path.stat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield path, found.st_size


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be a model's name: use 1…64 of a-z, 0-9, '.', '_', '-', starting with a letter or digit"
        )
    return name


def name_for(text: str) -> str:
    """A model name made from a file's or repository's."""
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64]
    return check_name(name or "model")


def load_entry(name: str) -> ModelEntry | None:
    """The entry of a model, or None if there is none. Its files are not looked at."""
    if not _NAME.fullmatch(name):
        return None
    folder = store_dir() / name
    try:
        text = (folder / _ENTRY).read_text(encoding="utf-8")
    except FileNotFoundError:
        if not folder.is_dir():
            return None
        raise BadCheckpoint(f"{folder} holds no model: its {_ENTRY} is missing; {_again(name)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadCheckpoint(f"{folder / _ENTRY} can't be read: {error}; {_again(name)}") from None
    try:
        record = json.loads(text)
        files = tuple(FileRecord(**file) for file in record["files"])
        return ModelEntry(name, folder / record["path"], record["source"], record["owned"], files)
    except (ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f"{folder / _ENTRY} is corrupt ({error!r}); {_again(name)}") from None


def _again(name: str) -> str:
    return f"run `pie-edge model remove {name}` and import the model again"


def save_entry(folder: Path, entry: ModelEntry) -> None:
    """Write ``entry`` into ``folder``; the path is relative if the files are in the folder."""
    path = entry.path.relative_to(folder) if entry.owned else entry.path
    record: Mapping[str, Any] = {
        "path": str(path),
        "source": entry.source,
        "owned": entry.owned,
        "files": [asdict(file) for file in entry.files],
    }
    (folder / _ENTRY).write_text(json.dumps(record, indent=1), encoding="utf-8")


def check_files(entry: ModelEntry) -> ModelEntry:
    """``entry``, if its files are still those that were imported: same size, and same time unless owned."""
    for file in entry.files:
        path = store_dir() / entry.name / file.path
        try:
            found = path.stat()
        except OSError as error:
            raise ModelNotFound(
                f"{path} of model {entry.name!r} is gone ({error.strerror}); {_again(entry.name)}"
            ) from None
        if found.st_size != file.nbytes or (not entry.owned and found.st_mtime_ns != file.mtime_ns):
            raise BadCheckpoint(f"{path} of model {entry.name!r} changed since it was imported; {_again(entry.name)}")
    return entry


def list_models() -> list[ModelEntry]:
    """All models here, by name; an entry that can't be read is left out, and ``find`` says why."""
    try:
        names = sorted(entry.name for entry in store_dir().iterdir())
    except OSError:
        return []
    found = []
    for name in names:
        try:
            entry = load_entry(name)
        except ModelError:
            continue
        if entry is not None:
            found.append(entry)
    return found


def find(name_or_path: str | os.PathLike[str]) -> ModelEntry:
    """A model of the store by its name, or one on disk by its path. Fetches nothing."""
    text = os.fspath(name_or_path)
    entry = load_entry(text)
    if entry is not None:
        return check_files(entry)
    path = Path(text).expanduser()
    # A bare word that happens to be a folder here is not meant as a path.
    if exists(path) and (path.is_file() or "/" in text or os.sep in text):
        return ModelEntry(path.name, path.absolute(), str(path), False, ())
    raise ModelNotFound(f"there is no model {text!r} here; {_what_there_is(text)}")


def _what_there_is(text: str) -> str:
    if text in BUILT_IN:
        return f"it is built in but not fetched yet: run `pie-edge model import {text}`"
    here = [entry.name for entry in list_models()]
    near = difflib.get_close_matches(text.lower(), {*here, *BUILT_IN}, n=3, cutoff=0.5)
    parts = [f"did you mean {' or '.join(near)}?"] if near else []
    parts.append(f"models here: {', '.join(here) or 'none'}")
    parts.append(f"built in: {', '.join(BUILT_IN)}")
    return (
        "; ".join(parts)
        + "; or give the path of a GGUF or safetensors file, or import one with `pie-edge model import`"
    )


def remove(name: str) -> None:
    """Forget a model, and delete its files if the store owns them. Files that were only referenced stay."""
    folder = store_dir() / name
    if not _NAME.fullmatch(name) or not folder.is_dir():
        raise ModelNotFound(f"there is no model {name!r} to remove; {_what_there_is(name)}")
    # Renamed first: nobody finds half a model, however long deleting takes.
    grave = partial_folder(f"{name}.removed-{os.getpid()}")
    grave.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(grave)
    shutil.rmtree(grave)
