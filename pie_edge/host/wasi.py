"""The whole outside of a guest, as far as WASI goes: clocks, random bytes, and two streams that end at the host.

wasmtime's own WASI blocks the thread that all guests share when one of them sleeps, and its asynchronous form needs a Tokio
runtime that Python can't give it. An inferlet has no files, sockets or environment anyway, so what is left is small enough to
be written out here, where it can be read: what isn't in this table can't be reached.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from wasmtime.component import Linker, ResourceType

from pie_edge.host.wasm.abi import Failed
from pie_edge.host.wasm.imports import Imports

VERSION = "0.2.9"
POLLABLE, STREAM_ERROR, INPUT, OUTPUT, NETWORK = range(101, 106)
RESOURCES = {number: ResourceType.host(number) for number in (POLLABLE, STREAM_ERROR, INPUT, OUTPUT, NETWORK)}
STDIN, STDOUT, STDERR = range(3)
_ALWAYS = 0  # the pollable of a stream: ready at all times
_WRITABLE = 64 * 1024
_MOST_TIMERS = 10_000
_LONGEST_READ = 2**20  # random bytes in one call


class GuestExitError(Exception):
    """The guest ended its process."""

    def __init__(self, ok: bool) -> None:
        super().__init__(f"the program ended its process with status {0 if ok else 1}")


class Outside:
    """WASI's state of one guest."""

    def __init__(self, write: Callable[[int, str], None]) -> None:
        self._write = write
        self._decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in (STDOUT, STDERR)}
        self._deadlines: dict[int, int] = {_ALWAYS: 0}
        self._next = 1

    def write(self, stream: int, data: bytes) -> None:
        text = self._decoders[stream].decode(data)
        if text:
            self._write(stream, text)

    def timer(self, deadline: int) -> int:
        """A pollable that is ready at ``deadline``, in nanoseconds of the monotonic clock."""
        if len(self._deadlines) > _MOST_TIMERS:
            raise ValueError(f"{_MOST_TIMERS} timers are alive at once")
        number, self._next = self._next, self._next + 1
        self._deadlines[number] = deadline
        return number

    def drop(self, pollable: int) -> None:
        if pollable != _ALWAYS:
            self._deadlines.pop(pollable, None)

    def ready(self, pollables: list[int]) -> list[int]:
        now = time.monotonic_ns()
        return [index for index, pollable in enumerate(pollables) if self._deadlines[pollable] <= now]

    def delay(self, pollables: list[int]) -> float:
        """Seconds until the first of them is ready."""
        return max(0.0, (min(self._deadlines[one] for one in pollables) - time.monotonic_ns()) / 1e9)


class Insider(Protocol):
    """A guest, as WASI sees it."""

    outside: Outside
    wake: Callable[[], None]


class _Sleep:
    """A guest waiting for its timers; what it gets is asked for when they are due."""

    def __init__(self, guest: Insider, seconds: float, answer: Callable[[], Any]) -> None:
        self._answer = answer
        self._guest = guest
        self._over = False
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end)

    def _end(self) -> None:
        self._over = True
        self._guest.wake()

    def done(self) -> bool:
        return self._over

    def result(self) -> Any:
        return self._answer()

    def cancel(self) -> None:
        self._timer.cancel()


def _poll(guest: Insider, pollables: list[int]) -> Any:
    outside = guest.outside
    if not pollables:
        raise ValueError("a poll of nothing")
    return outside.ready(pollables) or _Sleep(guest, outside.delay(pollables), lambda: outside.ready(pollables) or [0])


def _block(guest: Insider, pollable: int) -> Any:
    outside = guest.outside
    return None if outside.ready([pollable]) else _Sleep(guest, outside.delay([pollable]), lambda: None)


def _write(guest: Insider, stream: int, data: bytes) -> None:
    guest.outside.write(stream, data)


def _exit(guest: Insider, status: Any) -> None:
    raise GuestExitError(not isinstance(status, Failed))


