"""The Backend protocol, the facts a backend states, and ``open``, the only place that names backends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from pie_edge.program.encodings import DType, Encoding
from pie_edge.program.ops import Program, Role, Value

T = TypeVar("T")
BytesLike = bytes | bytearray | memoryview
"""Anything whose memory can be read as bytes without copying (``array.array`` and NumPy arrays through ``memoryview``)."""


@dataclass(frozen=True)
class Limits:
    """Frozen facts of an open device: ask these, never its name."""

    backend: str
    device: str
    memory: int
    """Bytes that may be allocated in all."""
    max_binding: int
    """Bytes of the largest buffer that a kernel may see."""
    kinds: frozenset[str]
    """Op kinds it runs as they are; ``expand`` rewrites the rest."""
    supports: Callable[[Encoding], bool]
    """Whether its kernels read weights in this encoding."""
    kv_dtype: DType
    """What it prefers to keep keys and values in."""
    batch_invariant: bool = False
    """A row's bits are the same alone and beside others: what ``deterministic`` asks for."""
    software: bool = False
    """A software implementation of a GPU API: used only when asked for or when nothing else is there."""
    sticky: bool = False
    """Once lost, the device stays lost for this process: it isn't opened again."""
    opened: int = 1
    """How often the device was opened: what states held is gone each time that it is opened again."""
    scarce: str = ""
    """Where others have much of the device's memory: how much of how much was free when it was opened, and what to do."""


class Buffer(Protocol):
    """A piece of device memory. Opaque; only its backend looks inside."""

    @property
    def nbytes(self) -> int: ...


class WeightSource(Protocol):
    """A weight as its file holds it. A backend pulls what it can use: the raw rows, or repacked planes."""

    @property
    def encoding(self) -> str:
        """The file's own name for it: ``Q4_1``, ``F16``, …"""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def raw(self, first: int, count: int) -> memoryview:
        """The file's bytes of ``count`` rows from ``first``, not copied."""

    def planes(self, first: int, count: int) -> Mapping[str, Any]:
        """The planes (``encodings.planes``) of these rows in the value's encoding, as NumPy arrays."""


@runtime_checkable
class PackedSource(Protocol):
    """A weight whose file may have its codes packed as MLX packs them."""

    def packed(self, first: int, count: int) -> Mapping[str, Any] | None:
        """The planes of these rows with codes in words, as NumPy arrays of the file's own memory; None where it has them
        otherwise, or in another encoding than the value's."""


class Ticket(Protocol):
    """A run that was enqueued."""


class Executable(Protocol):
    """A compiled Program, bound to its buffers."""

    @property
    def program(self) -> Program: ...


class Backend(Protocol):
    """A device. Methods that a browser can't do synchronously are awaited; ``run`` never waits.

    ``buffers`` of ``compile`` maps the Program's weight and state values by name: a weight to what ``load`` gave, a state to
    what ``allocate`` gave. Inputs, temps and outputs belong to the Executable.
    """

    @property
    def limits(self) -> Limits: ...

    def footprint(
        self, states: Sequence[int], weights: Sequence[Value], largest: Program | None, memory: int = 0
    ) -> int:
        """Bytes that will be in use, with those that are now, once states of these sizes are allocated, these weights loaded in
        this order after ``expect``, and some Programs compiled, of which ``largest`` needs the most. With ``memory``, as if
        ``limits`` had so much of it. Moves nothing."""

    async def expect(self, weights: Sequence[Value], largest: Program) -> None:
        """Make room for what is to come: these weights are loaded next, and no Program will have more temporaries than
        ``largest``. Without it everything works, and may take more memory. Raises OutOfMemory."""

    async def allocate(self, nbytes: int, role: Role) -> Buffer:
        """Zeroed. Raises OutOfMemory saying what was asked and what is free."""

    def free(self, buffer: Any) -> None: ...

    def write(self, buffer: Buffer, data: BytesLike, offset: int = 0) -> None:
        """Ordered with runs; copies before it returns."""

    def download(self, spans: Sequence[tuple[Any, int, int]]) -> Ticket:
        """Enqueue reading pieces of states, each (buffer, offset, bytes), as they are after the runs so far; ``read`` gives
        them in this order."""

    async def load(self, value: Value, source: WeightSource) -> Any:
        """Bring a weight to the device, repacked as its kernels want it."""

    async def compile(self, program: Program, buffers: Mapping[str, Any]) -> Executable:
        """Slow; cached by digest; off the step path. Raises Unsupported for an op kind or encoding it has not."""

    def run(self, executable: Executable, inputs: Mapping[str, BytesLike]) -> Ticket:
        """Enqueue in order, without waiting. A model Program takes its inputs as the one block ``step`` (`StepLayout`), an
        epilogue Program each input by name."""

    def poll(self, ticket: Ticket) -> bool: ...

    async def read(self, ticket: Ticket) -> Mapping[str, memoryview]:
        """The outputs by name, each a flat memoryview with its element format. Raises DeviceLost."""

    async def close(self) -> None: ...


