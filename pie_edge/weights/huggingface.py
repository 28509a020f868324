"""Models from a Hugging Face repository, through ``huggingface_hub`` (its endpoint, token and proxy settings hold)."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pie_edge.errors import BadCheckpoint, FetchFailed, ModelNotFound, PieError, UsageError
from pie_edge.weights import checkpoint, gguf, safetensors
from pie_edge.weights.disk import check_room, disk_error
from pie_edge.weights.store import Progress, sizes_below

PREFERRED = ("Q4_K_M", "Q4_1", "Q4_0", "Q8_0", "Q6_K", "Q5_K_M", "BF16", "F16", "F32")
"""Which quantisation is taken when a repository has several, first first."""

_ID = re.compile(r"(?P<hub>hf:)?(?P<repo>\w[\w.-]*/\w[\w.-]*)(?::(?P<file>[^:]+))?")
_FILE_SUFFIXES = (".gguf", ".safetensors", ".json", ".bin")
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Reference:
    """``org/repo``, and the file in it if one was named."""

    repo: str
    file: str | None

    def __str__(self) -> str:
        return f"hf:{self.repo}" + (f":{self.file}" if self.file else "")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    name: str
    nbytes: int
    sha256: str | None


def parse(text: str) -> Reference | None:
    """``org/repo``, ``hf:org/repo`` or either with ``:file``; None for anything else, such as a path to a file."""
    match = _ID.fullmatch(text)
    if match is None or (not match["hub"] and match["repo"].lower().endswith(_FILE_SUFFIXES)):
        return None
    return Reference(match["repo"], match["file"])


def fetch(reference: Reference, folder: Path, progress: Progress) -> tuple[Path, list[Path]]:
    """Download what a model needs into ``folder``; return the file to open, and all. A broken download is continued."""
    from huggingface_hub import HfApi, hf_hub_download

    # Public and documented, but not among the module's explicit exports.
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    disable_progress_bars()
    endpoint = os.environ.get("HF_ENDPOINT") or None
    with _explained(reference):
        info = HfApi(endpoint=endpoint).model_info(reference.repo, files_metadata=True)
    remote = {
        file.rfilename: RemoteFile(file.rfilename, file.size or 0, file.lfs.sha256 if file.lfs else None)
        for file in info.siblings or ()
        if _stays_below(file.rfilename)
    }
    main, wanted = choose(reference, remote)
    _drop_others(folder, {folder / file.name for file in wanted})
    total = sum(file.nbytes for file in wanted)
    check_room(folder, total - _size(folder))
    with _explained(reference), _watched(folder, total, f"fetching {reference.repo}", progress):
        for file in wanted:
            hf_hub_download(reference.repo, file.name, revision=info.sha, local_dir=folder, endpoint=endpoint)
    for file in wanted:
        _check(folder / file.name, file)
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return folder / main, [folder / file.name for file in wanted]


def _stays_below(name: str) -> bool:
    """Whether a repository's file name leads to a place inside the folder it is put in."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and ":" not in name


def _drop_others(folder: Path, wanted: set[Path]) -> None:
    """Delete what an earlier import of another file left; the hub's own notes of a broken download stay."""
    for path, _ in sizes_below(folder):
        if path not in wanted and path.relative_to(folder).parts[0] != ".cache":
            path.unlink()


def choose(reference: Reference, remote: Mapping[str, RemoteFile]) -> tuple[str, list[RemoteFile]]:
    """The file to open and all files to fetch, of those a repository has."""
    main = reference.file or _main_file(reference, sorted(remote))
    if main not in remote:
        models = (
            ", ".join(name for name in sorted(remote) if name.endswith((".gguf", ".safetensors"))) or "no model file"
        )
        raise ModelNotFound(f"{reference.repo} has no file {main!r}; it has {models}")
    if main.endswith(".gguf"):
        names = [path.as_posix() for path in gguf.split_paths(Path(main))]
        main = names[0]
    elif main.endswith((".safetensors", safetensors.INDEX_SUFFIX)):
        names = _snapshot(main, sorted(remote))
    else:
        raise UsageError(f"{main} of {reference.repo} is neither a GGUF nor a safetensors file; name one that is")
    missing = [name for name in names if name not in remote]
    if missing:
        raise ModelNotFound(f"{reference.repo} lacks {', '.join(missing)}, parts of {main}; tell its makers")
    return main, [remote[name] for name in names]


