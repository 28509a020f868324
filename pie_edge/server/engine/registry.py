"""The inferlets that clients launched: by id, until somebody heard how each ended."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pie_edge.errors import InvalidHandle, ResourceError, UsageError
from pie_edge.host import Host, Limits
from pie_edge.protocol.messages import Launch, Row
from pie_edge.server.engine.programs import Programs
from pie_edge.server.engine.running import Running
from pie_edge.server.engine.transcript import Transcript

_MOST_ENDED = 256
_KEPT_SECONDS = 600.0
_LAST_SECONDS = 2.0
"""That inferlets have to end, and clients to hear how, once every device is lost."""
_LONGEST_NAME = 128


class Registry:
    """``stuck`` is called when every device is lost and none comes back: nothing but a new process helps then."""

    def __init__(self, host: Host, programs: Programs, stuck: Callable[[], None]) -> None:
        self.host = host
        self._programs = programs
        self._stuck = stuck
        host.when_lost(self._device_lost)
        # Names of one process must not be those of another: a client may ask for an inferlet of the one before.
        self._prefix = secrets.token_hex(3)
        self._numbers = itertools.count(1)
        self._running: dict[str, Running] = {}
        self._ended: dict[str, asyncio.TimerHandle] = {}

    def launch(self, asked: Launch) -> Running:
        """Raises UsageError, InferletInvalid, ResourceError."""
        program = self._program(asked)
        if len(asked.name) > _LONGEST_NAME or not asked.name.isprintable():
            raise UsageError(f"{asked.name[:80]!r} is no name; give up to {_LONGEST_NAME} printable characters")
        transcript = Transcript()
        instance = self.host.launch(
            program,
            asked.input,
            name=asked.name or asked.program or None,
            seed=asked.seed,
            on_text=transcript.output,
            on_log=transcript.log,
            limits=_within(self.host.limits, asked),
        )
        running = Running(f"{self._prefix}-{next(self._numbers)}", instance, transcript, asked.detached, self._over)
        self._running[running.id] = running
        return running

    def find(self, id: str) -> Running:
        """Raises InvalidHandle."""
        if id not in self._running:
            raise InvalidHandle(
                f"there is no inferlet {id[:80]!r} here; it ended and somebody heard how, or it was never started. "
                "`pie-edge ps` lists those there are"
            )
        return self._running[id]

    def find_free(self, id: str) -> Running:
        """One to attach to. Raises InvalidHandle, ResourceError if another client is attached."""
        running = self.find(id)
        if running.attached:
            raise ResourceError(f"{id} has a client attached to it; let that one detach first")
        return running

    def rows(self) -> tuple[Row, ...]:
        return tuple(running.row() for running in self._running.values())

    def leave(self, running: Running) -> None:
        """Its client has gone, or had enough."""
        was_detached = running.detached
        running.detach()
        if was_detached:
            self.settle(running)
            return
        if running.ending is None:
            running.instance.hang_up()
            running.instance.cancel("its client has gone")
        self._forget(running.id)

    def _program(self, asked: Launch) -> Path | str:
        if bool(asked.program) == bool(asked.source):
            raise UsageError("launch takes either a program's name or a source")
        if asked.program:
            return self._programs.find(asked.program)
        if len(asked.source.encode()) > self.host.limits.source:
            raise UsageError(f"a source of more than {self.host.limits.source:,} bytes; send less")
        return asked.source

    def _device_lost(self) -> None:
        if self.host.lost:
            asyncio.get_running_loop().call_later(_LAST_SECONDS, self._stuck)

    def _over(self, running: Running) -> None:
        self.settle(running)
        if self.host.lost and all(one.ending for one in self._running.values()):
            # What was posted in this turn of the loop goes out before.
            asyncio.get_running_loop().call_soon(self._stuck)

    def settle(self, running: Running) -> None:
        """Forgets it if it is over and somebody heard how, or nobody will."""
        if running.ending is None or running.id not in self._running:
            return
        if running.told or not (running.detached or running.attached):
            self._forget(running.id)
        elif running.id not in self._ended:
            later = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._forget, running.id)
            self._ended[running.id] = later
            while len(self._ended) > _MOST_ENDED:
                self._forget(next(iter(self._ended)))

    def _forget(self, id: str) -> None:
        self._running.pop(id, None)
        later = self._ended.pop(id, None)
        if later is not None:
            later.cancel()


def _within(limits: Limits, asked: Launch) -> Limits:
    if asked.time is not None and asked.time < 0:
        raise UsageError(f"time is {asked.time:g} s; give seconds from 0, which is what the server allows")
    times = [one for one in (limits.time, asked.time or 0.0) if one > 0]
    return replace(limits, time=min(times, default=0.0), memory=min(limits.memory, asked.memory or limits.memory))