def _random(guest: Insider, count: int) -> bytes:
    if count > _LONGEST_READ:
        raise ValueError(f"{count} random bytes were asked for at once, the most is {_LONGEST_READ}")
    return os.urandom(count)


def _datetime(nanoseconds: int) -> tuple[int, int]:
    return divmod(nanoseconds, 10**9)


def _denied(guest: Insider, *arguments: Any) -> Failed:
    return Failed("access-denied")


def _drop_pollable(guest: Insider, pollable: int) -> None:
    guest.outside.drop(pollable)


_CLOSED = Failed(("closed", None))

# interface → (its resources, its functions); a function that may sleep is marked with True.
_TABLE: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "io/poll": (
        {"pollable": POLLABLE},
        {"poll": (_poll, True), "[method]pollable.block": (_block, True)},
    ),
    "io/error": ({"error": STREAM_ERROR}, {}),
    "io/streams": (
        {"input-stream": INPUT, "output-stream": OUTPUT, "pollable": POLLABLE, "error": STREAM_ERROR},
        {
            "[method]input-stream.read": lambda guest, stream, count: _CLOSED,
            "[method]input-stream.subscribe": lambda guest, stream: _ALWAYS,
            "[method]output-stream.check-write": lambda guest, stream: _WRITABLE,
            "[method]output-stream.write": _write,
            "[method]output-stream.blocking-write-and-flush": _write,
            "[method]output-stream.blocking-flush": lambda guest, stream: None,
            "[method]output-stream.subscribe": lambda guest, stream: _ALWAYS,
        },
    ),
    "clocks/monotonic-clock": (
        {"pollable": POLLABLE},
        {
            "now": lambda guest: time.monotonic_ns(),
            "resolution": lambda guest: 1000,
            "subscribe-instant": lambda guest, when: guest.outside.timer(when),
            "subscribe-duration": lambda guest, span: guest.outside.timer(time.monotonic_ns() + span),
        },
    ),
    "clocks/wall-clock": (
        {},
        {"now": lambda guest: _datetime(time.time_ns()), "resolution": lambda guest: _datetime(1000)},
    ),
    "random/random": ({}, {"get-random-bytes": _random}),
    "cli/stdin": ({"input-stream": INPUT}, {"get-stdin": lambda guest: STDIN}),
    "cli/stdout": ({"output-stream": OUTPUT}, {"get-stdout": lambda guest: STDOUT}),
    "cli/stderr": ({"output-stream": OUTPUT}, {"get-stderr": lambda guest: STDERR}),
    "cli/environment": ({}, {"get-environment": lambda guest: [], "get-arguments": lambda guest: []}),
    "cli/exit": ({}, {"exit": _exit}),
    "cli/terminal-stdin": ({}, {"get-terminal-stdin": lambda guest: None}),
    "cli/terminal-stdout": ({}, {"get-terminal-stdout": lambda guest: None}),
    "cli/terminal-stderr": ({}, {"get-terminal-stderr": lambda guest: None}),
    "filesystem/preopens": ({}, {"get-directories": lambda guest: []}),
    "sockets/network": ({"network": NETWORK}, {}),
    "sockets/instance-network": ({"network": NETWORK}, {"instance-network": lambda guest: 0}),
    "sockets/tcp-create-socket": ({}, {"create-tcp-socket": _denied}),
    "sockets/udp-create-socket": ({}, {"create-udp-socket": _denied}),
    "sockets/ip-name-lookup": ({"network": NETWORK}, {"resolve-addresses": _denied}),
}


def define(linker: Linker, imports: Imports) -> None:
    """Adds the table to the linker. What a component imports beyond it traps when it is called."""
    with linker.root() as root:
        for name, (resources, functions) in _TABLE.items():
            with root.add_instance(f"wasi:{name}@{VERSION}") as instance:
                for resource, number in resources.items():
                    imports.add_resource(instance, resource, number, _drop_pollable if number == POLLABLE else None)
                for function, defined in functions.items():
                    call, blocking = defined if isinstance(defined, tuple) else (defined, False)
                    imports.add(instance, function, call, blocking)
