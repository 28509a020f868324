"""A kernel's WGSL, and what it is bound to and told: read from the text, so that it is written down once."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from pie_edge.backends.wgpu.templates import constant_names, expand

_BINDING = re.compile(r"@group\(0\) @binding\((\d+)\) var<(storage, read|storage, read_write|uniform)> (\w+):")
_PARAMS = re.compile(r"struct Params \{(.*?)\n\}", re.DOTALL)
_FIELD = re.compile(r"^\s*(\w+): (u32|i32|f32),", re.MULTILINE)
_KINDS = {"storage, read": "read-only-storage", "storage, read_write": "storage", "uniform": "uniform"}
_FORMATS = {"u32": "I", "i32": "i", "f32": "f"}
_SUBGROUPS = re.compile(r"@builtin\((subgroup_|num_subgroups)")


@dataclass(frozen=True, slots=True)
class Slot:
    """A binding of group 0. ``kind`` is WebGPU's: read-only-storage, storage or uniform."""

    number: int
    kind: str
    name: str


@dataclass(frozen=True)
class Shader:
    """A compute shader with the entry point ``main``; its parameters, if it has some, are binding 0 of group 1."""

    name: str
    code: str = field(repr=False)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.code.encode()).hexdigest()

    @property
    def standard(self) -> str:
        """The code as browsers want it. wgpu-native knows subgroups' operations, but refuses the word for them."""
        return f"enable subgroups;\n{self.code}" if _SUBGROUPS.search(self.code) else self.code

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        found = _BINDING.findall(self.code)
        return tuple(Slot(int(number), _KINDS[kind], name) for number, kind, name in found)

    @cached_property
    def _fields(self) -> tuple[tuple[str, str], ...]:
        block = _PARAMS.search(self.code)
        return tuple(_FIELD.findall(block[1])) if block else ()

    def params(self, given: Mapping[str, int | float]) -> bytes:
        """Its parameters as they lie in a uniform buffer. Every field must be given, and nothing else."""
        names = [name for name, _ in self._fields]
        if set(names) != set(given):
            raise ValueError(f"{self.name} takes parameters {names}, got {sorted(given)}")
        form = "<" + "".join(_FORMATS[kind] for _, kind in self._fields)
        return struct.pack(form, *(_word(given[name], kind) for name, kind in self._fields))


def _word(value: int | float, kind: str) -> int | float:
    return float(value) if kind == "f32" else int(value) & 0xFFFFFFFF if kind == "u32" else int(value)


def shader(name: str, **constants: Any) -> Shader:
    return _shader(name, tuple(constants.items()))


@lru_cache(maxsize=512)
def _shader(name: str, constants: tuple[tuple[str, Any], ...]) -> Shader:
    return Shader(name, expand(name, dict(constants)))


def node_shader(name: str, constants: tuple[int | bool, ...], more: Mapping[str, Any]) -> Shader:
    """A kernel of an epilogue's node, whose constants are told in the order in which its source lists them."""
    names = constant_names(f"nodes/{name}")
    return shader(f"nodes/{name}", **dict(zip(names, constants, strict=True)), **more)