def _main_file(reference: Reference, names: list[str]) -> str:
    # A multimodal projector is no model of its own; a split model counts as its first part.
    ggufs = [
        name
        for name in names
        if name.endswith(".gguf")
        and "mmproj" not in name.lower()
        and gguf.split_paths(Path(name))[0].as_posix() == name
    ]
    if len(ggufs) == 1:
        return ggufs[0]
    for encoding in PREFERRED if ggufs else ():
        found = [
            name for name in ggufs if re.search(rf"(?:^|[^a-z0-9]){encoding}(?:[^a-z0-9_]|$)", name, re.IGNORECASE)
        ]
        if len(found) == 1:
            return found[0]
    if ggufs:
        choices = "\n".join(f"  hf:{reference.repo}:{name}" for name in ggufs)
        raise UsageError(
            f"{reference.repo} has {len(ggufs)} GGUF files and none is the obvious one; name one:\n{choices}"
        )
    for suffix in (safetensors.INDEX_SUFFIX, ".safetensors"):
        found = [name for name in names if name.endswith(suffix) and "/" not in name]
        if len(found) == 1:
            return found[0]
    raise ModelNotFound(f"{reference.repo} holds no GGUF file and no one safetensors model; take another repository")


def _snapshot(main: str, names: list[str]) -> list[str]:
    """A safetensors model's weights, and the files beside them that a checkpoint reads."""
    folder = main.rpartition("/")[0]
    beside = [name for name in names if name.rpartition("/")[0] == folder]
    known = {f"{folder}/{name}" if folder else name for name in checkpoint.FILES}
    # What an index names is only known once it is here; its shards share its stem.
    stem = main.removesuffix(safetensors.INDEX_SUFFIX)
    shards = [name for name in beside if name.startswith(f"{stem}-") and name.endswith(".safetensors")]
    return [main, *(shards if stem != main else ()), *(name for name in names if name in known)]


def _check(path: Path, file: RemoteFile) -> None:
    if file.sha256 is None:
        return
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != file.sha256:
        path.unlink()
        raise BadCheckpoint(f"{file.name} arrived with SHA-256 {digest}, not {file.sha256}; try again")


@contextmanager
def _explained(reference: Reference) -> Iterator[None]:
    """The hub's many errors as two of ours, with its own words; one of this machine's disk passes as it is."""
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, RepositoryNotFoundError

    try:
        yield
    except PieError:
        raise
    except Exception as error:
        if (of_disk := disk_error(error)) is not None:
            raise of_disk from error
        words = " ".join(str(error).split())[:400]
        absent = isinstance(error, EntryNotFoundError | RepositoryNotFoundError | HFValidationError)
        raise (ModelNotFound if absent else FetchFailed)(
            f"{reference} could not be fetched: {type(error).__name__}: {words}; check the name and the network; a "
            "private or gated repository needs HF_TOKEN, a mirror HF_ENDPOINT"
        ) from error


@contextmanager
def _watched(folder: Path, total: int, what: str, progress: Progress) -> Iterator[None]:
    """Report how ``folder`` grows, from a thread of its own: the hub's own bars can't be read."""
    done = threading.Event()

    def report() -> None:
        while not done.wait(_POLL_SECONDS):
            progress(min(_size(folder), total), total, what)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    progress(total, total, what)


def _size(folder: Path) -> int:
    return sum(size for _, size in sizes_below(folder))
