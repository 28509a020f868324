"""Messages in a byte stream: each has its length before it, in four bytes, the highest first. A WebSocket frames them itself."""

from __future__ import annotations

from collections.abc import Iterator

from pie_edge.errors import ProtocolError
from pie_edge.protocol.codec import LONGEST

_HEAD = 4


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(_HEAD, "big") + message


class Splitter:
    """Whole messages out of the pieces that a stream comes in."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._data = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The messages that are whole now. Raises ProtocolError for one that is too long, before its bytes are kept."""
        self._data += piece
        at = 0
        try:
            while len(self._data) - at >= _HEAD:
                length = int.from_bytes(self._data[at : at + _HEAD], "big")
                if length > self._longest:
                    raise ProtocolError(f"a message of {length:,} bytes, the most is {self._longest:,}")
                if len(self._data) - at - _HEAD < length:
                    break
                at += _HEAD
                yield bytes(self._data[at : at + length])
                at += length
        finally:
            del self._data[:at]
