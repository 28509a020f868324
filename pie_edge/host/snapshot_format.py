"""A context in a file: one layout for all backends, so that what one has computed another can go on with.

8 bytes    magic and version
4 bytes    length of the header
header     JSON: what it is of, and ``crc`` of all that follows
positions  u32 [token]
each state in the header's order, such as ``k.0`` and ``v.0``: [token][head][width], f16 or f32
recurrent state, where the model has such, f32: what the context's slots have, in the header's order of parts
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pie_edge.control.gone import Gone
from pie_edge.control.snapshot import Content, PageState, Recurrent

MAGIC = b"pie-kv\x00\x01"
_LENGTH = struct.Struct("<I")
_TYPES: dict[str, Any] = {"f16": np.dtype("<f2"), "f32": np.dtype("<f4"), "u32": np.dtype("<u4")}
_POSITIONS = "key_positions"


class DamagedError(Exception):
    """The bytes are no snapshot, or not a whole one."""


class MismatchError(Exception):
    """The snapshot is one of another model."""


@dataclass(frozen=True, slots=True)
class Model:
    """``fingerprint`` tells models apart; ``states`` is what a page on this device is made of, ``slots`` what a slot of recurrent
    state is."""

    name: str
    fingerprint: str
    states: tuple[PageState, ...]
    slots: tuple[PageState, ...] = ()

    @property
    def page_size(self) -> int:
        return next(state.shape[1] for state in self.states if state.name == _POSITIONS)

    @property
    def geometry(self) -> dict[str, list[int]]:
        """Heads and width of each state of keys or values."""
        return {state.name: list(_heads_and_width(state)) for state in self.states if state.name != _POSITIONS}

    @property
    def parts(self) -> dict[str, list[int]]:
        """The shape of each part of a slot."""
        return {state.name: list(state.shape[1:]) for state in self.slots}

    @property
    def slot_bytes(self) -> int:
        return sum(state.page_bytes for state in self.slots)


def encode(model: Model, content: Content, note: str) -> bytes:
    arrays = {state.name: _tokens(state, content, index, model) for index, state in enumerate(model.states)}
    kept = next(_TYPES[state.dtype].str for state in model.states if state.name != _POSITIONS)
    state = content.state
    kept_state = [] if state is None else [state.head, state.folded]
    body = b"".join([arrays[_POSITIONS].tobytes(), *(arrays[name].tobytes() for name in model.geometry), *kept_state])
    header = {
        "model": model.name,
        "fingerprint": model.fingerprint,
        "geometry": model.geometry,
        "parts": model.parts,
        "state": None if state is None else {"end": state.end, "base": state.base, "folded": bool(state.folded)},
        "dtype": kept,
        "length": content.length,
        "hidden": [place for place in range(content.length) if _bit(content.hidden, place, model.page_size)],
        "history": list(content.history),
        "gone": list(content.gone),
        "note": note,
        "crc": zlib.crc32(body),
    }
    head = json.dumps(header).encode()
    return MAGIC + _LENGTH.pack(len(head)) + head + body


def decode(model: Model, data: bytes) -> tuple[Content, str]:
    """The content for this device, and the note. Raises DamagedError or MismatchError."""
    header, body = _parts(data)
    try:
        _check(model, header, body)
        length, dtype = int(header["length"]), np.dtype(header["dtype"])
        hidden, history = {int(place) for place in header["hidden"]}, tuple(int(one) for one in header["history"])
        gone = tuple(Gone(*map(int, one)) for one in header.get("gone", ()))
        note = str(header["note"])
        state = _state(model, header, body)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"its header is wrong ({type(error).__name__}: {error})") from None
    arrays, offset = {_POSITIONS: np.frombuffer(body, "<u4", length)}, 4 * length
    for name, (heads, width) in model.geometry.items():
        count = length * heads * width
        arrays[name] = np.frombuffer(body, dtype, count, offset).reshape(length, heads, width)
        offset += count * dtype.itemsize
    size = model.page_size
    pages = -(-length // size)
    parts = [_pages(state, arrays[state.name], pages, size) for state in model.states]
    content = Content(
        length,
        tuple(b"".join(part[page].tobytes() for part in parts) for page in range(pages)),
        tuple(sum(1 << slot for slot in range(size) if page * size + slot in hidden) for page in range(pages)),
        history,
        state=state,
        gone=gone,
    )
    return content, note


def _parts(data: bytes) -> tuple[Mapping[str, Any], bytes]:
    if data[: len(MAGIC)] != MAGIC:
        raise DamagedError("it doesn't begin as a snapshot of this version does")
    start = len(MAGIC) + _LENGTH.size
    try:
        (length,) = _LENGTH.unpack_from(data, len(MAGIC))
        header = json.loads(data[start : start + length])
    except (struct.error, ValueError):
        raise DamagedError("its header can't be read") from None
    if not isinstance(header, dict):
        raise DamagedError("its header can't be read")
    return header, data[start + length :]


def _check(model: Model, header: Mapping[str, Any], body: bytes) -> None:
    alike = header["fingerprint"] == model.fingerprint and header["geometry"] == model.geometry
    if not alike or header.get("parts", {}) != model.parts:
        raise MismatchError(f"it is of the model {header['model']!r} ({header['fingerprint']:.12})")
    if header["dtype"] not in ("<f2", "<f4"):
        raise DamagedError(f"its values are {header['dtype']!r}")
    values = sum(heads * width for heads, width in model.geometry.values())
    slots = _slots(header)
    if model.slots and bool(slots) != bool(header["length"]):
        raise DamagedError(f"it is of {header['length']} tokens, and has {slots} slots of recurrent state")
    expected = header["length"] * (4 + values * np.dtype(header["dtype"]).itemsize) + slots * model.slot_bytes
    if len(body) != expected:
        raise DamagedError(f"it has {len(body):,} bytes of keys and values where {expected:,} belong")
    if zlib.crc32(body) != header["crc"]:
        raise DamagedError("its keys and values were changed after they were written")


def _slots(header: Mapping[str, Any]) -> int:
    """How many slots there are: the head's, and the folded one if there is anything in that."""
    state = header.get("state")
    return 0 if state is None else 1 + int(state["folded"])


