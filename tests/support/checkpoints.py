"""Small checkpoints that the weights tests write themselves, with the place of every header field."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

U8, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10
_CODES = {U8: "<B", 2: "<H", U32: "<I", 5: "<i", F32: "<f", BOOL: "<?", U64: "<Q", 12: "<d"}

Value = tuple[int, Any]
"""A GGUF type number and a value; of an array, its element type and elements: ``(ARRAY, (STRING, ["a", "b"]))``."""


@dataclass
class GgufBytes:
    """A GGUF file in the making. ``fields`` has (what, offset, size) of every number and length written."""

    data: bytearray = field(default_factory=bytearray)
    fields: list[tuple[str, int, int]] = field(default_factory=list)
    header_end: int = 0

    def number(self, what: str, code: str, value: float) -> None:
        packed = struct.pack(code, value)
        self.fields.append((what, len(self.data), len(packed)))
        self.data += packed

    def text(self, what: str, value: str | bytes) -> None:
        raw = value.encode() if isinstance(value, str) else value
        self.number(f"length of {what}", "<Q", len(raw))
        self.data += raw

    def value(self, what: str, kind: int, value: Any) -> None:
        if kind == STRING:
            self.text(what, value)
        elif kind == ARRAY:
            inner, items = value
            self.number(f"element type of {what}", "<I", inner)
            self.number(f"count of {what}", "<Q", len(items))
            for index, item in enumerate(items):
                self.value(f"{what}[{index}]", inner, item)
        else:
            self.number(what, _CODES[kind], value)


def gguf_bytes(
    metadata: dict[str, Value],
    tensors: dict[str, tuple[list[int], int, bytes]],
    alignment: int = 32,
    version: int = 3,
) -> GgufBytes:
    """``tensors``: name → (dims fastest first, type number, data)."""
    out = GgufBytes(bytearray(b"GGUF"), [("magic", 0, 4)])
    out.number("version", "<I", version)
    out.number("tensor count", "<Q", len(tensors))
    out.number("key count", "<Q", len(metadata))
    for key, (kind, value) in metadata.items():
        out.text(f"key {key}", key)
        out.number(f"type of {key}", "<I", kind)
        out.value(key, kind, value)
    offset = 0
    for name, (dims, number, data) in tensors.items():
        out.text(f"tensor name {name}", name)
        out.number(f"n_dims of {name}", "<I", len(dims))
        for axis, dim in enumerate(dims):
            out.number(f"dim {axis} of {name}", "<Q", dim)
        out.number(f"tensor type of {name}", "<I", number)
        out.number(f"offset of {name}", "<Q", offset)
        offset += -(-len(data) // alignment) * alignment
    out.header_end = len(out.data)
    for _, _, data in tensors.values():
        out.data += b"\0" * (-len(out.data) % alignment) + data
    return out


def small_gguf() -> GgufBytes:
    """A little of everything a header can hold, and three tensors of different encodings."""
    metadata: dict[str, Value] = {
        "general.architecture": (STRING, "llama"),
        "general.alignment": (U32, 32),
        "llama.block_count": (U32, 1),
        "llama.epsilon": (F32, 1e-5),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.add_bos": (BOOL, True),
        "tokenizer.tokens": (ARRAY, (STRING, ["<s>", "a", "héllo", ""])),
        "tokenizer.scores": (ARRAY, (F32, [0.0, -1.0, -2.0, -3.5])),
        "tokenizer.flags": (ARRAY, (BOOL, [True, False])),
        "nested": (ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["x"])])),
        "big": (U64, 1 << 63),
    }
    tensors = {
        "norm": ([32], 0, struct.pack("<32f", *range(32))),
        "matrix": ([64, 3], 3, bytes(range(120))),
        "half": ([2, 3, 4], 1, bytes(48)),
    }
    return gguf_bytes(metadata, tensors)


def safetensors_bytes(header: dict[str, Any] | bytes, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def small_safetensors() -> tuple[dict[str, Any], bytes]:
    """Header and data of two tensors."""
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    }
    return header, bytes(range(32))


def write(path: Path, data: bytes | bytearray) -> Path:
    path.write_bytes(data)
    return path
