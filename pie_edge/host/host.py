"""Inferlets on one engine: start them, wait for them, end them."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pie_edge.errors import InferletCancelled, ResourceError, UsageError
from pie_edge.host import source
from pie_edge.host.compiled import load_component
from pie_edge.host.guest import Guest, Model, Turns
from pie_edge.host.instance import Instance, Outcome
from pie_edge.host.language import Progress
from pie_edge.host.limits import Limits
from pie_edge.host.sandbox import Sandbox, make_engine
from pie_edge.host.schedule import Schedule
from pie_edge.host.ticker import Ticker
from pie_edge.paths import cache_folder

if TYPE_CHECKING:
    from pie_edge.control.engine import Engine
    from pie_edge.tokenizer import Tokenizer

Sink = Callable[[str], None]
_LONGEST_INPUT = 16 * 2**20
_SEED_BITS = 64


def _ignore(text: str) -> None: ...


async def open_sandbox(cache_dir: Path | None = None, progress: Progress | None = None) -> Sandbox:
    """The language component, ready for instances; the first time on a machine it is built and compiled, which takes a quarter
    of a minute and which ``progress`` hears of. Raises Unsupported."""
    engine = make_engine()
    component = await asyncio.to_thread(load_component, engine, cache_dir or cache_folder(), progress)
    return Sandbox(engine, component)


class Host:
    """Carries inferlets on ``engine``. Make it with ``Host.open``, inside of a running loop; ``close`` ends what still runs."""

    def __init__(self, sandbox: Sandbox, engine: Engine, model: Model, limits: Limits, max_instances: int) -> None:
        self.limits = limits
        self._sandbox = sandbox
        self._engine = engine
        self._model = model
        self._max_instances = max_instances
        self._schedule = Schedule(asyncio.get_running_loop())
        self._ticker = Ticker(sandbox.engine)
        self._numbers = itertools.count(1)
        self._instances: set[Instance] = set()
        self._closed = False

    @classmethod
    async def open(
        cls,
        engine: Engine,
        tokenizer: Tokenizer,
        turns: Turns | None,
        limits: Limits | None = None,
        cache_dir: Path | None = None,
        progress: Progress | None = None,
        max_instances: int = 1000,
        sandbox: Sandbox | None = None,
    ) -> Host:
        """``turns`` is None for a model without a chat template. ``sandbox`` is that of ``open_sandbox``, if it was opened
        before, while the model was loading."""
        sandbox = sandbox or await open_sandbox(cache_dir, progress)
        return cls(sandbox, engine, Model(engine.facts, tokenizer, turns), limits or Limits(), max_instances)

    @property
    def instances(self) -> frozenset[Instance]:
        """Those that haven't ended."""
        return frozenset(self._instances)

    async def run(
        self,
        program: Path | str,
        input: Mapping[str, Any],
        *,
        name: str | None = None,
        seed: int | None = None,
        on_text: Sink = _ignore,
        on_log: Sink = _ignore,
        limits: Limits | None = None,
    ) -> Outcome:
        """Runs ``program``, a path or a source text, to its end. Raises one of InferletError's kinds.

        ``on_text`` gets what it prints and what it sends; ``on_log`` what it logs, and its standard error. What they raise
        ends the inferlet, and is raised here. Cancelling this ends the inferlet too.
        """
        instance = self._start(program, input, name, seed, on_text, on_log, limits, has_client=False)
        try:
            return await instance.result()
        except asyncio.CancelledError:
            instance.cancel("whoever ran it stopped waiting")
            raise

    def launch(
        self,
        program: Path | str,
        input: Mapping[str, Any],
        *,
        name: str | None = None,
        seed: int | None = None,
        on_text: Sink = _ignore,
        on_log: Sink = _ignore,
        limits: Limits | None = None,
    ) -> Instance:
        """Starts ``program`` beside its client, who sends and receives messages.

        Raises InferletInvalid for a source that can't be read, UsageError for an input without a JSON form, ResourceError
        if too many instances are alive.
        """
        return self._start(program, input, name, seed, on_text, on_log, limits, has_client=True)

    async def close(self) -> None:
        """Ends all instances with InferletCancelled, and the clock."""
        self._closed = True
        for instance in list(self._instances):
            instance.cancel("the host was closed")
        await asyncio.to_thread(self._ticker.close)

    def _start(
        self,
        program: Path | str,
        input: Mapping[str, Any],
        name: str | None,
        seed: int | None,
        on_text: Sink,
        on_log: Sink,
        limits: Limits | None,
        has_client: bool,
    ) -> Instance:
        if self._closed:
            raise InferletCancelled("the host was closed; it starts no more inferlets")
        if len(self._instances) >= self._max_instances:
            raise ResourceError(
                f"{len(self._instances)} inferlets are alive, the most is {self._max_instances}; wait for one to end"
            )
        limits = limits or self.limits
        loaded = source.load(program, limits.source)
        document = _document(input)
        name = name or Path(loaded.path).stem
        guest = self._guest(
            loaded, name, secrets.randbits(_SEED_BITS) if seed is None else seed, on_text, on_log, limits, has_client
        )
        instance = Instance(self._sandbox, self._ticker, guest, document, self._instances.discard)
        guest.wake = lambda: self._schedule.wake(instance)
        self._instances.add(instance)
        guest.wake()
        return instance

    def _guest(
        self, loaded: source.Source, name: str, seed: int, on_text: Sink, on_log: Sink, limits: Limits, has_client: bool
    ) -> Guest:
        space = self._engine.open_space(name, seed)
        return Guest(
            number=next(self._numbers),
            name=name,
            source=loaded,
            limits=limits,
            model=self._model,
            space=space,
            has_client=has_client,
            text_sink=on_text,
            log_sink=on_log,
        )


def _document(input: Mapping[str, Any]) -> str:
    try:
        document = json.dumps(dict(input))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the input has no JSON form: {error}; pass numbers, strings, booleans, None, lists and dicts"
        ) from None
    if len(document) > _LONGEST_INPUT:
        raise UsageError(
            f"the input is {len(document):,} bytes of JSON, the most is {_LONGEST_INPUT:,}; send long data as messages"
        )
    return document