def _state(model: Model, header: Mapping[str, Any], body: bytes) -> Recurrent | None:
    slots, size = _slots(header), model.slot_bytes
    if not slots:
        return None
    end, base = int(header["state"]["end"]), int(header["state"]["base"])
    if not 0 <= base <= header["length"] <= end:
        raise DamagedError(f"its recurrent state is of {base} to {end} tokens, and it of {header['length']}")
    kept = body[len(body) - slots * size :]
    return Recurrent(end, base, kept[:size], kept[size:])


def _heads_and_width(state: PageState) -> tuple[int, int]:
    """K is [page][head][width / v][slot][v], V is [page][head][slot][width]."""
    shape = state.shape
    return (shape[1], shape[2] * shape[4]) if len(shape) == 5 else (shape[1], shape[3])


def _tokens(state: PageState, content: Content, index: int, model: Model) -> Any:
    """A state's part of all pages, token by token: [token][head][width], or [token] of the positions."""
    dtype = _TYPES[state.dtype]
    sizes = [one.page_bytes for one in model.states]
    start = sum(sizes[:index])
    raw = b"".join(page[start : start + sizes[index]] for page in content.pages)
    pages = np.frombuffer(raw, dtype).reshape(len(content.pages), *state.shape[1:])
    if len(state.shape) == 5:
        pages = pages.transpose(0, 3, 1, 2, 4)
    elif len(state.shape) == 4:
        pages = pages.transpose(0, 2, 1, 3)
    rest = () if len(state.shape) == 2 else _heads_and_width(state)
    return np.ascontiguousarray(pages.reshape(-1, *rest)[: content.length])


def _pages(state: PageState, tokens: Any, count: int, size: int) -> Sequence[Any]:
    """The inverse: a piece for each page."""
    filled = np.zeros((count * size, *tokens.shape[1:]), _TYPES[state.dtype])
    filled[: len(tokens)] = tokens
    if len(state.shape) == 2:
        return list(filled.reshape(count, size))
    heads, width = _heads_and_width(state)
    if len(state.shape) == 4:
        return list(filled.reshape(count, size, heads, width).transpose(0, 2, 1, 3))
    vector = state.shape[4]
    return list(filled.reshape(count, size, heads, width // vector, vector).transpose(0, 2, 3, 1, 4))


def _bit(hidden: Sequence[int], place: int, size: int) -> bool:
    return bool(hidden[place // size] >> place % size & 1)
