"""What a program waits for, and what it gets: the cases of the WIT variants ``request`` and ``value``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from inferlet.errors import PieError

Elements = tuple[str, list[Any]]
"""``("floats" | "signed" | "unsigned" | "bools", values)``, in row-major order."""


@dataclass(slots=True)
class Tensor:
    """A value from the device; a scalar has no dimensions."""

    shape: list[int]
    elements: list[Any]

    def nested(self) -> Any:
        """A scalar as a number, anything else as nested lists."""
        return _nested(self.shape, self.elements)


def _nested(shape: list[int], elements: list[Any]) -> Any:
    if not shape:
        return elements[0]
    if len(shape) == 1:
        return elements
    width = len(elements) // shape[0] if shape[0] else 0
    return [_nested(shape[1:], elements[i * width : (i + 1) * width]) for i in range(shape[0])]


class WorkingSetHandle(Protocol):
    id: int

    def reserve(self, pages: int) -> None: ...
    def capacity(self) -> int: ...
    def fork(self, seed: int | None = None) -> WorkingSetHandle: ...
    def slice(self, first_page: int, count: int, seed: int | None = None) -> WorkingSetHandle: ...
    def hide(self, start: int, hidden: list[bool]) -> None: ...
    def add(self, key: str, time: int | None = None) -> None: ...
    def discard(self, first_page: int, count: int) -> None: ...
    def close(self) -> None: ...


class ChannelHandle(Protocol):
    id: int

    def put(self, value: Elements) -> None: ...
    def set(self, value: Elements) -> None: ...
    def close(self) -> None: ...


Source = tuple[str, int, int]
"""``("output", ticket, number)``: of an epilogue under way; ``("take" | "read", channel, 0)``: a channel's next value;
``("allowed", matcher, 0)``: a matcher's mask, for a parameter."""


@dataclass(slots=True)
class Forward:
    """A forward pass, ready to go. ``embeds`` are tokens of others after that many of its own, ``fetches`` parameters by number,
    ``puts`` outputs by number and the channels that they go to."""

    context: WorkingSetHandle
    tokens: list[int]
    start: int
    end: int
    rows: list[int]
    epilogue: str | None
    parameters: list[Elements]
    positions: list[int] | None = None
    mask: list[bool] | None = None
    observed: tuple[list[int], list[int]] | None = None
    """Layers, and rows: one more tensor comes back, masses [rows, pages]."""
    embeds: list[tuple[int, Source]] = field(default_factory=list)
    fetches: list[tuple[int, Source]] = field(default_factory=list)
    puts: list[tuple[int, int]] = field(default_factory=list)
    adapter: str | None = None


@dataclass(slots=True)
class ChannelValue:
    """The next value of a channel, which leaves it unless it ``stays``. The outcome is a list of one ``Tensor``."""

    channel: int
    stays: bool


@dataclass(slots=True)
class Receive:
    """The client's next message."""


@dataclass(slots=True)
class Drain:
    """The client has read, but for a rest, what was sent to it. The outcome is None."""


@dataclass(slots=True)
class NextSignal:
    """The client's next signal, by name."""


@dataclass(slots=True)
class ReceiveFile:
    """The client's next file: a ``File``."""


@dataclass(slots=True)
class Synchronize:
    """All that a queue has by now is done. The outcome is None."""

    queue: int


@dataclass(slots=True)
class NextDistribution:
    """The outcome is a ``Candidates``."""

    embed: int


@dataclass(slots=True)
class AttentionMass:
    """The outcome is a ``Masses``."""

    embed: int


@dataclass(slots=True)
class Message:
    """The next one of a subscription."""

    subscription: int


@dataclass(slots=True)
class Fetch:
    """An HTTP request; ``timeout`` in nanoseconds. The outcome is a ``Response``."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes
    timeout: int | None
    redirects: int


@dataclass(slots=True)
class ChildResult:
    """The outcome is the result as JSON."""

    child: int


@dataclass(slots=True)
class ChildMessage:
    """The next one that a child sent; None once it has ended and all were taken."""

    child: int


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


Request = (
    Forward
    | ChannelValue
    | Receive
    | Drain
    | NextSignal
    | ReceiveFile
    | Synchronize
    | NextDistribution
    | AttentionMass
    | Message
    | Fetch
    | ChildResult
    | ChildMessage
    | SaveSnapshot
    | LoadSnapshot
)


@dataclass(slots=True)
class Candidates:
    """The likeliest next tokens, likeliest first, and their probabilities."""

    tokens: list[int]
    probabilities: list[float]


@dataclass(slots=True)
class Masses:
    """How attention was spread over the pages of a pass."""

    by_page: list[float]


@dataclass(slots=True)
class Response:
    """An answer over HTTP; names of headers are in lower case."""

    status: int
    url: str
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(slots=True)
class File:
    """As a client sent it."""

    name: str
    data: bytes


Outcome = list[Tensor] | str | Candidates | Masses | Response | File | PieError | None
