"""Kernels to a library of the CPU: their own text, but for declarations of shared arrays and, in CUDA, the PTX wrappers."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Extent = tuple[int, int, int]
INCLUDE = Path(__file__).parent / "include"
COMPILER = "g++"
ON_CARD = os.environ.get("PIE_EDGE_TEST_CUDA") == "card"
"""The tests of the CUDA backend run on a card, with NVIDIA's own driver and compiler."""
FLAGS = (
    *("-std=c++20", "-O2", "-march=x86-64-v3", "-ffp-contract=off", "-fno-strict-aliasing", "-fcf-protection=none"),
    *("-fPIC", "-fvisibility=hidden", "-w"),
)
TRACED = ("-fsanitize=thread", "-DSIMT_TRACE", "-O1", "-g0")

_DYNAMIC = re.compile(r"extern\s+__shared__\s+([A-Za-z_][\w: ]*?)\s+(\w+)\s*\[\s*\]\s*;")
_SHARED = re.compile(
    r"(?:__shared__|threadgroup)\s+((?:alignas\(\d+\)\s*)?[A-Za-z_]\w*(?:\s+[A-Za-z_]\w*)*)\s+(\w+)((?:\s*\[[^\]]+\])*)\s*;"
)
_KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\s*\(')
_BEGINNING = re.compile(r'^#line 1 "(.+)"$', re.MULTILINE)
_INCLUDED = re.compile(r'^#include\s+"(\w+\.cuh)"\s*$', re.MULTILINE)


class CompileError(Exception):
    """What the compiler said."""


def available() -> bool:
    return shutil.which(COMPILER) is not None and os.uname().machine == "x86_64"


def gathered(name: str, files: Mapping[str, str]) -> str:
    """A file with everything it includes, once each, but for the wrappers of PTX, which the emulator has its own of."""
    seen = {name}

    def text(one: str) -> str:
        def included(match: re.Match[str]) -> str:
            wanted, line = match[1], files[one].count("\n", 0, match.start()) + 2
            if wanted in seen:
                return ""
            seen.add(wanted)
            inner = '#include "ptx.cuh"' if wanted == "ptx.cuh" else text(wanted)
            return f'{inner}\n#line {line} "{one}"'

        return f'#line 1 "{one}"\n' + _INCLUDED.sub(included, files[one].replace("#pragma once", ""))

    return text(name)


def files_of(name: str, files: Mapping[str, str]) -> set[str]:
    """It, and what it includes, but for those wrappers."""
    return set(_BEGINNING.findall(gathered(name, files)))


def translated(text: str) -> str:
    """For g++: shared arrays become places in the emulator's arena, and every kernel gets a way in."""
    names = _KERNEL.findall(text)
    text = _DYNAMIC.sub(lambda m: f"{m[1]}* {m[2]} = simt::dynamic_shared<{m[1]}>();", text)
    kernels = "\n".join(f"SIMT_KERNEL({name})" for name in names)
    return f'#include "cuda_builtins.h"\n{arena_arrays(text)}\n{kernels}\n'


def arena_arrays(text: str) -> str:
    """With each shared array, of CUDA C++ or of Metal's language, as a place in the emulator's arena."""
    return _SHARED.sub(lambda m: f"auto& {m[2]} = simt::shared_array<{m[1]}{m[3]}, __COUNTER__>();", text)


def compiled(text: str, defines: Sequence[str] = (), extra: Sequence[str] = ()) -> Path:
    """The library of gathered CUDA C++; kept by what it is made of. Raises CompileError."""
    return library(translated(text), defines, extra)


def library(source: str, defines: Sequence[str] = (), extra: Sequence[str] = ()) -> Path:
    """The library of a text for g++, with the emulator. Raises CompileError."""
    flags = (*FLAGS, *extra)
    key = _key(source, _headers(), flags, defines)
    target = _folder() / f"{key}.so"
    if not target.exists():
        runtime = [
            _runtime(name, flags) for name in ("runtime", "async", *(["trace"] if "-DSIMT_TRACE" in flags else []))
        ]
        with tempfile.TemporaryDirectory(dir=target.parent) as made:
            path, unlinked, linked = (Path(made) / f"kernels.{kind}" for kind in ("cpp", "o", "so"))
            path.write_text(source)
            macros = [f"-D{define}" for define in defines]
            headers = f"-I{_precompiled(source, flags)}", f"-I{INCLUDE}"
            _call([COMPILER, *flags, *macros, *headers, "-c", str(path), "-o", str(unlinked)])
            # Without the flags of a sanitizer: its library isn't wanted.
            _call([COMPILER, "-shared", str(unlinked), *map(str, runtime), "-o", str(linked)])
            linked.replace(target)
    return target


def _runtime(name: str, flags: Sequence[str]) -> Path:
    """A part of the emulator itself, compiled once."""
    plain = tuple(flag for flag in flags if not flag.startswith("-fsanitize"))
    target = _folder() / f"{name}-{_key(_headers(), plain)}.o"
    return _once(target, [COMPILER, *plain, f"-I{INCLUDE}", "-c", str(INCLUDE / f"{name}.cpp")])


def _precompiled(source: str, flags: Sequence[str]) -> Path:
    """The folder of the header that a text begins with, compiled once: half of what a small kernel's compilation takes. One
    that was compiled with other settings g++ passes over, and reads the header itself."""
    name = source.split('"', 2)[1]
    folder = _folder() / f"headers-{_key(_headers(), tuple(flags))}"
    folder.mkdir(exist_ok=True)
    _once(folder / f"{name}.gch", [COMPILER, *flags, f"-I{INCLUDE}", "-x", "c++-header", str(INCLUDE / name)])
    return folder


def _once(target: Path, command: Sequence[str]) -> Path:
    """What the compiler makes, complete or not at all."""
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as made:
            path = Path(made) / target.name
            _call([*command, "-o", str(path)])
            path.replace(target)
    return target


@cache
def _headers() -> str:
    return "".join(path.read_text() for path in sorted(INCLUDE.iterdir()))


def _key(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


@cache
def _folder() -> Path:
    # An empty name is none: it would be the directory that the tests are started in.
    named = os.environ.get("PIE_EDGE_TEST_SIMT_CACHE")
    found = Path(named or Path(tempfile.gettempdir()) / f"pie-edge-simt-{os.getuid()}")
    found.mkdir(mode=0o700, parents=True, exist_ok=True)
    return found


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(done.stderr)


def driver() -> Path:
    """The library that stands in for the driver's."""
    source = Path(__file__).parent / "driver.cpp"
    target = _folder() / f"driver-{_key(source.read_text(), _headers())}" / "libcuda.so.1"
    target.parent.mkdir(exist_ok=True)
    # Nameless: NVRTC looks for a driver by its name, and must not find this one.
    command = [COMPILER, "-std=c++20", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    return _once(target, [*command, str(source)])


class _Extent(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class _Guarded(ctypes.Structure):
    """See ``include/guarded.h``."""

    _fields_ = (("place", ctypes.c_void_p), ("base", ctypes.c_void_p), ("room", ctypes.c_size_t))


class KernelError(RuntimeError):
    """What a kernel did wrong."""


class Library:
    """Compiled kernels, to be launched straight from a test."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.simt_message.restype = ctypes.c_char_p

    def schedule(self, order: int, seed: int = 1) -> None:
        self._library.simt_order(ctypes.c_uint(order), ctypes.c_ulonglong(seed))

    def limit(self, shared: int) -> None:
        """Bytes of shared memory that a block may have."""
        self._library.simt_shared(ctypes.c_size_t(shared))

    @contextmanager
    def guarded(self, nbytes: int, alignment: int) -> Iterator[Bytes]:
        """Memory of ones, whose end is the last that may be touched."""
        found = _Guarded()
        self._library.simt_allocate(ctypes.c_size_t(nbytes), ctypes.c_size_t(alignment), ctypes.byref(found))
        if not found.place:
            raise MemoryError(f"{nbytes} bytes for a kernel")
        try:
            yield np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(found.place))
        finally:
            self._library.simt_free(ctypes.byref(found))

    def launch(self, name: str, grid: Extent, block: int | Extent, *arguments: object, shared: int = 0) -> None:
        """Arrays go as their addresses, floats as float32, ints as 32-bit words, bytes as a structure. Raises KernelError."""
        held = [_argument(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * max(len(held), 1))(*[ctypes.addressof(one) for one in held])
        launched = getattr(self._library, f"simt_launch_{name}")
        extent = (block, 1, 1) if isinstance(block, int) else block
        launched.argtypes = [ctypes.c_void_p, _Extent, _Extent, ctypes.c_size_t]
        if launched(pointers, _Extent(*grid), _Extent(*extent), shared):
            raise KernelError(self._library.simt_message().decode())


def _argument(value: object) -> Any:
    if isinstance(value, bytes):
        return ctypes.create_string_buffer(value, len(value))
    if isinstance(value, float):
        return ctypes.c_float(value)
    if isinstance(value, int):
        return ctypes.c_uint32(value & 0xFFFFFFFF)
    address: Any = value.ctypes.data if hasattr(value, "ctypes") else value
    return ctypes.c_void_p(address)
