"""The SDK run natively, on an engine in a thread of its own: the host's own services without a Wasm guest between.

A program is a coroutine function; what it does goes through the same calls as a component's, so numbers and errors are
those of a real inferlet, at the speed of Python.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from pie_edge.control.engine import Engine
from pie_edge.errors import PieError
from pie_edge.host.constraints import Constraints
from pie_edge.host.guest import Guest, Model
from pie_edge.host.limits import Limits
from pie_edge.host.services import _TABLE
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import open_tiny
from tests.support.tiny_text import TinyTokenizer, TinyTurns

sys.path.insert(0, str(Path(__file__).parents[2] / "inferlets/sdk/python"))

from inferlet import _host, _loop, _seeds, chat, model
from inferlet.errors import from_code

T = TypeVar("T")


class EngineThread:
    """An engine, and the loop that it lives in."""

    def __init__(self, opening: Callable[..., Any], **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.backend = ReferenceBackend()
        self._constraints: Constraints | None = None
        self.engine: Engine = self.ask(lambda: opening(self.backend, **settings))

    def constraints(self, tokenizer: Any) -> Constraints:
        """The same for all instances: grammars are compiled once."""
        if self._constraints is None:
            self._constraints = Constraints(tokenizer, self.engine.facts.vocabulary)
        return self._constraints

    def ask(self, function: Callable[[], Any]) -> Any:
        """What ``function`` gives in the engine's loop, awaited if it is a coroutine."""

        async def body() -> Any:
            found = function()
            return await found if asyncio.iscoroutine(found) or asyncio.isfuture(found) else found

        return asyncio.run_coroutine_threadsafe(body(), self._loop).result(60)

    def tell(self, function: Callable[[], Any]) -> None:
        """Has the engine's loop call ``function``, soon; nothing after it has been closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        self.ask(self.engine.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class NativeHost:
    """``inferlet._host.Host`` of one instance."""

    def __init__(self, thread: EngineThread, seed: int, template: bool, tokenizer: Any) -> None:
        self._thread = thread
        turns, engine = TinyTurns() if template else None, thread.engine
        described = Model(
            engine.facts,
            tokenizer,
            turns,
            thread.constraints(tokenizer),
            engine.abilities,
        )
        self.said: list[str] = []
        source: Any = SimpleNamespace()
        self.guest: Guest = thread.ask(
            lambda: Guest(
                number=1,
                name="native",
                source=source,
                limits=Limits(),
                model=described,
                space=thread.engine.open_space("native", seed),
                has_client=False,
                text_sink=self.said.append,
                log_sink=self.said.append,
            )
        )

    def call(self, interface: str, function: str, *arguments: Any) -> Any:
        service = _TABLE[interface][1][function]
        try:
            return self._thread.ask(lambda: service(self.guest, *arguments))
        except PieError as error:
            raise from_code(error.code, str(error)) from None

    def seed(self) -> int:
        return int(self.call("runtime", "seed"))

    def send(self, text: str) -> None:
        self.call("session", "send", text)

    def facts(self) -> _host.Facts:
        return _host.Facts(*self.call("model", "get-facts"))

    def adapters(self) -> list[str]:
        return list(self.call("model", "adapters"))

    def encode(self, text: str, special: bool) -> list[int]:
        return list(self.call("model", "encode", text, special))

    def decode(self, tokens: list[int], special: bool, continued: bool) -> str:
        return str(self.call("model", "decode", tokens, special, continued))

    def decoder(self, special: bool, continued: bool) -> Any:
        number = self.call("model", "[constructor]decoder", special, continued)
        return SimpleNamespace(
            push=lambda tokens: self.call("model", "[method]decoder.push", number, tokens),
            flush=lambda: self.call("model", "[method]decoder.flush", number),
        )

    def compile_grammar(self, kind: str, text: str | None) -> NativeGrammar:
        async def compiled() -> int:
            return int(await _TABLE["grammar"][1]["[static]grammar.compile"](self.guest, (kind, text)))

        try:
            return NativeGrammar(self, self._thread.ask(compiled))
        except PieError as error:
            raise from_code(error.code, str(error)) from None

    def tools_grammar(
        self, tools: str, choice: str, name: str | None, parallel: bool, thinking: bool | None
    ) -> NativeGrammar:
        async def compiled() -> int:
            wanted = (choice, None) if name is None else ("named", name)
            return int(
                await _TABLE["grammar"][1]["[static]grammar.of-tools"](self.guest, tools, wanted, parallel, thinking)
            )

        try:
            return NativeGrammar(self, self._thread.ask(compiled))
        except PieError as error:
            raise from_code(error.code, str(error)) from None

    def chat_available(self) -> bool:
        return bool(self.call("chat", "available"))

    def chat_prefix(self) -> list[int]:
        return list(self.call("chat", "prefix"))

    def chat_preamble(self, thinking: bool | None) -> list[int]:
        return list(self.call("chat", "preamble", thinking))

    def chat_turn(self, role: str, text: str, thinking: bool | None) -> list[int]:
        return list(self.call("chat", "turn", role, text, thinking))

    def chat_cue(self, thinking: bool | None) -> list[int]:
        return list(self.call("chat", "cue", thinking))

    def chat_seal(self) -> list[int]:
        return list(self.call("chat", "seal"))

    def chat_stop_tokens(self) -> list[int]:
        return list(self.call("chat", "stop-tokens"))

    def create_working_set(self, tokens: int, seed: int | None = None) -> NativeWorkingSet:
        return NativeWorkingSet(self, self.call("forward", "[static]working-set.create", tokens, seed))

    def create_channel(self, element: str, shape: Sequence[int], capacity: int) -> NativeChannel:
        return NativeChannel(self, self.call("forward", "[static]channel.create", element, shape, capacity))

    def wait(self, submissions: Sequence[tuple[int, Any]], timeout: int | None) -> list[tuple[int, Any]]:
        found = self._thread.ask(lambda: self._wait([_submission(*one) for one in submissions], timeout))
        return [(ticket, _outcome(outcome)) for ticket, outcome in found]

    def give_up(self, ticket: int) -> None:
        self._thread.ask(lambda: self.guest.events.give_up(ticket))

    async def _wait(self, submissions: list[Any], timeout: int | None) -> list[Any]:
        woken = asyncio.Event()
        self.guest.wake = woken.set
        found = self.guest.events.wait(submissions, timeout)
        if isinstance(found, list):
            return found
        await woken.wait()
        return found.result()

    def drop(self, working_set: int) -> None:
        space = self.guest.space
        self._thread.tell(lambda: space.closed or space.drop(working_set))

    def close(self) -> None:
        self._thread.ask(lambda: (self.guest.events.close(), self.guest.space.close()))


class NativeWorkingSet:
    def __init__(self, host: NativeHost, number: int) -> None:
        self._host = host
        self.id = number

    def reserve(self, pages: int) -> None:
        self._call("reserve", pages)

    def capacity(self) -> int:
        return int(self._call("capacity"))

    def fork(self, seed: int | None = None) -> NativeWorkingSet:
        return NativeWorkingSet(self._host, self._call("fork", seed))

    def discard(self, first_page: int, count: int) -> None:
        self._call("discard", first_page, count)

    def close(self) -> None:
        self._drop()

    def __del__(self) -> None:
        self._drop()

    def _drop(self) -> None:
        """Not waited for: the collector may run in any thread."""
        number, self.id = self.id, 0
        if number:
            self._host.drop(number)

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._host.call("forward", f"[method]working-set.{method}", self.id, *arguments)


class NativeGrammar:
    def __init__(self, host: NativeHost, number: int) -> None:
        self._host = host
        self._number = number

    def matcher(self) -> NativeMatcher:
        return NativeMatcher(self._host, self._host.call("grammar", "[method]grammar.matcher", self._number))


class NativeMatcher:
    def __init__(self, host: NativeHost, number: int) -> None:
        self._host = host
        self.id = number

    def accept(self, tokens: list[int]) -> _host.MatcherState:
        return _host.MatcherState(*self._call("accept", tokens))

    def rollback(self, count: int) -> _host.MatcherState:
        return _host.MatcherState(*self._call("rollback", count))

    def state(self) -> _host.MatcherState:
        return _host.MatcherState(*self._call("state"))

    def fork(self) -> NativeMatcher:
        return NativeMatcher(self._host, self._call("fork"))

    def mask(self) -> list[int]:
        return list(self._call("mask"))

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._host.call("grammar", f"[method]matcher.{method}", self.id, *arguments)


class NativeChannel:
    def __init__(self, host: NativeHost, number: int) -> None:
        self._host = host
        self.id = number

    def put(self, value: _host.Elements) -> None:
        self._host.call("forward", "[method]channel.put", self.id, value)

    def set(self, value: _host.Elements) -> None:
        self._host.call("forward", "[method]channel.set", self.id, value)

    def close(self) -> None:
        self._host.guest.space.channels.drop(self.id)


def _submission(ticket: int, request: _host.Request) -> tuple[int, tuple[str, Any]]:
    match request:
        case _host.Forward(context, tokens, start, end, rows, epilogue, parameters, positions, mask, observed):
            call = (context.id, tokens, start, end, rows, epilogue, parameters, positions, mask, observed)
            embeds = [(after, _source(source)) for after, source in request.embeds]
            fetches = [(number, _source(source)) for number, source in request.fetches]
            return ticket, ("forward", (*call, embeds, fetches, request.puts, request.adapter))
        case _host.ChannelValue(channel, stays):
            return ticket, ("read-value" if stays else "take-value", channel)
        case _host.SaveSnapshot(context, name, length, note):
            return ticket, ("save-snapshot", (context.id, name, length, note))
        case _host.LoadSnapshot(context, name):
            return ticket, ("load-snapshot", (context.id, name))
    raise AssertionError(f"a native guest makes no {type(request).__name__}")


def _source(source: _host.Source) -> tuple[str, Any]:
    kind, first, second = source
    return kind, (first, second) if kind == "output" else first


def _outcome(outcome: Any) -> _host.Outcome:
    if isinstance(outcome, PieError):
        return from_code(outcome.code, str(outcome))
    kind, value = outcome
    if kind == "tensors":
        return [_host.Tensor(list(shape), list(elements)) for shape, (_, elements) in value]
    return "" if kind == "nothing" else str(value)


@contextmanager
def native(
    *,
    seed: int = 1,
    template: bool = True,
    opening: Callable[..., Any] = open_tiny,
    tokenizer: Any = None,
    **settings: Any,
) -> Iterator[Callable[..., Any]]:
    """A function that runs programs, each as an instance of its own with ``seed``, on one engine over the tiny model."""
    thread = EngineThread(opening, **settings)

    def run(program: Callable[[], Coroutine[Any, Any, T]], seed: int = seed) -> T:
        host = NativeHost(thread, seed, template, tokenizer or TinyTokenizer())
        fake: Any = host
        _host.install(fake)
        _forget()
        loop = _loop.Loop()
        try:
            return loop.run_until_complete(program())
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            host.close()

    run.thread = thread  # type: ignore[attr-defined]
    try:
        yield run
    finally:
        thread.close()


def _forget() -> None:
    """What one instance knows and the next must not."""
    for cached in (model.facts, model.adapters, model.attention_layers, chat._prefix, chat._stop_tokens):
        cached.cache_clear()
    _seeds._numbers = itertools.count()
