"""The Python language component: CPython with the SDK inside, which takes an inferlet's source at run time.

A wheel carries it as ``data/python.wasm``; a checkout builds it once with componentize-py. Its file is named after what it was
made from, so an edited SDK never meets an old one. Nothing here needs wasmtime: a wheel is built with this module.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pie_edge import resources
from pie_edge.errors import Unsupported

Progress = Callable[[int, int, str], None]
"""``(done, total, what)``; a total of 0 is work whose length isn't known."""

COMPONENTIZE = "0.25.1"
_DATA = Path(__file__).with_name("data")
_ROOM = 256 << 20
"""Bytes that building and compiling take for a moment."""


def ensure_component(cache_dir: Path, progress: Progress | None = None) -> Path:
    """The component's file: the one in the package, one built before, or one built now. Raises Unsupported."""
    digest = source_digest()
    packaged = _DATA / "python.wasm"
    if packaged.is_file() and digest in ("", packaged_digest()):
        return packaged
    try:
        return _built(cache_dir, digest) or _build_into_cache(cache_dir, digest, progress)
    except OSError as error:
        raise Unsupported(
            f"the Python language component can't be kept in {cache_dir}: {error.strerror or error}; "
            "make room there, or name a folder that can be written in PIE_EDGE_CACHE"
        ) from None


def _built(cache_dir: Path, digest: str) -> Path | None:
    """One that was built before. Its name ends with a digest of what is in it: a damaged one is removed."""
    for file in cache_dir.glob(f"python-{digest[:16]}-*.wasm"):
        if file.stem.endswith(_content_digest(file.read_bytes())):
            return file
        file.unlink(missing_ok=True)
    return None


def _build_into_cache(cache_dir: Path, digest: str, progress: Progress | None) -> Path:
    import errno
    import shutil

    cache_dir.mkdir(parents=True, exist_ok=True)
    # Known before the work rather than after it.
    if shutil.disk_usage(cache_dir).free < _ROOM:
        raise OSError(errno.ENOSPC, f"building it takes {_ROOM >> 20} MiB, and less is free")
    with tempfile.TemporaryDirectory(prefix="building-", dir=cache_dir) as scratch:
        if progress is not None:
            progress(0, 0, "building the Python language component (once, about 15 s)")
        component = build(Path(scratch))
    target = cache_dir / f"python-{digest[:16]}-{_content_digest(component)}.wasm"
    write_whole(target, component)
    return target


def _content_digest(component: bytes) -> str:
    return hashlib.sha256(component).hexdigest()[:32]


def source_digest() -> str:
    """What the component is made of: the WIT, the SDK, and the tool's version. Empty where the sources aren't."""
    root = resources.inferlets()
    files = sorted([*root.glob("wit/*.wit"), *root.glob("sdk/python/**/*.py")])
    if not files:
        return ""
    files += _compiled_beforehand()
    digest = hashlib.sha256(COMPONENTIZE.encode())
    for file in files:
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _compiled_beforehand() -> list[Path]:
    """Of inferlets that run for every request, the sources: their code is in the component, since compiling it inside takes
    longer than all else that a start does."""
    return sorted(file for name in ("completion", "embedding") for file in (resources.inferlets() / name).glob("*.py"))


def build(scratch: Path) -> bytes:
    """The component, made in the empty folder ``scratch`` from the sources of this checkout. Raises Unsupported, with the remedy,
    and OSError."""
    # Here, because every start imports this module and hardly any builds.
    import importlib.util
    import shutil

    root = resources.inferlets()
    if importlib.util.find_spec("componentize_py") is None:
        raise Unsupported(
            "this checkout has no Python language component yet, and building it needs componentize-py: "
            f"{sys.executable} -m pip install componentize-py=={COMPONENTIZE}"
        )
    app, output = scratch / "app", scratch / "python.wasm"
    shutil.copytree(root / "sdk/python", app, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    texts = {f"{file.parent.name}/{file.name}": file.read_text(encoding="utf-8") for file in _compiled_beforehand()}
    with (app / "inferlet" / "_compiled.py").open("a", encoding="utf-8") as module:
        module.write(f"\nadd({texts!r})\n")
    _componentize(root / "wit", app, output)
    return output.read_bytes()


def _componentize(wit: Path, app: Path, output: Path) -> None:
    import errno
    import subprocess

    command = "import sys; from componentize_py import script; sys.exit(script())"
    arguments = ["-d", str(wit), "-w", "language", "componentize", "component", "-p", str(app), "-o", str(output)]
    # Packages of an active virtual environment must not find their way in; what is unpacked on the way stays in our folder.
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    environment |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(app.parent))
    done = subprocess.run(
        [sys.executable, "-c", command, *arguments],
        cwd=app.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not output.is_file():
        text = done.stderr or done.stdout
        if os.strerror(errno.ENOSPC) in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        told = re.split("stack backtrace", text, maxsplit=1, flags=re.IGNORECASE)[0].strip().splitlines()[-12:]
        raise Unsupported("the Python language component couldn't be built; componentize-py says:\n" + "\n".join(told))


def build_into(package: Path) -> None:
    """Puts the component into a copy of the ``pie_edge`` package, for a wheel."""
    target = package / "host" / "data" / "python.wasm"
    with tempfile.TemporaryDirectory(prefix="pie-edge-") as scratch:
        component = build(Path(scratch))
    write_whole(target, component)
    write_whole(target.with_suffix(".json"), json.dumps({"digest": source_digest()}).encode())


def packaged_digest() -> str:
    try:
        return str(json.loads((_DATA / "python.json").read_text())["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def write_whole(target: Path, data: bytes) -> None:
    """Whole or not at all, whoever else writes it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)  # mkstemp's 0600 would travel with a wheel, and lock out a machine's other users
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink()
        raise
