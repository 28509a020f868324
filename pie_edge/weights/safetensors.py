"""Safetensors files: a mapped, lazy reader with its own checks of the header.

    header length u64 (little endian), JSON {name: {"dtype", "shape", "data_offsets"}}, data

Offsets count from the start of the data, which the tensors cover without holes or overlaps. A model may be split
over files that an index (``*.safetensors.index.json``) assigns the tensors to.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pie_edge.errors import BadCheckpoint, ModelNotFound, Unsupported
from pie_edge.weights.formats import SAFETENSORS_DTYPES
from pie_edge.weights.tensor import Source, Span, Tensor

MAX_HEADER = 100_000_000
"""Bytes of a header: the limit the format's own library has."""
MAX_JSON = 256_000_000
"""Bytes of any JSON file beside the weights; the largest tokenizers are a tenth of it."""
INDEX_SUFFIX = ".safetensors.index.json"

_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """Tensors of one file, or of all the files of an index."""

    tensors: Mapping[str, Tensor]
    sources: tuple[Source, ...]


def looks_like_safetensors(head: bytes) -> bool:
    """Whether a file whose first bytes these are is a safetensors file: a plausible length and an opening brace."""
    return len(head) > _LENGTH_BYTES and head[_LENGTH_BYTES : _LENGTH_BYTES + 1] == b"{"


def read_safetensors(path: Path) -> SafetensorsFile:
    """Open one safetensors file."""
    source = Source(path)
    try:
        start = _data_start(source)
        header = parse_object(bytes(source.view(_LENGTH_BYTES, start - _LENGTH_BYTES)), f"{path}: header")
        header.pop("__metadata__", None)
        tensors = {name: _tensor(source, start, name, info) for name, info in header.items()}
        _check_cover(source, start, tensors)
        return SafetensorsFile(tensors, (source,))
    except Exception:
        source.close()
        raise


def read_index(path: Path) -> SafetensorsFile:
    """Open the files that an index names, and check that each holds what the index says."""
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise BadCheckpoint(
            f"{path}: 'weight_map' is {type(weight_map).__name__}; a tensor → file name table is required"
        )
    names = sorted(set(weight_map.values()))
    for name in names:
        # An index comes from anywhere: it may only name files beside it.
        if Path(name).name != name or name in ("", "..") or "\\" in name or "\0" in name:
            raise BadCheckpoint(f"{path}: 'weight_map' names the file {name!r}; a plain file name is required")
    missing = [name for name in names if not (path.parent / name).exists()]
    if missing:
        raise ModelNotFound(f"{path} names {', '.join(missing)}, which is not beside it; fetch all files of the model")
    files: list[SafetensorsFile] = []
    try:
        files += (read_safetensors(path.parent / name) for name in names)
        return _merge(path, weight_map, files)
    except Exception:
        for file in files:
            file.sources[0].close()
        raise


def _merge(path: Path, weight_map: Mapping[str, str], files: list[SafetensorsFile]) -> SafetensorsFile:
    held = {file.sources[0].path.name: file.tensors for file in files}
    for name, where in weight_map.items():
        if name not in held[where]:
            raise BadCheckpoint(f"{path} says that {where} holds {name!r}, but it doesn't; fetch both again")
    tensors = {name: held[where][name] for name, where in weight_map.items()}
    return SafetensorsFile(tensors, tuple(file.sources[0] for file in files))


def _parse(text: bytes, what: str) -> Any:
    """JSON, in whose objects keys differ."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in found if names.count(name) > 1)
            raise BadCheckpoint(f"{what} has {twice!r} twice; names must differ")
        return found

    try:
        value = json.loads(text.decode(), object_pairs_hook=unique)
    except (
        ValueError,
        RecursionError,
    ) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors.
        raise BadCheckpoint(f"{what} is not JSON ({error}); fetch it again") from None
    return value


def parse_object(text: bytes, what: str) -> dict[str, Any]:
    """A JSON object whose keys differ; ``what`` names it in errors."""
    value = _parse(text, what)
    if not isinstance(value, dict):
        raise BadCheckpoint(f"{what} is a JSON {type(value).__name__}; an object is required")
    return value


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file beside the weights."""
    return parse_object(_read(path), str(path))


def read_list(path: Path) -> list[Any]:
    """A JSON list from a file beside the weights."""
    value = _parse(_read(path), str(path))
    if not isinstance(value, list):
        raise BadCheckpoint(f"{path} is a JSON {type(value).__name__}; a list is required")
    return value


def _read(path: Path) -> bytes:
    source = Source(path)
    try:
        if source.size > MAX_JSON:
            raise BadCheckpoint(f"{path} has {source.size} bytes; at most {MAX_JSON} are possible")
        return source.data[:]
    finally:
        source.close()


def _data_start(source: Source) -> int:
    if source.size < _LENGTH_BYTES:
        raise BadCheckpoint(
            f"{source.path} has {source.size} bytes; a header length takes {_LENGTH_BYTES}: fetch it again"
        )
    length = int.from_bytes(source.data[:_LENGTH_BYTES], "little")
    possible = min(MAX_HEADER, source.size - _LENGTH_BYTES)
    if not 2 <= length <= possible:
        raise BadCheckpoint(
            f"{source.path}: header length is {length}; 2…{possible} are possible: it is cut short or corrupt"
        )
    return _LENGTH_BYTES + length


def _tensor(source: Source, start: int, name: str, info: Any) -> Tensor:
    def bad(field: str, value: object, possible: str) -> BadCheckpoint:
        return BadCheckpoint(f"{source.path}: {field} of tensor {name!r} is {_brief(value)}; {possible}")

    if not isinstance(info, dict):
        raise bad("entry", info, "an object is required")
    dtype, shape, offsets = (
        info.get("dtype"),
        info.get("shape"),
        info.get("data_offsets"),
    )
    if not isinstance(dtype, str):
        raise bad("dtype", dtype, "a name is required")
    if dtype not in SAFETENSORS_DTYPES:
        known = ", ".join(SAFETENSORS_DTYPES)
        raise Unsupported(f"{source.path}: dtype of tensor {name!r} is {_brief(dtype)}; this build knows {known}")
    if not isinstance(shape, list) or not all(_is_count(dim) for dim in shape) or len(shape) > 8:
        raise bad("shape", shape, "a list of at most 8 whole numbers is required")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_count(offset) for offset in offsets):
        raise bad("data_offsets", offsets, "two whole numbers are required")
    begin, end = offsets
    if not begin <= end <= source.size - start:
        raise bad(
            "data_offsets",
            offsets,
            f"the file holds {source.size - start} bytes of data: it is cut short or corrupt",
        )
    nbytes = math.prod(shape) * SAFETENSORS_DTYPES[dtype]
    if end - begin != nbytes:
        raise bad("data_offsets", offsets, f"{dtype} {shape} takes {nbytes} bytes")
    return Tensor(name, tuple(shape), dtype, Span(source, start + begin, nbytes))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _check_cover(source: Source, start: int, tensors: Mapping[str, Tensor]) -> None:
    """The tensors cover the data: a hole would hide bytes, an overlap would be two readings of the same."""
    at, before = start, "the header"
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.span.offset, tensor.nbytes)):
        if tensor.span.offset != at:
            raise BadCheckpoint(
                f"{source.path}: tensor {tensor.name!r} starts at byte {tensor.span.offset}, but {before} ends at {at};"
                " tensors must follow each other"
            )
        at, before = at + tensor.nbytes, repr(tensor.name)
    if at != source.size:
        raise BadCheckpoint(
            f"{source.path}: the last tensor ends at byte {at}, the file has {source.size}; fetch it again"
        )
