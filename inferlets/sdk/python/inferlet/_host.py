"""The seam between the SDK and whoever carries it out: the Wasm host in a component, a fake in a unit test.

``install`` is called once, before anything else of the SDK is used. Every call may raise one of ``inferlet.errors``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from inferlet.errors import PieError

Elements = tuple[str, list[Any]]
"""``("floats" | "signed" | "unsigned" | "bools", values)``, in row-major order."""


@dataclass(slots=True)
class Tensor:
    """A value from the device; a scalar has no dimensions."""

    shape: list[int]
    elements: list[Any]


@dataclass(slots=True)
class Forward:
    """A forward pass, ready to go."""

    context: WorkingSetHandle
    tokens: list[int]
    start: int
    end: int
    rows: list[int]
    epilogue: str | None
    parameters: list[Elements]


@dataclass(slots=True)
class Receive:
    """The client's next message."""


@dataclass(slots=True)
class SaveSnapshot:
    """Keep the first ``length`` tokens of a context under a name, in place of what had it. The outcome is an empty text."""

    context: WorkingSetHandle
    name: str
    length: int
    note: str
    """The SDK's own, given back as it is."""


@dataclass(slots=True)
class LoadSnapshot:
    """Fill an empty context with what was kept under a name. The outcome is the note."""

    context: WorkingSetHandle
    name: str


Request = Forward | Receive | SaveSnapshot | LoadSnapshot
Outcome = list[Tensor] | str | PieError


@dataclass(frozen=True, slots=True)
class Facts:
    """What an inferlet may know of its model."""

    name: str
    architecture: str
    description: str
    licence: str
    vocabulary: int
    context: int
    page_size: int
    bos: int | None
    eos: int | None


class Decoder(Protocol):
    def push(self, tokens: list[int]) -> str: ...
    def flush(self) -> str: ...


class WorkingSetHandle(Protocol):
    id: int

    def reserve(self, pages: int) -> None: ...
    def capacity(self) -> int: ...
    def fork(self, seed: int | None = None) -> WorkingSetHandle: ...
    def discard(self, first_page: int, count: int) -> None: ...
    def close(self) -> None: ...


class Host(Protocol):
    """The interfaces of the WIT world that an inferlet is written against."""

    def version(self) -> str: ...
    def instance_id(self) -> str: ...
    def seed(self) -> int: ...
    def print(self, stream: str, text: str) -> None:
        """``stream`` is ``output`` or ``error``."""

    def log(self, level: str, message: str) -> None: ...
    def find_module(self, name: str) -> tuple[str, str] | None:
        """``(path, text)``."""

    def facts(self) -> Facts: ...
    def encode(self, text: str, special: bool) -> list[int]: ...
    def decode(self, tokens: list[int], special: bool, continued: bool) -> str: ...
    def decoder(self, special: bool, continued: bool) -> Decoder: ...

    def chat_available(self) -> bool: ...
    def chat_prefix(self) -> list[int]: ...
    def chat_preamble(self) -> list[int]: ...
    def chat_turn(self, role: str, text: str) -> list[int]: ...
    def chat_cue(self) -> list[int]: ...
    def chat_seal(self) -> list[int]: ...
    def chat_stop_tokens(self) -> list[int]: ...

    def create_working_set(self, tokens: int, seed: int | None = None) -> WorkingSetHandle: ...
    def list_snapshots(self) -> list[str]: ...
    def delete_snapshot(self, name: str) -> None: ...
    def wait(self, submissions: Sequence[tuple[int, Request]], timeout: int | None) -> list[tuple[int, Outcome]]:
        """Starts the submissions, sleeps for at most ``timeout`` nanoseconds, takes what is complete."""

    def send(self, text: str) -> None: ...


_installed: Host | None = None


def install(host: Host) -> None:
    global _installed
    _installed = host


def host() -> Host:
    if _installed is None:
        raise RuntimeError("no host: this module works inside of pie-edge; start the program with `pie-edge run FILE`")
    return _installed
