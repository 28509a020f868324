"""One client's connection: its messages, decoded and done, and what goes back to it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from pie_edge import __version__
from pie_edge.errors import InvalidHandle, NotReady, PieError, ProtocolError, ResourceError, Unauthorized, UsageError
from pie_edge.host.mailbox import File, check_file_name
from pie_edge.protocol import VERSION
from pie_edge.protocol.codec import encode, to_server
from pie_edge.protocol.framing import Splitter, framed
from pie_edge.protocol.messages import (
    Answer,
    Ask,
    Attach,
    Credit,
    Detach,
    Done,
    Ended,
    FromServer,
    Hello,
    Install,
    Instances,
    Launch,
    Launched,
    List,
    Refused,
    Send,
    SendFile,
    Signal,
    State,
    Status,
    Terminate,
    ToServer,
    Welcome,
)
from pie_edge.server.engine.running import Running
from pie_edge.server.failures import expected

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pie_edge.server.engine.desk import Desk

_MOST_BUFFERED = 64 * 2**20
"""Bytes on their way to one client. Credit keeps it far below, unless a client gives what it doesn't have."""
_MOST_CREDIT = 2**24
_LONGEST_SIGNAL = 128
_SLICE_SECONDS = 0.0005


class Client(asyncio.Protocol):
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        self._greeted = False
        self._attached: dict[str, Running] = {}
        self._files: dict[tuple[str, str], list[bytes]] = {}
        self._leaving: list[bytes] = []
        self._arrived: deque[bytes] = deque()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        waited = bool(self._arrived)
        try:
            self._arrived += self._splitter.feed(data)
        except PieError as error:
            self._end(error)
            return
        if self._arrived and not waited:
            self._work()

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._desk.clients.discard(self)
        self._leaving.clear()
        attached, self._attached = self._attached, {}
        for running in attached.values():
            self._desk.registry.leave(running)

    def _work(self) -> None:
        """What has arrived, for a short while: fifty launches that come at once are no reason for a step to wait."""
        end = time.perf_counter() + _SLICE_SECONDS
        while self._arrived and self._transport is not None:
            try:
                self._take(self._read(self._arrived.popleft()))
            except PieError as error:
                self._end(error)
                return
            if time.perf_counter() >= end:
                break
        if self._transport is None or not self._arrived:
            self._arrived.clear()
            self._read_on(True)
        else:
            self._read_on(False)
            asyncio.get_running_loop().call_soon(self._work)

    def _read(self, data: bytes) -> ToServer | None:
        """None for a request that was answered: it isn't right, and no reason for the others to end."""
        try:
            return to_server(data)
        except ProtocolError as error:
            if not self._greeted or not error.request:
                raise
            self.post(Refused(error.request, error.code, error.message))
            return None

    def _read_on(self, wanted: bool) -> None:
        if self._transport is not None and self._transport.is_reading() != wanted:
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    # To the client.

    def post(self, message: FromServer) -> None:
        """All of one turn of the loop goes in one write: a step's tokens are one system call, not one for each stream."""
        if self._transport is None:
            return
        if not self._leaving:
            asyncio.get_running_loop().call_soon(self.flush)
        self._leaving.append(framed(encode(message)))

    def hear(self, state: State) -> None:
        if self._greeted:
            self.post(state)

    def hang_up(self) -> None:
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def flush(self) -> None:
        if self._transport is not None and self._leaving:
            self._transport.write(b"".join(self._leaving))
            if self._transport.get_write_buffer_size() > _MOST_BUFFERED:
                self._transport.abort()
        self._leaving.clear()

    def _end(self, error: PieError) -> None:
        self._arrived.clear()
        self.post(Refused(0, error.code, error.message))
        self.hang_up()

    # From the client.

    def _take(self, message: ToServer | None) -> None:
        if message is None:
            return
        if not self._greeted:
            self._greet(message)
        elif isinstance(message, Hello):
            raise ProtocolError("hello came a second time")
        elif isinstance(message, Credit):
            self._grant(message)
        else:
            self._reply(message)

    def _greet(self, message: ToServer) -> None:
        if not isinstance(message, Hello):
            raise ProtocolError(f"the first message is {type(message).__name__.lower()}; it must be hello")
        if message.version != VERSION:
            raise ProtocolError(
                f"the client speaks version {message.version} of the protocol, and this server, pie-edge {__version__}, "
                f"speaks {VERSION}; install the same pie-edge on both sides"
            )
        if not hmac.compare_digest(message.secret.encode(), self._desk.secret.encode()):
            raise Unauthorized("this connection is the server's own")
        self._greeted = True
        self._desk.clients.add(self)
        self.post(Welcome(VERSION, f"pie-edge {__version__}"))
        self.post(self._desk.state)

    def _grant(self, credit: Credit) -> None:
        running = self._attached.get(credit.instance)
        if running is not None:  # else it ended while this was on its way
            running.grant(min(credit.amount, _MOST_CREDIT))
            self._settle(running)

    def _reply(self, message: Any) -> None:
        try:
            if message.id == 0:
                raise ProtocolError("a request with the id 0")
            reply = self._do(message)
        except ProtocolError:
            raise
        except Exception as error:
            # Of one request, whatever it is: others share the connection.
            told = expected(error)
            if told is not error:
                _log.error("a request failed", exc_info=error)
            reply = Refused(message.id, told.code, told.message)
        self._answer(reply)

    def _answer(self, reply: FromServer) -> None:
        try:
            self.post(reply)
        except UsageError as error:  # it is longer than a message may be
            assert not isinstance(reply, Welcome | State)
            self.post(Refused(getattr(reply, "id", 0), error.code, error.message))

    def _do(self, message: Any) -> FromServer:
        match message:
            case Status():
                return self._desk.told(message.id)
            case Launch():
                return self._begin(message, self._desk.registry.launch(message))
            case Attach():
                return self._begin(message, self._desk.registry.find_free(message.instance))
            case List():
                return Instances(message.id, self._desk.registry.rows())
            case Ask():
                return Answer(message.id, self._desk.answer(message.what, message.input))
            case Install():
                self._desk.programs.install(message.name, message.source)
            case Detach():
                self._detach(message.instance)
            case Terminate():
                self._terminate(message.instance)
            case Send():
                self._desk.registry.find(message.instance).instance.send(message.text)
            case Signal():
                self._signal(message)
            case SendFile():
                self._receive_part(message)
        return Done(message.id)

    def _begin(self, asked: Launch | Attach, running: Running) -> Launched:
        """What comes of it must come after the reply: it is let go when that was posted."""
        if isinstance(asked, Launch) and asked.detached and asked.credit == 0:
            return Launched(asked.id, running.id, running.instance.name)
        self._attached[running.id] = running
        asyncio.get_running_loop().call_soon(self._attach, running, min(asked.credit, _MOST_CREDIT))
        return Launched(asked.id, running.id, running.instance.name)

    def _attach(self, running: Running, credit: int) -> None:
        if self._attached.get(running.id) is running:
            running.attach(self._hear, credit)
            self._settle(running)

    def _hear(self, message: FromServer) -> None:
        if isinstance(message, Ended):
            self._attached.pop(message.instance, None)
        self._answer(message)

    def _settle(self, running: Running) -> None:
        if running.told:
            self._desk.registry.settle(running)

    def _detach(self, instance: str) -> None:
        running = self._attached.pop(instance, None)
        if running is None:
            raise InvalidHandle(f"this client isn't attached to {instance[:80]!r}")
        running.detach()
        self._desk.registry.settle(running)

    def _terminate(self, instance: str) -> None:
        running = self._desk.registry.find(instance)
        running.instance.cancel("a client terminated it")

    def _signal(self, message: Signal) -> None:
        if not 0 < len(message.name) <= _LONGEST_SIGNAL or not message.name.isprintable():
            raise UsageError(f"a signal is named by 1 to {_LONGEST_SIGNAL} printable characters")
        self._desk.registry.find(message.instance).instance.guest.mailbox.signals.post(message.name)

    def _receive_part(self, message: SendFile) -> None:
        check_file_name(message.name)
        instance = self._desk.registry.find(message.instance).instance
        key, most = (message.instance, message.name), instance.guest.limits.file
        if sum(len(part) for parts in self._files.values() for part in parts) + len(message.part) > most:
            self._files.pop(key, None)
            raise ResourceError(f"{message.name!r} has more than {most:,} bytes, the most that a file may have")
        self._files.setdefault(key, []).append(message.part)
        if message.last:
            instance.guest.mailbox.files.post(File(message.name, b"".join(self._files.pop(key))))


def not_ready(state: State) -> NotReady:
    doing = f"{state.what} ({100 * state.done // state.total} %)" if state.total else state.what or "it starts"
    return NotReady(f"the model is loading: {doing}; try again in a moment")
