"""The life of one inferlet: created, running, then done, failed or cancelled. It ends once, and leaves nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from wasmtime import Store, WasmtimeError

from pie_edge.errors import InferletCancelled, InferletFailed, InferletTimeout, PieError
from pie_edge.host import verdict
from pie_edge.host.guest import Guest
from pie_edge.host.mailbox import File
from pie_edge.host.wasm.fiber import ExportCall, Fiber, HostFunctionError, Instantiation

if TYPE_CHECKING:
    from pie_edge.control.usage import Usage
    from pie_edge.host.sandbox import Sandbox
    from pie_edge.host.ticker import Ticker


class State(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDINGS = (State.DONE, State.FAILED, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an inferlet returned, and its JSON ``document``; what it and its children used; and seconds: ``instantiate`` until its
    first instruction, ``run`` from there."""

    result: Any
    document: str
    usage: Usage
    children: Usage
    timings: dict[str, float]


class Instance:
    """A running inferlet. ``Host.launch`` makes them."""

    def __init__(
        self, sandbox: Sandbox, ticker: Ticker, guest: Guest, input: str, ended: Callable[[Instance], None]
    ) -> None:
        self.guest = guest
        self.state = State.CREATED
        self._sandbox = sandbox
        self._ticker = ticker
        self._input = input
        self._ended = ended
        self._store: Store | None = None
        self._fiber: Fiber | None = None
        self._inside = False
        self._verdict: BaseException | None = None
        self._started = self._first = time.perf_counter()
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        # Whoever only wants its messages never asks for the result: that is no error of theirs.
        self._outcome.add_done_callback(lambda outcome: outcome.cancelled() or outcome.exception())
        limit = guest.limits.time
        self._alarm = asyncio.get_running_loop().call_later(limit, self._expire) if limit > 0 else None

    @property
    def name(self) -> str:
        return self.guest.name

    @property
    def id(self) -> str:
        return self.guest.id

    @property
    def device(self) -> str:
        """The device that it is on; nothing before it computes, where there are several."""
        space = self.guest.space
        return "" if space.router is not None else space.engine.device_name

    async def result(self) -> Outcome:
        """How it ended. Raises one of InferletError's kinds; cancelling the wait doesn't cancel the inferlet."""
        return await asyncio.shield(self._outcome)

    def cancel(self, reason: str = "it was cancelled") -> None:
        """Stops it wherever it is; ``result`` raises InferletCancelled. Does nothing if it has ended."""
        self._stop(InferletCancelled(f"{self.name}: {reason}"))

    def send(self, text: str) -> None:
        """A message to the inferlet. Raises ResourceError if it is too long, InferletError if the inferlet has ended."""
        self.guest.mailbox.post(text)

    async def receive(self) -> str | None:
        """The inferlet's next message; None when it has ended and every message was taken."""
        item = await self.guest.mailbox.outbox.take()
        assert not isinstance(item, File), "it sends files only to who said that it takes them"
        return item

    def hang_up(self) -> None:
        """The client has gone: messages are dropped, and an inferlet that waits for one is told."""
        self.guest.mailbox.hang_up()

    def advance(self) -> bool:
        """A turn, for the schedule: True if the slice ended before the guest had to wait."""
        if self.state not in (State.CREATED, State.RUNNING):
            return False
        self._inside = True
        try:
            yielded = self._run()
        except HostFunctionError as fault:
            self._verdict = verdict.of_fault(self.guest, fault)
        except WasmtimeError as trap:
            self._verdict = verdict.of_trap(self.guest, trap)
        except PieError as error:
            self._verdict = error
        except Exception as error:
            self._verdict = verdict.of_ours(self.guest, error)
        finally:
            self._inside = False
        if self._verdict is not None:
            self._finish(self._verdict)
            return False
        return yielded

    def _run(self) -> bool:
        """Polls until the guest gives way."""
        if self._fiber is None:
            self._store = self._sandbox.new_store(self.guest.limits)
            self._fiber = Instantiation(self._sandbox.imports, self.guest, self._store, self._sandbox.component)
            self.state = State.RUNNING
        while self._verdict is None:
            assert self._store is not None
            assert self._fiber is not None
            self._ticker.touch()
            self._store.set_epoch_deadline(1)
            if not self._fiber.poll():
                return self._fiber.blocked_on is None
            if isinstance(self._fiber, ExportCall):
                self._conclude(self._fiber)
                return False
            self._enter(self._fiber, self._store)
        return False

    def _enter(self, instantiation: Fiber, store: Store) -> None:
        assert isinstance(instantiation, Instantiation)
        self._first = time.perf_counter()
        source = (self.guest.source.path, self.guest.source.text)
        arguments = (source, self._input)
        self._fiber = ExportCall(self._sandbox.imports, self.guest, store, instantiation.instance, "run", arguments)

    def _conclude(self, call: ExportCall) -> None:
        result = call.result
        call.free()
        if not isinstance(result, str):
            raise verdict.of_failure(self.guest, *result.payload)
        try:
            value = json.loads(result)
        except RecursionError:
            raise InferletFailed(f"{self.name}: the result is nested too deeply; flatten it") from None
        except json.JSONDecodeError as error:
            raise InferletFailed(f"{self.name}: the result is no JSON: {error}; return a JSON document") from None
        except ValueError:
            raise InferletFailed(
                f"{self.name}: the result holds a whole number of more than 4,300 digits; return it as text"
            ) from None
        timings = {"instantiate": self._first - self._started, "run": time.perf_counter() - self._first}
        self._finish(Outcome(value, result, self.guest.space.usage, self.guest.children.usage, timings))

    def _expire(self) -> None:
        limit = self.guest.limits.time
        remedy = "give it less to do, or raise limits.time (`run --max-time`; 0 is no limit)"
        self._stop(InferletTimeout(f"{self.name} ran for {limit:g} s, its limit; {remedy}"))

    def _stop(self, error: PieError) -> None:
        if self._outcome.done() or self._verdict is not None:
            return
        if self._inside:  # a callback of the guest's own turn: its stack can't be unwound under it
            self._verdict = error
        else:
            self._finish(error)

    def _finish(self, ending: Outcome | BaseException) -> None:
        """Frees everything, then tells."""
        if self._alarm is not None:
            self._alarm.cancel()
        fiber, self._fiber = self._fiber, None
        store, self._store = self._store, None
        if fiber is not None:
            fiber.close()
        if store is not None:
            # Giving tens of megabytes back to the system takes two milliseconds, in which no other guest would have a turn.
            asyncio.get_running_loop().run_in_executor(None, store.close)
        self.guest.close()
        if isinstance(ending, Outcome):
            self.state = State.DONE
        else:
            self.state = State.CANCELLED if isinstance(ending, InferletCancelled) else State.FAILED
        if not self._outcome.done():
            if isinstance(ending, Outcome):
                self._outcome.set_result(ending)
            else:
                self._outcome.set_exception(ending)
        self._ended(self)
