"""The Python language component: CPython with the SDK inside, which takes an inferlet's source at run time.

A wheel carries it as ``data/python.wasm``; a checkout builds it once with componentize-py. Either way it is compiled once for
this machine, and later runs map the compiled file. Everything is named after what it was made from, so an edited SDK or
another wasmtime never meets an old file, and a damaged file is made again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from wasmtime import Engine, WasmtimeError
from wasmtime.component import Component

from pie_edge import resources
from pie_edge.errors import Unsupported
from pie_edge.host.sandbox import CONFIGURATION

Progress = Callable[[int, int, str], None]
"""``(done, total, what)``; a total of 0 is work whose length isn't known."""

COMPONENTIZE = "0.25.1"
_DATA = Path(__file__).with_name("data")
_KEPT = 3  # compiled files; each is some 35 MB


def load_component(engine: Engine, cache_dir: Path, progress: Progress | None = None) -> Component:
    """The component, ready to instantiate; a few milliseconds if it was compiled before. Raises Unsupported."""
    tell = progress or (lambda done, total, what: None)
    digest = source_digest() or _packaged_digest()
    prefix = f"python-{_key(digest)}-"
    component = _compiled(engine, cache_dir, prefix)
    if component is None:
        component = _compile(engine, cache_dir, prefix, ensure_component(cache_dir, progress), tell)
    return component


def ensure_component(cache_dir: Path, progress: Progress | None = None) -> Path:
    """The component's file: the one in the package, one built before, or one built now. Raises Unsupported."""
    digest = source_digest()
    packaged = _DATA / "python.wasm"
    if packaged.is_file() and digest in ("", _packaged_digest()):
        return packaged
    built = cache_dir / f"python-{digest[:16]}.wasm"
    if not built.is_file():
        if progress is not None:
            progress(0, 0, "building the Python language component (once, about 15 s)")
        build(built)
    return built


def source_digest() -> str:
    """What the component is made of: the WIT, the SDK, and the tool's version. Empty where the sources aren't."""
    root = resources.inferlets()
    files = sorted([*root.glob("wit/*.wit"), *root.glob("sdk/python/**/*.py")])
    if not files:
        return ""
    digest = hashlib.sha256(COMPONENTIZE.encode())
    for file in files:
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def build(target: Path) -> None:
    """Builds the component from the sources of this checkout. Raises Unsupported, with the remedy."""
    root = resources.inferlets()
    if importlib.util.find_spec("componentize_py") is None:
        raise Unsupported(
            "this checkout has no Python language component yet, and building it needs componentize-py: "
            f"{sys.executable} -m pip install componentize-py=={COMPONENTIZE}"
        )
    with tempfile.TemporaryDirectory(prefix="pie-edge-") as scratch:
        app = Path(scratch, "app")
        shutil.copytree(root / "sdk/python", app, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        output = Path(scratch, "python.wasm")
        command = "import sys; from componentize_py import script; sys.exit(script())"
        arguments = ["-d", str(root / "wit"), "-w", "language", "componentize", "component", "-p", str(app), "-o", str(output)]
        # Packages of an active virtual environment must not find their way in.
        environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        done = subprocess.run(
            [sys.executable, "-c", command, *arguments], cwd=scratch, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode or not output.is_file():
            told = (done.stderr or done.stdout).strip().splitlines()[-12:]
            raise Unsupported("the Python language component couldn't be built; componentize-py says:\n" + "\n".join(told))
        _write(target, output.read_bytes())


def write_packaged() -> Path:
    """Puts the component into the package, for a wheel: ``data/python.wasm`` and what it was made from."""
    target = _DATA / "python.wasm"
    build(target)
    _write(target.with_suffix(".json"), json.dumps({"digest": source_digest()}).encode())
    return target


def _packaged_digest() -> str:
    try:
        return str(json.loads((_DATA / "python.json").read_text())["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _key(digest: str) -> str:
    """Compiled code depends on the compiler, its settings and the processor."""
    parts = (digest, version("wasmtime"), CONFIGURATION, sys.platform, platform.machine(), _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Which instructions there are, as far as the system says so cheaply."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            head = file.read(8192)
    except OSError:
        return platform.processor()
    return next((line for line in head.splitlines() if line.startswith(("flags", "Features"))), "")


def _compiled(engine: Engine, cache_dir: Path, prefix: str) -> Component | None:
    """The compiled component, if an undamaged file is there. Its length is in its name: a truncated one is refused."""
    for file in cache_dir.glob(f"{prefix}*.cwasm"):
        try:
            if file.stem == f"{prefix}{file.stat().st_size}":
                return Component.deserialize_file(engine, str(file))
        except (OSError, WasmtimeError):
            pass
        _remove(file)
    return None


def _compile(engine: Engine, cache_dir: Path, prefix: str, source: Path, tell: Progress) -> Component:
    tell(0, 0, "compiling the Python language component for this machine (once)")
    try:
        component = Component(engine, source.read_bytes())
    except WasmtimeError as error:
        _remove_built(source, cache_dir)
        raise Unsupported(f"{source} can't be compiled: {str(error).splitlines()[0]}; run again to build it anew") from None
    compiled = bytes(component.serialize())
    file = cache_dir / f"{prefix}{len(compiled)}.cwasm"
    try:
        _write(file, compiled)
        _prune(cache_dir)
        return Component.deserialize_file(engine, str(file))
    except OSError as error:
        tell(0, 0, f"{cache_dir} can't be written ({error.strerror}); the next run compiles again")
        return component


def _remove_built(source: Path, cache_dir: Path) -> None:
    if source.parent == cache_dir:
        _remove(source)


def _prune(cache_dir: Path) -> None:
    """Old builds and compilations go; those of a few checkouts or versions in turns stay."""
    for pattern in ("python-*.cwasm", "python-*.wasm"):
        files = sorted(cache_dir.glob(pattern), key=lambda file: file.stat().st_mtime, reverse=True)
        for file in files[_KEPT:]:
            _remove(file)


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError:
        pass


def _write(target: Path, data: bytes) -> None:
    """Whole or not at all, whoever else writes it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
