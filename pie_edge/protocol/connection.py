"""The client's side of a connection: requests with their replies, and what comes of the inferlets it is attached to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

from pie_edge import errors
from pie_edge.errors import Disconnected, InferletError, PieError, ProtocolError
from pie_edge.protocol import VERSION
from pie_edge.protocol.codec import encode, from_server, to_server
from pie_edge.protocol.messages import (
    Answer,
    Ask,
    Attach,
    Credit,
    Detach,
    Done,
    Ended,
    FilePart,
    FromServer,
    Hello,
    Install,
    Instances,
    Launch,
    Launched,
    List,
    Message,
    Output,
    Refused,
    Row,
    State,
    Status,
    Terminate,
    Welcome,
)
from pie_edge.protocol.wire import Wire

Event = Message | Output | FilePart | Ended
R = TypeVar("R")


class Remote:
    """An inferlet that the connection is attached to. ``sink`` gets what comes of it, ``Ended`` last; ``lost`` is called instead
    when the connection ends before. Whoever is done with ``amount`` of it says so by ``grant``."""

    def __init__(
        self,
        connection: Connection,
        window: int,
        sink: Callable[[Event], None],
        lost: Callable[[Disconnected], None],
    ) -> None:
        self.instance = self.name = ""
        self.ended = False
        self._connection = connection
        self.window = window
        self._granted = 0
        self.sink = sink
        self.lost = lost

    def grant(self, amount: int) -> None:
        self._granted += amount
        # Half a window at a time: a message for each token would double what the engine reads.
        if self._granted * 2 >= self.window and not self.ended:
            self._connection.post(Credit(self.instance, self._granted))
            self._granted = 0

    def terminate(self) -> None:
        """It ends, and nobody waits for that."""
        if not self.ended:
            self._connection.forget(self)
            self._connection.post(Terminate(self._connection.new_id(), self.instance))


class Connection:
    """Made by ``open``. Everything raises Disconnected once it has ended, and what the server refuses by the error's code."""

    def __init__(self, wire: Wire, on_state: Callable[[State], None]) -> None:
        self.server = ""
        self.state = State(0, "loading")
        self._wire = wire
        self._on_state = on_state
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._launching: dict[int, Remote] = {}
        self._remotes: dict[str, Remote] = {}
        self._ending: PieError | None = None
        self._reading: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()

    @classmethod
    async def open(
        cls,
        wire: Wire,
        client: str,
        secret: str = "",
        on_state: Callable[[State], None] = lambda state: None,
    ) -> Connection:
        """Shakes hands. Raises ProtocolError for a server of another version, Disconnected."""
        connection = cls(wire, on_state)
        wire.send(encode(Hello(VERSION, client, secret)))
        try:
            first, *rest = [from_server(one) for one in await wire.receive()]
            if isinstance(first, Refused):
                raise errors.by_code(first.code)(first.message)
            if not isinstance(first, Welcome) or first.version != VERSION:
                raise ProtocolError(f"the server answered {first!r:.80}, not with a welcome to version {VERSION}")
        except BaseException:
            await wire.close()
            raise
        connection.server = first.server
        for message in rest:
            connection._take(message)
        connection._reading = asyncio.create_task(connection._read())
        return connection

    def new_id(self) -> int:
        return next(self._ids)

    def post(self, message: Any) -> None:
        """Nobody waits for a reply."""
        if self._ending is None:
            self._wire.send(encode(message))

    async def request(self, make: Callable[[int], Any], reply: type[R]) -> R:
        """``make`` is given the request's id. Raises UsageError for a field that the server would refuse."""
        if self._ending is not None:
            raise self._ending
        number = self.new_id()
        asked = make(number)
        to_server.check(asked)
        message = encode(asked)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._wire.send(message)
            await self._wire.flush()
            got = await future
        finally:
            self._waiting.pop(number, None)
        if not isinstance(got, reply):
            raise ProtocolError(f"the server answered {type(got).__name__}, not {reply.__name__}")
        return got

    async def status(self) -> State:
        return await self.request(Status, State)

    async def install(self, name: str, source: str) -> None:
        await self.request(lambda number: Install(number, name, source), Done)

    async def instances(self) -> tuple[Row, ...]:
        return (await self.request(List, Instances)).rows

    async def ask(self, what: str, input: str = "null") -> str:
        return (await self.request(lambda number: Ask(number, what, input), Answer)).text

    async def tell(self, kind: Callable[..., Any], instance: str, *fields: Any) -> None:
        """``Detach``, ``Signal``, ``Terminate``, ``Send`` or ``SendFile``."""
        await self.request(lambda number: kind(number, instance, *fields), Done)
        if kind is Detach:
            self._remotes.pop(instance, None)

    async def launch(self, remote: Remote, input: str, **options: Any) -> None:
        await self._begin(remote, lambda number: Launch(number, input, remote.window, **options))

    async def attach(self, remote: Remote, instance: str) -> None:
        await self._begin(remote, lambda number: Attach(number, instance, remote.window))

    async def _begin(self, remote: Remote, make: Callable[[int], Any]) -> None:
        asked = 0

        def numbered(number: int) -> Any:
            nonlocal asked
            asked = number
            self._launching[number] = remote
            return make(number)

        try:
            await self.request(numbered, Launched)
        except asyncio.CancelledError:
            if remote.instance:
                remote.terminate()
            else:
                # The reply is on its way: whoever reads it ends what nobody waits for.
                self._launching[asked] = Remote(self, 1, lambda event: None, lambda error: None)
                self._launching[asked].ended = True
            raise
        except PieError:
            self._launching.pop(asked, None)
            raise

    def forget(self, remote: Remote) -> None:
        remote.ended = True
        self._remotes.pop(remote.instance, None)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._end(Disconnected("the connection was closed"))
        await self._wire.close()

    async def _read(self) -> None:
        try:
            while True:
                for data in await self._wire.receive():
                    self._take(from_server(data))
        except PieError as error:
            self._end(error)  # whoever holds the connection closes it
        except Exception as error:
            self._end(Disconnected(f"the connection has ended: {type(error).__name__}: {error}; please report it"))
            raise

    def _take(self, message: FromServer) -> None:
        match message:
            case Message() | Output() | FilePart() | Ended():
                remote = self._remotes.get(message.instance)
                if remote is None:
                    return  # it was terminated or detached while this was on its way
                if isinstance(message, Ended):
                    self.forget(remote)
                remote.sink(message)
            case State(id=0):
                self.state = message
                self._on_state(message)
            case Refused(id=0):
                raise errors.by_code(message.code)(message.message)
            case Refused():
                self._launching.pop(message.id, None)
                self._reply(message.id, errors.by_code(message.code)(message.message))
            case Welcome():
                raise ProtocolError("the server welcomes a second time")
            case Launched():
                self._launched(message)
                self._reply(message.id, message)
            case State():
                # An answer is no change: whoever asks every few seconds would tell of it each time.
                self.state = message
                self._reply(message.id, message)
            case _:
                self._reply(message.id, message)

    def _launched(self, message: Launched) -> None:
        remote = self._launching.pop(message.id, None)
        if remote is None or remote.ended:
            self.post(Terminate(self.new_id(), message.instance))
            return
        remote.instance, remote.name = message.instance, message.name
        self._remotes[message.instance] = remote

    def _reply(self, number: int, reply: Any) -> None:
        future = self._waiting.get(number)
        if future is not None and not future.done():
            if isinstance(reply, PieError):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    def _end(self, error: PieError) -> None:
        if self._ending is not None:
            return
        told = error if isinstance(error, Disconnected) else Disconnected(f"the connection has ended: {error}")
        self._ending = told
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(told)
        remotes, self._remotes = self._remotes, {}
        for remote in remotes.values():
            remote.ended = True
            remote.lost(told)
        self.ended.set()


def error_of(ended: Ended) -> PieError:
    """What an inferlet without a result ended with."""
    kind = errors.by_code(ended.code)
    if issubclass(kind, InferletError):
        return kind(ended.message, ended.traceback, ended.cause)
    return kind(ended.message)
