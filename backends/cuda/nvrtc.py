"""Kernels from CUDA C++ to machine code for one architecture, by NVRTC; kept on disk by what they were made of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pie_edge import remedies
from pie_edge.backends.cuda.cubins import Cubins
from pie_edge.errors import BackendError, BackendUnavailable

KERNELS = Path(__file__).parent / "kernels"
OPTIONS = ("--std=c++17", "--fmad=true")
HOPPER = 90


@cache
def sources() -> Mapping[str, str]:
    """The text of each file of ``kernels``."""
    return {path.name: path.read_text() for path in sorted(KERNELS.iterdir()) if path.suffix in (".cu", ".cuh")}


def headers() -> Mapping[str, str]:
    return {name: text for name, text in sources().items() if name.endswith(".cuh")}


@cache
def digest() -> str:
    """Of all kernels and how they are compiled."""
    return hashlib.sha256(repr((OPTIONS, sorted(sources().items()))).encode()).hexdigest()


def options_for(architecture: int) -> tuple[str, ...]:
    """Of a compute capability, times ten. Hopper's wgmma is in none but its own machine code, which is called 90a."""
    return (*OPTIONS, f"--gpu-architecture=sm_{architecture}{'a' if architecture == HOPPER else ''}")


class Compiler:
    """Compiles for one architecture. Cubins are kept in ``cache_dir``, if there is one."""

    def __init__(self, architecture: int, cache_dir: Path | None) -> None:
        self._architecture = architecture
        self._cubins = None if cache_dir is None else Cubins(cache_dir / "cuda")

    def __call__(self, file: str, text: str, defines: tuple[str, ...]) -> bytes:
        """The cubin of a file, or of text in its place. Raises BackendError with what the compiler said."""
        text = text or sources()[file]
        options = (*options_for(self._architecture), *(f"-D{define}" for define in defines))
        if self._cubins is None:
            return compiled(file, text, options)[0]
        digest = hashlib.sha256(repr((version(), text, sorted(headers().items()), options)).encode()).hexdigest()
        name = f"{file.removesuffix('.cu')}-{digest[:32]}.cubin"
        if (kept := self._cubins.read(name)) is not None:
            return kept
        made = compiled(file, text, options)[0]
        self._cubins.write(name, made)
        return made


def compiled(file: str, text: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    """The cubin, and what the compiler said of it. Raises BackendUnavailable where there is no NVRTC."""
    nvrtc, included = _nvrtc(), headers()
    names, texts = [n.encode() for n in included], [t.encode() for t in included.values()]
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), file.encode(), len(names), texts, names)
    _check(status, f"take {file}")
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _fetched(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode("utf-8", "replace")
        _check(status, f"compile {file}", log)
        return _fetched(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _fetched(size: Any, get: Any, program: Any) -> bytes:
    status, count = size(program)
    _check(status, "tell a size")
    # Not bytes: those of one byte, as long as an empty log, are shared by all of Python, and NVRTC writes into them.
    room = bytearray(count)
    (status,) = get(program, room)
    _check(status, "give its result")
    return bytes(room)


def _check(status: Any, what: str, log: str = "") -> None:
    if int(status):
        raise BackendError(f"NVRTC failed to {what}: {status.name}\n{log}".rstrip("\n\0 "))


@cache
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise BackendUnavailable(
            f"backend cuda needs NVRTC, and there is none ({error}); install it with `{remedies.install('cuda')}`"
        ) from error
    return nvrtc


@cache
def version() -> tuple[int, int]:
    """Of the package that has NVRTC, without loading it."""
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError, ValueError):
        major, minor, *_ = (int(part) for part in version("nvidia-cuda-nvrtc").split("."))
        return major, minor
    status, major, minor = _nvrtc().nvrtcVersion()
    _check(status, "tell its version")
    return major, minor