Run = tuple[Executable, Mapping[str, BytesLike]]
"""An Executable, and what ``Backend.run`` gives it."""


@runtime_checkable
class Joining(Protocol):
    """A backend for which runs that are enqueued in one go cost less than one after the other."""

    def run_together(self, runs: Sequence[Run]) -> Sequence[Ticket]:
        """What ``Backend.run`` of each in this order would do, and give."""


def together(backend: Backend) -> Callable[[Iterable[Run]], Sequence[Ticket]]:
    """How this backend enqueues several runs that belong together, in order, without waiting."""
    if isinstance(backend, Joining):
        join = backend.run_together
        return lambda runs: join(list(runs))
    # Each is taken when its turn comes: a device may begin while the next one's inputs are put together.
    return lambda runs: [backend.run(executable, inputs) for executable, inputs in runs]


class Stopped(BaseException):
    """A job ended early because nobody waits for it any more: nothing that went wrong, so that no ``except Exception`` has it."""


class Stop:
    """How a job in a worker thread hears that it was given up: it looks between two pieces of its work."""

    def __init__(self) -> None:
        self._asked = False

    def ask(self) -> None:
        self._asked = True

    def look(self) -> None:
        """Raises Stopped if it was asked for."""
        if self._asked:
            raise Stopped

    def watched(self, progress: Callable[[int, int, str], None]) -> Callable[[int, int, str], None]:
        """For a job that does nothing between its pieces but tell how far it is."""

        def told(done: int, total: int, what: str) -> None:
            self.look()
            progress(done, total, what)

        return told


async def in_thread(function: Callable[..., T], *arguments: Any, stop: Stop | None = None) -> T:
    """What ``function`` gives, run in a worker thread. Whoever is cancelled meanwhile waits for its end all the same: the device
    that it works on may be closed right after. ``stop`` is asked then, for a job that looks at it."""
    working = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        if stop is not None:
            stop.ask()
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # nobody will ask what came of it
        raise


@dataclass(frozen=True)
class Finding:
    """What a backend's ``probe()`` saw of this machine. A probe never raises, and leaves nothing allocated."""

    devices: tuple[str, ...]
    """By name, the driver's order; empty when none can be used."""
    reason: str = ""
    """Why it can't be used here; empty when it can."""
    remedy: str = ""
    batch_invariant: bool = False
    """A row's bits are the same alone and beside others: what ``deterministic`` asks for."""
    software: bool = False
    """All its devices are software implementations."""
    spare: tuple[str, ...] = ()
    """Software devices beside real ones: taken only when asked for."""
    unseen: str = ""
    """What else there may be that isn't looked at, and how it would be: for whoever asks for a device that isn't here."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Those of ``devices`` that can't be used beside others that can, which keep their numbers; each with why, and the remedy."""

    @property
    def usable(self) -> tuple[str, ...]:
        return tuple(name for name in self.devices if name not in self.refused)
