"""Small values that go from pass to pass on the device, without the program in between."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from math import prod
from typing import Any

from inferlet import _check, _loop
from inferlet._host import ChannelHandle, ChannelValue, Tensor, host
from inferlet.errors import EpilogueError, UsageError
from inferlet.eta import tensor as tensors
from inferlet.eta.output import kept
from inferlet.eta.trace import session


class _Value:
    """What a channel will have given."""

    def __init__(self, answer: asyncio.Future[list[Tensor]], channel: Channel) -> None:
        self._answer = answer
        # A channel that nobody refers to is closed, and its values with it.
        self._channel = channel

    def __await__(self) -> Generator[Any, None, Any]:
        found = yield from kept(self._answer).__await__()
        return found[0].nested()


class Channel:
    """A queue of values of one shape: ``()`` is a number, ``dtype`` f32, i32 or u32. It has room for one, or ``capacity(n)``.

    Inside of an epilogue ``put`` a tensor and ``take`` or ``read`` one; ``ForwardPass.embed`` takes tokens. Outside ``put`` a
    number or list, and ``await channel.take()`` or ``read()``. What a pass takes is settled when it is submitted, in the order
    of the program: it runs behind the pass that puts, and on the device's side of it. Full or empty channels are refused with
    ResourceError, never waited for.
    """

    def __init__(self, shape: int | Sequence[int], dtype: str) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = tensors.dtype(dtype)
        if self.dtype is tensors.dtype.bool:
            raise UsageError("a channel of bool was asked for; make it u32, and cast what is put into it")
        for extent in self.shape:
            _check.count(extent, "a channel's shape")
        self._room = 1
        self._name = ""
        self._handle: ChannelHandle | None = None
        self._closed = False

    @staticmethod
    def from_(value: Any, dtype: str | None = None) -> Channel:
        """A channel that begins with a value: a number or nested list. Whole numbers are i32 unless ``dtype`` says otherwise."""
        shape, values = tensors.flattened(value)
        made = Channel(shape, dtype or tensors.natural(values))
        made.put(value)
        return made

    def capacity(self, count: int) -> Channel:
        """Room for ``count`` values; only before it is used."""
        if self._handle is not None:
            raise UsageError(f"{self!r} is in use; set its capacity when it is made")
        self._room = _check.count(count, "capacity")
        return self

    def named(self, name: str) -> Channel:
        """What it is called when it is shown."""
        self._name = name
        return self

    def __repr__(self) -> str:
        return f"<Channel {self._name or 'of'} {self.dtype}{list(self.shape)}>"

    @property
    def id(self) -> int:
        """What the host calls it."""
        return self._open().id

    def put(self, value: Any) -> None:
        """Appends a value: a tensor while an epilogue is traced, else a number or list."""
        tracing = session()
        if tracing is not None:
            given = value if isinstance(value, tensors.Tensor) else tensors.param(value, self.dtype)
            tracing.puts.append((self.id, given))
            return
        self._ready().put(self._elements(value))

    def set(self, value: Any) -> None:
        """Replaces the next value, for whoever takes it from now on."""
        self._ready().set(self._elements(value))

    def take(self) -> Any:
        """The next value, which leaves the channel: a tensor while an epilogue is traced, else awaitable."""
        return self._next("take")

    def read(self) -> Any:
        """The same, and it stays."""
        return self._next("read")

    async def take_host(self) -> list[Any]:
        """Its entries in one list, whatever its shape."""
        return (await self._ask(stays=False))[0].elements

    async def read_host(self) -> list[Any]:
        """The same, and it stays."""
        return (await self._ask(stays=True))[0].elements

    async def take_scalar(self) -> Any:
        """Its first entry."""
        return (await self.take_host())[0]

    async def read_scalar(self) -> Any:
        """The same, and it stays."""
        return (await self.read_host())[0]

    def close(self) -> None:
        """Gives it up; passes that took of it or put into it go on. Also when nobody refers to it any more."""
        if self._handle is not None and not self._closed:
            self._ready().close()
        self._closed = True

    def _next(self, kind: str) -> Any:
        tracing = session()
        if tracing is None:
            return _Value(self._ask(stays=kind == "read"), self)
        taken = tensors.apply("param", dtype=self.dtype.value, shape=list(self.shape))
        taken.node.parameter = (tensors.CASES[self.dtype], [])
        tracing.takes.append((taken.node, (kind, self.id, 0)))
        return taken

    def _ask(self, *, stays: bool) -> asyncio.Future[list[Tensor]]:
        loop = _loop.running()
        if loop is None:
            raise UsageError("a channel can only be awaited in `async def main`, or in what it calls")
        return loop.submit(ChannelValue(self.id, stays))

    def _elements(self, value: Any) -> tuple[str, list[Any]]:
        if isinstance(value, tensors.Tensor):
            raise UsageError(f"{value!r} was put outside of an epilogue; it has a value only there")
        shape, values = tensors.flattened(value)
        if prod(shape) != prod(self.shape):
            raise EpilogueError(f"{prod(shape)} entries are put into {self!r}, whose values have {prod(self.shape)}")
        return tensors.CASES[self.dtype], tensors.converted(self.dtype, values)

    def _open(self) -> ChannelHandle:
        if self._closed:
            raise UsageError(f"{self!r} was closed; make another one")
        if self._handle is None:
            self._handle = host().create_channel(tensors.CASES[self.dtype], self.shape, self._room)
        return self._handle

    def _ready(self) -> ChannelHandle:
        """The handle, once what was submitted before has reached the host."""
        handle, loop = self._open(), _loop.running()
        if loop is not None:
            loop.flush()
        return handle
