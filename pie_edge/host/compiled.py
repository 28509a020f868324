"""The language component as machine code: compiled once for this machine, then mapped from its file.

A compiled file is named after everything that it depends on, and a damaged one is made again.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import platform
import sys
from pathlib import Path

from wasmtime import Engine, WasmtimeError
from wasmtime.component import Component

from pie_edge.errors import Unsupported
from pie_edge.host.language import Progress, ensure_component, packaged_digest, source_digest, write_whole
from pie_edge.host.sandbox import CONFIGURATION

_KEPT = 3  # compiled files; each is some 40 MB
_DIGITS = 32  # of a file's digest, in its name


def load_component(engine: Engine, cache_dir: Path, progress: Progress | None = None) -> Component:
    """The component, ready to instantiate; a few milliseconds if it was compiled before. Raises Unsupported."""
    tell = progress or (lambda done, total, what: None)
    digest = source_digest() or packaged_digest()
    prefix = f"python-{_key(digest)}-"
    component = _compiled(engine, cache_dir, prefix)
    if component is None:
        component = _compile(engine, cache_dir, prefix, ensure_component(cache_dir, progress), tell)
        _give_back()
    return component


def _key(digest: str) -> str:
    """Compiled code depends on the compiler, its settings and the processor."""
    parts = (digest, CONFIGURATION, sys.platform, platform.machine(), _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Which instructions there are, as far as the system says so cheaply."""
    try:
        with Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as file:
            head = file.read(8192)
    except OSError:
        return platform.processor()
    return next((line for line in head.splitlines() if line.startswith(("flags", "Features"))), "")


def _compiled(engine: Engine, cache_dir: Path, prefix: str) -> Component | None:
    """The compiled component, if an undamaged file is there. A digest of it is in its name: damaged machine code would not fail,
    it would run."""
    for file in cache_dir.glob(f"{prefix}*.cwasm"):
        try:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            if file.stem == prefix + digest[:_DIGITS]:
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
        raise Unsupported(f"{source} can't be compiled: {str(error).splitlines()[0]}; install pie-edge again") from None
    compiled = bytes(component.serialize())
    file = cache_dir / f"{prefix}{hashlib.sha256(compiled).hexdigest()[:_DIGITS]}.cwasm"
    try:
        write_whole(file, compiled)
        _prune(cache_dir)
        return Component.deserialize_file(engine, str(file))
    except OSError as error:
        tell(0, 0, f"{cache_dir} can't be written ({error.strerror}); the next run compiles again")
        return component


def _give_back() -> None:
    """The compiler's memory, some 350 MB, which the C library would keep for a process that never needs as much again."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # musl has none
        trim(ctypes.c_size_t(0))


def _prune(cache_dir: Path) -> None:
    """Old builds and compilations go; those of a few checkouts or versions in turns stay."""
    for pattern in ("python-*.cwasm", "python-*.wasm"):
        files = sorted(cache_dir.glob(pattern), key=lambda file: file.stat().st_mtime, reverse=True)
        for file in files[_KEPT:]:
            _remove(file)


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)
