"""Kernels of ``mx.fast.metal_kernel``: the text that MLX gives to Metal's compiler, what it should be, and what g++ and clang
get of it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx

from pie_edge.backends.metal.launch import Launch, on_metal
from tests.simt import build

CHECKER = "clang"
SHARED = 32 << 10
"""Bytes of threadgroup memory that every Apple GPU has."""
_TYPES = {
    mx.float32: "float",
    mx.float16: "float16_t",
    mx.bfloat16: "bfloat16_t",
    mx.uint32: "uint32_t",
    mx.int32: "int32_t",
    mx.uint8: "uint8_t",
}
_PLACES = {
    "simdgroup_index_in_threadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
}
"""What a thread is told of where it is, if its text names it, in the order of parameters."""
_NAME = re.compile(r"\[\[kernel\]\] void (\w+)\(")
_INSTANCE = re.compile(r"\ntemplate \[\[host_name.*decltype\((.*?)\) .*\n")
_PLACE = re.compile(r",\s*uint3? \w+ \[\[(?!buffer)\w+\]\]")
_ATTRIBUTE = re.compile(r"\s*\[\[[^\]]*\]\]\s*")
_ARRAY = re.compile(r"^(\s*)threadgroup (?=[\w ]+(?:\[[^\]]+\])+;)", re.MULTILINE)


def captured(launch: Launch) -> str:
    """What MLX makes of it. It prints that to C's standard output where a function is exported."""

    def call(*inputs: mx.array) -> Any:
        return on_metal(
            Launch(launch.kernel, inputs, launch.outputs, launch.grid, launch.threads, launch.template), verbose=True
        )

    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryFile() as printed:
        sys.stdout.flush()
        before = os.dup(1)
        os.dup2(printed.fileno(), 1)
        try:
            mx.export_function(str(Path(made) / "kernel.mlxfn"), call, *launch.inputs)
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(before, 1)
            os.close(before)
        printed.seek(0)
        return printed.read().decode().split("```\n")[1]


def name_of(text: str) -> str:
    """Of a captured text's kernel, which MLX names after what it was made for."""
    found = _NAME.search(text)
    assert found is not None, text
    return found[1]


def expected(launch: Launch, name: str) -> str:
    """The kernel's own text in the signature that MLX's rules give it."""
    kernel, source = launch.kernel, launch.kernel.source
    parameters = [*(text for text, _ in _inputs(launch))]
    parameters += [
        f"device {_TYPES[dtype]}* {output}" for output, (_, dtype) in zip(kernel.outputs, launch.outputs, strict=True)
    ]
    buffers = [f"  {text} [[buffer({number})]]" for number, text in enumerate(parameters)]
    places = [f"  {kind} {place} [[{place}]]" for place, kind in _PLACES.items() if place in source]
    constants = ", ".join(f"{_kind(value)} {constant}" for constant, value in launch.template)
    head = f"template <{constants}>\n" if constants else ""
    joined = ",\n".join([*buffers, *places])
    text = f"{kernel.header}{head}[[kernel]] void {name}(\n{joined}) {{\n{source}\n}}\n\n"
    if constants:
        instance = f"{name}<{', '.join(map(_constant, dict(launch.template).values()))}>"
        text += f'template [[host_name("{name}")]] [[kernel]] decltype({instance}) {instance};\n\n'
    return text


def _inputs(launch: Launch) -> Iterator[tuple[str, mx.array | tuple[int, ...]]]:
    """Each input's parameters, with what is in them. None is so small that MLX would make a constant of it."""
    for name, array in zip(launch.kernel.inputs, launch.inputs, strict=True):
        yield f"const device {_TYPES[array.dtype]}* {name}", array
        if f"{name}_shape" in launch.kernel.source:
            yield f"const constant int* {name}_shape", array.shape


def _kind(value: Any) -> str:
    return "typename" if isinstance(value, mx.Dtype) else "bool" if isinstance(value, bool) else "int"


def _constant(value: Any) -> str:
    return _TYPES[value] if isinstance(value, mx.Dtype) else str(int(value))


def for_emulator(text: str) -> str:
    """For g++: a captured text whose arrays of threadgroups are in the emulator's arena, with a way in."""
    name, instance = name_of(text), _INSTANCE.search(text)
    body = _ATTRIBUTE.sub(" ", _PLACE.sub("", _INSTANCE.sub("\n", text)))
    body = re.sub(r"\bthreadgroup (?=\w+\*)", "", build.arena_arrays(body))
    return f'#include "metal_builtins.h"\n#line 1 "{name}"\n{body}\nSIMT_METAL(({instance[1] if instance else name}))\n'


def arguments(launch: Launch) -> list[mx.array | tuple[int, ...]]:
    """What is in the parameters before the outputs."""
    return [value for _, value in _inputs(launch)]


def checked(text: str) -> str:
    """What clang says of a captured text's address spaces and types, or nothing."""
    body = _ATTRIBUTE.sub(" ", _ARRAY.sub(r"\1static threadgroup ", text))
    # Halves are a type of this processor's only where it computes with them.
    flags = ("-std=c++17", "-fsyntax-only", "-nostdinc", "-mavx512fp16", "-w", "-ferror-limit=3", f"-I{build.INCLUDE}")
    command = [CHECKER, *flags, "-include", "metal_spaces.h", "-x", "c++", "-"]
    return subprocess.run(command, input=body, capture_output=True, text=True, check=False).stderr


def can_check() -> bool:
    return shutil.which(CHECKER) is not None
