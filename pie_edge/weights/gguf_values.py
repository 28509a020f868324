"""The typed values of a GGUF header, read with every count and length checked before it is used.

Little endian throughout. A string is a u64 length and UTF-8 bytes; an array is a u32 element type, a u64 count and the
elements. Arrays are skipped on the first pass and decoded when somebody asks: a vocabulary is 262,144 strings.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from pie_edge.errors import BadCheckpoint
from pie_edge.weights.tensor import Source

_SCALARS = {
    0: ("u8", "<B"),
    1: ("i8", "<b"),
    2: ("u16", "<H"),
    3: ("i16", "<h"),
    4: ("u32", "<I"),
    5: ("i32", "<i"),
    6: ("f32", "<f"),
    7: ("bool", "<?"),
    10: ("u64", "<Q"),
    11: ("i64", "<q"),
    12: ("f64", "<d"),
}
BOOL, STRING, ARRAY = 7, 8, 9
_TYPES = {number: struct.Struct(code) for number, (_, code) in _SCALARS.items()}
_TYPE_NAMES = {number: name for number, (name, _) in _SCALARS.items()} | {
    STRING: "string",
    ARRAY: "array",
}

MAX_NAME = 65_535
"""Bytes of a key or a tensor name, as the format's specification has it for keys."""
MAX_ELEMENTS = 1 << 24
"""Elements of an array: an order of magnitude above any vocabulary, and walked in about a second."""
MAX_NESTING = 4

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """A position in a header. Every read names the field it is for, so that an error can."""

    def __init__(self, source: Source, position: int = 0) -> None:
        self.source = source
        self.position = position

    def bad(self, field: str, held: str, possible: str, at: int | None = None) -> NoReturn:
        where = self.position if at is None else at
        raise BadCheckpoint(
            f"{self.source.path}: {field} (byte {where}) {held}; {possible}. Fetch or convert the file again"
        )

    @property
    def left(self) -> int:
        return self.source.size - self.position

    def need(self, nbytes: int, field: str) -> None:
        if nbytes > self.left:
            self.bad(
                field,
                f"needs {nbytes} bytes",
                f"only {self.left} are left: the file is cut short or corrupt",
            )

    def scalar(self, layout: struct.Struct, field: str) -> Any:
        self.need(layout.size, field)
        (value,) = layout.unpack_from(self.source.data, self.position)
        self.position += layout.size
        return value

    def u32(self, field: str) -> int:
        return int(self.scalar(_U32, field))

    def u64(self, field: str) -> int:
        return int(self.scalar(_U64, field))

    def count(self, field: str, smallest: int, most: int = MAX_ELEMENTS) -> int:
        """A u64 count of things that take at least ``smallest`` bytes each: bounded by what is left of the file."""
        start = self.position
        count = self.u64(field)
        possible = min(most, self.left // smallest)
        if count > possible:
            self.bad(field, f"is {count}", f"at most {possible} fit", at=start)
        return count

    def string(self, field: str, most: int | None = None) -> str:
        start = self.position
        length = self.u64(f"length of {field}")
        possible = self.left if most is None else min(most, self.left)
        if length > possible:
            self.bad(
                f"length of {field}",
                f"is {length}",
                f"at most {possible} bytes are possible",
                at=start,
            )
        text = self.source.data[self.position : self.position + length]
        self.position += length
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            self.bad(
                field,
                f"is not UTF-8 ({error.reason} at its byte {error.start})",
                "text is required",
                at=start,
            )

    def value_type(self, field: str) -> int:
        start = self.position
        kind = self.u32(f"type of {field}")
        if kind not in _TYPE_NAMES:
            self.bad(
                f"type of {field}",
                f"is {kind}",
                f"types are 0…{max(_TYPE_NAMES)}",
                at=start,
            )
        return kind

    def value(self, kind: int, field: str) -> Any:
        """A string or scalar."""
        if kind == STRING:
            return self.string(field)
        start = self.position
        if kind == BOOL:
            self.check_bools(1, field)
        value = self.scalar(_TYPES[kind], field)
        # A NaN epsilon or rope base would poison every logit without a word.
        if isinstance(value, float) and math.isnan(value):
            self.bad(field, "is not a number", "a number is required", at=start)
        return value

    def array_head(self, field: str) -> tuple[int, int]:
        """Element type and count of an array; the count is possible in what is left of the file."""
        kind = self.value_type(f"elements of {field}")
        smallest = 8 if kind == STRING else 12 if kind == ARRAY else _TYPES[kind].size
        return kind, self.count(f"element count of {field}", smallest)

    def array(self, field: str) -> list[Any]:
        kind, count = self.array_head(field)
        if kind == STRING:
            return self._strings(count, field)
        if kind == ARRAY:
            return [self.array(field) for _ in range(count)]
        layout = struct.Struct(f"<{count}{_SCALARS[kind][1][1]}")
        values = list(layout.unpack_from(self.source.data, self.position))
        self.position += layout.size
        return values

    def _strings(self, count: int, field: str) -> list[str]:
        """Decode ``count`` strings that ``skip`` has walked over before, so their lengths are known to be good."""
        found, data, position, length_at = (
            [],
            self.source.data,
            self.position,
            _U64.unpack_from,
        )
        try:
            for _ in range(count):
                (length,) = length_at(data, position)
                position += 8
                found.append(data[position : position + length].decode())
                position += length
        except UnicodeDecodeError as error:
            self.bad(
                f"{field}[{len(found)}]",
                f"is not UTF-8 ({error.reason})",
                "text is required",
                at=position,
            )
        self.position = position
        return found

    def skip_array(self, field: str, depth: int = 1) -> None:
        """Walk over an array, checking its structure."""
        if depth > MAX_NESTING:
            self.bad(
                field,
                f"nests arrays {depth} deep",
                f"at most {MAX_NESTING} levels are possible",
            )
        kind, count = self.array_head(field)
        if kind == STRING:
            self._skip_strings(count, field)
        elif kind == ARRAY:
            for _ in range(count):
                self.skip_array(field, depth + 1)
        else:
            if kind == BOOL:
                self.check_bools(count, field)
            self.position += count * _TYPES[kind].size

    def _skip_strings(self, count: int, field: str) -> None:
        data, position, length_at, index = (
            self.source.data,
            self.position,
            _U64.unpack_from,
            0,
        )
        try:
            for index in range(count):  # noqa: B007  Read where it broke off.
                position += 8 + length_at(data, position)[0]
        except (struct.error, OverflowError):
            index -= 1  # It was the string before this one that led out of the file.
        if position > self.source.size or index < count - 1:
            self.bad(
                f"{field}[{index}]",
                "is longer than what is left of the file",
                "it is cut short or corrupt",
            )
        self.position = position

    def check_bools(self, count: int, field: str) -> None:
        self.need(count, field)
        wrong = self.source.data[self.position : self.position + count].translate(None, b"\0\1")
        if wrong:
            self.bad(field, f"holds {wrong[0]} as a truth value", "0 and 1 are possible")


class Metadata(Mapping[str, Any]):
    """Keys → Python values (int, float, bool, str, list). Arrays are decoded on first access, then kept."""

    def __init__(self, source: Source, values: dict[str, Any], arrays: dict[str, int]) -> None:
        """``arrays`` has the file position of each array that is not decoded yet; its key is in ``values`` too."""
        self._source = source
        self._values = values
        self._arrays = arrays

    def __getitem__(self, key: str) -> Any:
        position = self._arrays.get(key)
        if position is not None:
            self._values[key] = Cursor(self._source, position).array(key)
            self._arrays.pop(key, None)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values


def read_metadata(cursor: Cursor, count: int) -> Metadata:
    """``count`` keys with their values, from the cursor on."""
    values: dict[str, Any] = {}
    arrays: dict[str, int] = {}
    for index in range(count):
        start = cursor.position
        key = cursor.string(f"key {index} of {count}", MAX_NAME)
        if key in values:
            cursor.bad(
                f"key {index} of {count}",
                f"is {key!r} again",
                "a key may appear once",
                at=start,
            )
        kind = cursor.value_type(f"value of {key!r}")
        if kind == ARRAY:
            arrays[key] = cursor.position
            values[key] = None
            cursor.skip_array(repr(key))
        else:
            values[key] = cursor.value(kind, repr(key))
    return Metadata(cursor.source, values, arrays)
