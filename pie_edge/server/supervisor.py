"""Starts the engine's process, and starts it again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from pie_edge import __version__, errors
from pie_edge.config import Settings
from pie_edge.errors import Disconnected, NotReady, PieError
from pie_edge.protocol.connection import Connection
from pie_edge.protocol.messages import State
from pie_edge.protocol.wire import Address, StreamWire

ENGINE = (sys.executable, "-P", "-m", "pie_edge.server.engine.process")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_HEALTHY_SECONDS = 60.0
"""An engine that was ready for so long had no fault in its start: the next one starts at once."""
_ANSWER_SECONDS = 60.0
_CLOSE_SECONDS = 10.0
_PULSE_SECONDS, _SILENT_SECONDS = 10.0, 60.0
"""A ready engine is asked how it is every so often, and is ended when it doesn't answer for so long."""


class Supervisor:
    """Made by ``start``. ``state`` is the engine's, or says that it is started again; ``on_state`` hears of each."""

    def __init__(self, settings: Settings, on_state: Callable[[State], None], command: Sequence[str] = ENGINE) -> None:
        self.state = State(0, "loading", what="starting")
        self.starts = 0
        self.address: Address | None = None
        self._settings = settings
        self._on_state = on_state
        self._command = command
        self._folder = Path(tempfile.mkdtemp(prefix="pie-edge-"))
        self._process: asyncio.subprocess.Process | None = None
        self._connection: Connection | None = None
        self._was_ready = False
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._first.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._running = asyncio.create_task(self._run())

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def connection(self) -> Connection:
        """To a ready engine. Raises NotReady."""
        if self._connection is None or self.state.phase != "ready":
            raise self._not_ready()
        return self._connection

    async def ready(self) -> None:
        """The first engine is. Raises what it failed with."""
        await asyncio.shield(self._first)

    async def connect(self) -> StreamWire:
        """A connection of its own to the engine, for who speaks the protocol itself. Raises NotReady."""
        if self.address is None:
            raise self._not_ready()
        try:
            return await StreamWire.connect(self.address)
        except OSError:
            raise self._not_ready() from None

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _not_ready(self) -> NotReady:
        state = self.state
        if state.phase == "failed":
            return NotReady(f"the engine doesn't start: {state.message}")
        how_far = f" ({100 * state.done // state.total} %)" if state.total else ""
        return NotReady(f"the model isn't there yet: {state.what or 'loading'}{how_far}; try again in a moment")

    async def _run(self) -> None:
        pause = 0.0
        while True:
            await asyncio.sleep(pause)
            began = asyncio.get_running_loop().time()
            error = await self._live()
            if not self._was_ready:
                # What it can't start with won't be there the next time: whoever waits for it decides.
                self._heard(State(0, "failed", code=error.code, message=error.message))
                self._first.set_exception(error)
                return
            lived = asyncio.get_running_loop().time() - began
            pause = 0.0 if lived > _HEALTHY_SECONDS else min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            self._heard(State(0, "loading", what=f"the engine ended ({error.message}) and is started again"))

    async def _live(self) -> PieError:
        """One life of the engine: why it ended."""
        try:
            await self._begin()
            connection = self._connection
            assert connection is not None
            if not await self._watched(connection):
                return Disconnected(f"it gave no sign of life for {_SILENT_SECONDS:g} s")
            state = connection.state
            if state.phase == "failed":
                return errors.by_code(state.code)(state.message)
            # Known at once; why, only when the process has gone.
            self._heard(State(0, "loading", what="the engine ended and is started again"))
            return Disconnected(await self._last_words())
        except PieError as error:
            return error
        except OSError as error:
            return Disconnected(f"the engine's process can't be started: {error}")
        finally:
            await self._end()

    async def _watched(self, connection: Connection) -> bool:
        """Waits until the connection ends; False if the engine hangs, in a driver's call say."""
        while not connection.ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(connection.ended.wait(), _PULSE_SECONDS)
            if connection.state.phase == "ready" and not connection.ended.is_set():
                try:
                    await asyncio.wait_for(connection.status(), _SILENT_SECONDS)
                except TimeoutError:
                    assert self._process is not None
                    self._process.kill()
                    return False
                except PieError:
                    continue
        return True

    async def _begin(self) -> None:
        from pie_edge.server.engine.process import orders_of

        self.starts += 1
        for left in self._folder.iterdir():
            left.unlink()
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(orders_of(self._settings, self._folder))
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), _ANSWER_SECONDS)
            address = Address(**json.loads(line))
        except (TimeoutError, ValueError, TypeError):
            raise Disconnected(f"the engine's process didn't start: {await self._last_words()}") from None
        wire = await StreamWire.connect(address)
        self._connection = await Connection.open(wire, f"pie-edge {__version__}", address.secret, self._heard)
        self.address = address

    def _heard(self, state: State) -> None:
        self.state = state
        if state.phase == "ready":
            self._was_ready = True
            if not self._first.done():
                self._first.set_result(None)
        self._on_state(state)

    async def _last_words(self) -> str:
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            status = await asyncio.wait_for(self._process.wait(), 1.0)
            return f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return "it closed its connection"

    async def _end(self) -> None:
        """Its standard input closes, and that ends it; if it doesn't, it is killed."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        self.address = None
        if connection is not None:
            await connection.close()
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _CLOSE_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
        except asyncio.CancelledError:
            process.kill()
            raise
