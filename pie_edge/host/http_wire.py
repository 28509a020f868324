"""One exchange of HTTP/1.1 (RFC 9112) over asyncio's streams: a request goes out, one whole answer comes in, the connection ends.

Our own, because a client of the standard library's would block the thread that all guests share, and in a thread of its own it
would wait for Python's lock beside a busy loop.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from dataclasses import dataclass

from pie_edge.errors import HttpError

Headers = tuple[tuple[str, str], ...]
_LONGEST_HEAD = 64 * 1024
_LONGEST_LINE = 8192  # of a chunk's size
_MOST_INTERIM = 10  # answers of status 1xx before the real one
_WITHOUT_BODY = {204, 304}
_HEXADECIMAL = re.compile(rb"[0-9A-Fa-f]{1,16}")


@dataclass(frozen=True, slots=True)
class Answer:
    """Header names are in lower case."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known == name), None)


async def exchange(
    host: str, port: int, tls: ssl.SSLContext | None, request: bytes, *, has_body: bool, most: int
) -> Answer:
    """Sends the bytes of a request and reads its answer, with a body of at most ``most`` bytes; a HEAD's has none.

    Raises HttpError for what is no HTTP or too long, OSError and SSLError for what the network says.
    """
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=_LONGEST_HEAD, happy_eyeballs_delay=0.25)
    try:
        writer.write(request)
        await writer.drain()
        return await _Reading(reader, most).answer(has_body)
    except asyncio.LimitOverrunError:
        raise HttpError(f"the head of the answer is longer than {_LONGEST_HEAD:,} bytes") from None
    except asyncio.IncompleteReadError as error:
        raise HttpError(f"the connection ended in the middle of the answer, after {error.partial[-80:]!r}") from None
    finally:
        # Not waited for: a peer that doesn't close its side would hold us up.
        writer.transport.abort()


class _Reading:
    def __init__(self, reader: asyncio.StreamReader, most: int) -> None:
        self._reader = reader
        self._most = most

    async def answer(self, has_body: bool) -> Answer:
        for _ in range(_MOST_INTERIM):
            status, headers = _head(await self._reader.readuntil(b"\r\n\r\n"))
            if status >= 200:
                known = dict(headers)
                empty = not has_body or status in _WITHOUT_BODY
                return Answer(status, headers, b"" if empty else await self._body(known))
        raise HttpError(f"{_MOST_INTERIM} interim answers came, and no answer")

    async def _body(self, headers: dict[str, str]) -> bytes:
        coding = headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked":
                raise HttpError(f"the answer is sent as {coding!r}, which isn't understood")
            return await self._chunks()
        length = headers.get("content-length")
        if length is None:
            return await self._rest()
        if not length.isascii() or not length.isdigit():
            raise HttpError(f"the answer says that its length is {length[:80]!r}")
        self._check(int(length))
        return await self._reader.readexactly(int(length))

    async def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            line = await self._line()
            size = _chunk_size(line)
            if size == 0:
                break
            self._check(len(body) + size)
            body += await self._reader.readexactly(size)
            if await self._reader.readexactly(2) != b"\r\n":
                raise HttpError("a chunk of the answer is longer than it says")
        while await self._line():
            pass  # trailers
        return bytes(body)

    async def _line(self) -> bytes:
        line = await self._reader.readuntil(b"\r\n")
        if len(line) > _LONGEST_LINE:
            raise HttpError(f"a line of the answer is longer than {_LONGEST_LINE:,} bytes")
        return line[:-2]

    async def _rest(self) -> bytes:
        """Until the connection ends."""
        body = bytearray()
        while piece := await self._reader.read(64 * 1024):
            body += piece
            self._check(len(body))
        return bytes(body)

    def _check(self, length: int) -> None:
        if length > self._most:
            raise HttpError(f"the answer has more than {self._most:,} bytes, the most that is allowed; ask for less")


def _head(data: bytes) -> tuple[int, Headers]:
    first, *lines = data[:-4].decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not status.isascii() or not status.isdigit() or rest[3:4].strip():
        raise HttpError(f"the answer begins with {first[:80]!r}, which is no HTTP")
    headers: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(f"the answer has the header {line[:80]!r}, which is no HTTP")
        headers.append((name.lower(), value.strip()))
    lengths = {value for name, value in headers if name == "content-length"}
    if len(lengths) > 1:
        raise HttpError(f"the answer says two lengths: {', '.join(sorted(lengths))[:80]}")
    return int(status), tuple(headers)


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not _HEXADECIMAL.fullmatch(digits):
        raise HttpError(f"a chunk of the answer begins with {line[:80]!r}, which is no length")
    return int(digits, 16)
