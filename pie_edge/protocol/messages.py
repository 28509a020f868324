"""The messages, as frozen dataclasses. On the wire each is a map of its fields, and ``op`` is its class's name in lower case.

Whole numbers are from 0 to 2^64 − 1. An ``id`` is the client's own name for a request, above 0 and unique among those without a
reply: exactly one reply carries it. ``instance`` names an inferlet that runs, or has ended and wasn't looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Thinks = Literal["never", "always", "switched"]
"""Whether a model thinks before it answers; ``switched``: as its chat template is told."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a client. ``secret`` is that of the local connection where it needs one."""

    version: int
    client: str = ""
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """Asks for a ``State``."""

    id: int


@dataclass(frozen=True, slots=True)
class Install:
    """Keeps a program's source under a name, in place of what had it, as long as the engine runs."""

    id: int
    name: str
    source: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Starts ``program``, an installed or built-in one by name, or else ``source``. ``input`` is a JSON object as text. The
    client is attached to it, unless it is ``detached`` and ``credit`` is 0. It ends with the connection unless it is
    ``detached``. ``time`` is seconds, ``memory`` bytes; None is what the server allows, which is also the most."""

    id: int
    input: str
    credit: int
    program: str = ""
    source: str = ""
    name: str = ""
    seed: int | None = None
    time: float | None = None
    memory: int | None = None
    detached: bool = False


@dataclass(frozen=True, slots=True)
class Attach:
    """From now on its messages, files, output and end come over this connection, what nobody read first."""

    id: int
    instance: str
    credit: int


@dataclass(frozen=True, slots=True)
class Detach:
    """Nothing of it comes any more; it goes on, and is detached."""

    id: int
    instance: str


@dataclass(frozen=True, slots=True)
class List:
    """Asks for ``Instances``."""

    id: int


@dataclass(frozen=True, slots=True)
class Signal:
    id: int
    instance: str
    name: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """It ends at once, wherever it is."""

    id: int
    instance: str


@dataclass(frozen=True, slots=True)
class Send:
    """A message to the inferlet."""

    id: int
    instance: str
    text: str


@dataclass(frozen=True, slots=True)
class SendFile:
    """A part of a file to the inferlet, which gets the file with its last part. Parts of one name are one file."""

    id: int
    instance: str
    name: str
    part: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class Credit:
    """The client can take so much more of this inferlet: characters of messages and output, bytes of files."""

    instance: str
    amount: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the engine itself; ``input`` and the ``Answer`` are JSON."""

    id: int
    what: str
    input: str = "null"


ToServer = (
    Hello | Status | Install | Launch | Attach | Detach | List | Signal | Terminate | Send | SendFile | Credit | Ask
)


@dataclass(frozen=True, slots=True)
class Welcome:
    """To ``Hello``. ``server`` is its software and version."""

    version: int
    server: str


@dataclass(frozen=True, slots=True)
class ModelCard:
    """``device`` says where it runs, ``thinks`` whether it thinks before it answers: ``never``, ``always``,
    or ``switched``, as a request says. ``embeds`` is whether it gives vectors of texts, of ``hidden`` entries, or ``unpooled``
    why it gives none and what would help; ``tools`` whether its chat template has a place for them. ``sampling`` is what the
    checkpoint recommends to sample with, by name."""

    name: str
    context: int
    created: int
    chat: bool
    embeds: bool
    description: str
    backend: str
    device: str
    thinks: Thinks = "never"
    unpooled: str = ""
    hidden: int = 0
    vocabulary: int = 0
    sampling: dict[str, float] = field(default_factory=dict)
    tools: bool = True


@dataclass(frozen=True, slots=True)
class State:
    """Of the engine: ``loading``, ``ready`` or ``failed``. Comes unasked, with the id 0, after ``Welcome`` and when it changes.
    ``done`` of ``total`` units of ``what`` are there while it loads, 0 is an unknown total; ``model`` when it is ready; ``code``
    and ``message`` when it failed."""

    id: int
    phase: str
    done: int = 0
    total: int = 0
    what: str = ""
    model: ModelCard | None = None
    programs: tuple[str, ...] = ()
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The request had no effect. The id 0 is of what can't be answered: the connection ends after it."""

    id: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Launched:
    """To ``Launch`` and ``Attach``; what comes of the instance comes after it."""

    id: int
    instance: str
    name: str


@dataclass(frozen=True, slots=True)
class Row:
    """``seconds`` since it started. ``usage`` counts tokens and passes so far. ``device`` is where it computes; where there are
    several, nothing before its first pass."""

    instance: str
    name: str
    state: str
    seconds: float
    attached: bool
    usage: dict[str, int]
    device: str = ""


@dataclass(frozen=True, slots=True)
class Instances:
    id: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Message:
    instance: str
    text: str


@dataclass(frozen=True, slots=True)
class Output:
    """What it printed, or with ``log`` what it logged. ``dropped`` characters before it are lost: nobody read them in time."""

    instance: str
    text: str
    log: bool
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class FilePart:
    """Of a file that the inferlet sent; parts of one file come one after the other."""

    instance: str
    name: str
    part: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The last of an inferlet. ``result`` is JSON; without one, ``code`` says what kind of error it ended with."""

    instance: str
    result: str | None = None
    code: str = ""
    message: str = ""
    traceback: str = ""
    cause: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)


FromServer = Welcome | State | Done | Refused | Launched | Instances | Answer | Message | Output | FilePart | Ended
