"""The kernels' machine code: compiled by wasmtime once, then kept in the cache directory."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from wasmtime import Config, Engine, MemoryType, Module, WasmtimeError

from pie_edge.backends.shared.host import processor
from pie_edge.errors import BackendUnavailable

BINARY = Path(__file__).parent / "kernels.wasm"


def engine() -> Engine:
    config = Config()
    config.wasm_threads = True
    config.wasm_simd = True
    config.wasm_relaxed_simd = True
    config.shared_memory = True
    config.cranelift_opt_level = "speed"
    return Engine(config)


def load(target: Engine, cache_dir: Path | None) -> Module:
    """The kernels for this machine. Raises BackendUnavailable if wasmtime can't compile them here."""
    try:
        binary = BINARY.read_bytes()
    except OSError as error:
        raise BackendUnavailable(
            f"the cpu backend's kernels can't be read ({error}); install pie-edge again"
        ) from error
    prefix = f"cpu-{_key(binary)}-"
    for cached in [] if cache_dir is None else cache_dir.glob(f"{prefix}*.cwasm"):
        # A digest is in the name: damaged machine code would not fail, it would run. wasmtime itself refuses what another
        # version or another processor's features made.
        with suppress(WasmtimeError, OSError):
            if cached.stem == prefix + _digest(cached.read_bytes()):
                return Module.deserialize_file(target, str(cached))
    try:
        module = Module(target, binary)
    except WasmtimeError as error:
        from importlib.metadata import version  # 10 ms, which no other start should pay

        raise BackendUnavailable(
            f"wasmtime {version('wasmtime')} can't compile the cpu backend's kernels for this {platform.machine()}: {error}"
        ) from error
    if cache_dir is not None:
        compiled = bytes(module.serialize())
        # A cache that can't be written costs a compilation at the next start, nothing else.
        with suppress(OSError):
            _write(cache_dir / f"{prefix}{_digest(compiled)}.cwasm", compiled)
    return module


def memory_pages(kernels: Module) -> tuple[int, int]:
    """How many pages the memory that they import has at least and at most."""
    imported = kernels.imports[0].type
    assert isinstance(imported, MemoryType) and imported.limits.max is not None
    return imported.limits.min, imported.limits.max


def _digest(compiled: bytes) -> str:
    return hashlib.sha256(compiled).hexdigest()[:32]


def _key(binary: bytes) -> str:
    parts: tuple[Any, ...] = (hashlib.sha256(binary).hexdigest(), platform.machine(), processor())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _write(path: Path, data: bytes | bytearray) -> None:
    """All or nothing: another process may read at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink()
        raise
