"""GGUF files, versions 2 and 3, little endian: a mapped, lazy reader that believes no field before it is checked.

    magic "GGUF", version u32, tensor count u64, key count u64
    keys and values, then tensor infos (name, dims fastest first, type, offset), padding to the alignment, data

A model may be split over ``name-00001-of-0000N.gguf`` files; any of them opens the whole.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pie_edge.errors import BadCheckpoint, ModelNotFound, Unsupported
from pie_edge.weights.formats import BLOCKS, GGML_NAMES, GGML_REMOVED
from pie_edge.weights.gguf_values import MAX_NAME, Cursor, Metadata, read_metadata
from pie_edge.weights.tensor import Source, Span, Tensor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4

_SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class GgufFile:
    """Metadata of the first file and the tensors of all its parts."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class _Info:
    """A tensor info as it stands in the header; ``offset`` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    encoding: str
    offset: int
    nbytes: int


def read_gguf(path: Path) -> GgufFile:
    """Open a GGUF file, and its other parts if it is split."""
    first = _read_file(path)
    count = _whole(first.metadata, "split.count", 1, path)
    if count == 1:
        return first
    try:
        return _join(path, count, first)
    except Exception:
        first.sources[0].close()
        raise


def _read_file(path: Path) -> GgufFile:
    source = Source(path)
    try:
        cursor = Cursor(source)
        tensor_count = _read_preamble(cursor)
        # The smallest key is an empty name, a type and one byte.
        metadata = read_metadata(cursor, cursor.count("key count", smallest=13))
        # The smallest info is an empty name, the number of dims, one of them, a type and an offset.
        if tensor_count > cursor.left // 32:
            cursor.bad(
                "tensor count",
                f"is {tensor_count}",
                f"at most {cursor.left // 32} fit",
                at=8,
            )
        alignment = _alignment(metadata, path)
        infos = [_read_info(cursor, index, tensor_count, alignment) for index in range(tensor_count)]
        start = -(-cursor.position // alignment) * alignment
        return GgufFile(metadata, _place(infos, source, start), (source,))
    except Exception:
        source.close()
        raise


def _read_preamble(cursor: Cursor) -> int:
    """Check magic and version; return the tensor count."""
    path = cursor.source.path
    cursor.need(24, "the header")
    magic = cursor.source.data[:4]
    if magic != MAGIC:
        cursor.bad("magic", f"is {magic!r}", f"a GGUF file starts with {MAGIC!r}")
    cursor.position = 4
    version = cursor.u32("version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        if swapped in VERSIONS:
            raise Unsupported(f"{path} is a big-endian GGUF file; only little-endian ones are read: convert it")
        raise Unsupported(
            f"{path} is GGUF version {version}; versions 2 and 3 are read: convert it with a current tool"
        )
    return cursor.u64("tensor count")


def _whole(metadata: Mapping[str, Any], key: str, default: int, path: Path) -> int:
    value = metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadCheckpoint(f"{path}: {key!r} is {value!r}; a whole number above 0 is required")
    return value


def _alignment(metadata: Metadata, path: Path) -> int:
    alignment = _whole(metadata, "general.alignment", DEFAULT_ALIGNMENT, path)
    if alignment & (alignment - 1) or alignment > 1 << 31:
        raise BadCheckpoint(f"{path}: 'general.alignment' is {alignment}; a power of two up to 2³¹ is required")
    return alignment


def _read_info(cursor: Cursor, index: int, count: int, alignment: int) -> _Info:
    name = cursor.string(f"name of tensor {index} of {count}", MAX_NAME)
    dims_at = cursor.position
    n_dims = cursor.u32(f"number of dims of tensor {name!r}")
    if not 1 <= n_dims <= MAX_DIMS:
        cursor.bad(
            f"number of dims of tensor {name!r}",
            f"is {n_dims}",
            f"1…{MAX_DIMS} are possible",
            at=dims_at,
        )
    dims = [cursor.u64(f"dim {axis} of tensor {name!r}") for axis in range(n_dims)]
    encoding = _read_encoding(cursor, name)
    block = BLOCKS[encoding]
    size = math.prod(dims)
    # Whether so much can be there is checked before anything is computed from it or allocated for it.
    if size < 1 or size // block.weights * block.nbytes > cursor.source.size:
        cursor.bad(
            f"dims of tensor {name!r}",
            f"are {dims}",
            f"the whole file has {cursor.source.size} bytes: it is cut short or corrupt",
            at=dims_at,
        )
    if dims[0] % block.weights:
        possible = f"{encoding} needs rows that are a multiple of {block.weights}"
        cursor.bad(f"dims of tensor {name!r}", f"are {dims}", possible, at=dims_at)
    offset_at = cursor.position
    offset = cursor.u64(f"offset of tensor {name!r}")
    if offset % alignment:
        possible = f"a multiple of the alignment {alignment} is required"
        cursor.bad(f"offset of tensor {name!r}", f"is {offset}", possible, at=offset_at)
    return _Info(
        name,
        tuple(reversed(dims)),
        encoding,
        offset,
        size // block.weights * block.nbytes,
    )


def _read_encoding(cursor: Cursor, name: str) -> str:
    number = cursor.u32(f"type of tensor {name!r}")
    if number in GGML_NAMES:
        return GGML_NAMES[number]
    what = f"{cursor.source.path}: tensor {name!r} has type {number}"
    if number in GGML_REMOVED:
        raise Unsupported(f"{what} ({GGML_REMOVED[number]}), which its makers withdrew; quantise the model again")
    raise Unsupported(
        f"{what}, which this build doesn't know; known are 0…{max(GGML_NAMES)}: update, or fetch the file again"
    )


def _place(infos: list[_Info], source: Source, start: int) -> dict[str, Tensor]:
    """Tensors by name; each lies inside the file, and no two share a byte."""
    tensors: dict[str, Tensor] = {}
    for info in infos:
        if info.name in tensors:
            raise BadCheckpoint(f"{source.path}: tensor {info.name!r} is there twice; names must differ")
        if start + info.offset + info.nbytes > source.size:
            raise BadCheckpoint(
                f"{source.path}: tensor {info.name!r} ends at byte {start + info.offset + info.nbytes}, the file has "
                f"{source.size}; it is cut short or corrupt, fetch it again"
            )
        span = Span(source, start + info.offset, info.nbytes)
        tensors[info.name] = Tensor(info.name, info.shape, info.encoding, span)
    by_offset = sorted(tensors.values(), key=lambda tensor: tensor.span.offset)
    for before, after in itertools.pairwise(by_offset):
        if before.span.offset + before.nbytes > after.span.offset:
            raise BadCheckpoint(
                f"{source.path}: tensor {before.name!r} ends at byte {before.span.offset + before.nbytes}, "
                f"{after.name!r} starts at {after.span.offset}; tensors may not overlap"
            )
    return tensors


def split_paths(path: Path) -> tuple[Path, ...]:
    """All parts of a split model that ``path`` is one of by its name; just ``path`` otherwise."""
    match = _SPLIT_NAME.fullmatch(path.name)
    if match is None:
        return (path,)
    count = int(match["count"])
    return tuple(path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1))


def _join(path: Path, count: int, given: GgufFile) -> GgufFile:
    """Read the other parts of a split model; metadata is the first part's."""
    paths = split_paths(path)
    if len(paths) != count:
        wanted = f"NAME-00001-of-{count:05d}.gguf"
        raise BadCheckpoint(f"{path} is one of {count} parts by its 'split.count'; name the parts {wanted} and so on")
    missing = [part.name for part in paths if not part.exists()]
    if missing:
        raise ModelNotFound(
            f"{path} is one of {count} parts, and {', '.join(missing)} is not beside it; fetch all parts"
        )
    parts: list[GgufFile] = []
    try:
        parts += (given if part == path else _read_file(part) for part in paths)
        return _merge(path, parts)
    except Exception:
        for part in parts:
            part.sources[0].close()
        raise


def _merge(path: Path, parts: list[GgufFile]) -> GgufFile:
    tensors: dict[str, Tensor] = {}
    for number, part in enumerate(parts):
        where = part.sources[0].path
        if part.metadata.get("split.no") != number or part.metadata.get("split.count") != len(parts):
            held = f"'split.no' {part.metadata.get('split.no')!r} of 'split.count' {part.metadata.get('split.count')!r}"
            raise BadCheckpoint(f"{where} has {held}; by its name it is {number} of {len(parts)}")
        again = tensors.keys() & part.tensors.keys()
        if again:
            raise BadCheckpoint(f"{where}: tensor {min(again)!r} is in another part as well; names must differ")
        tensors |= part.tensors
    stated = parts[0].metadata.get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        raise BadCheckpoint(
            f"{path}: 'split.tensors.count' is {stated!r}, its parts hold {len(tensors)}; fetch them again"
        )
    return GgufFile(parts[0].metadata, tensors, tuple(part.sources[0] for part in parts))
