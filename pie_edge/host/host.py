"""Inferlets on an engine, or on several: start them, wait for them, end them."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pie_edge.control.metrics import metrics
from pie_edge.control.replicas import Replicas, follow
from pie_edge.errors import InferletCancelled, ResourceError, TemplateError, UsageError
from pie_edge.host import source
from pie_edge.host.compiled import load_component
from pie_edge.host.constraints import Constraints
from pie_edge.host.facilities import Facilities, Launch
from pie_edge.host.guest import Guest, Model, Turns
from pie_edge.host.instance import ENDINGS, Instance, Outcome, State
from pie_edge.host.language import Progress
from pie_edge.host.limits import Limits
from pie_edge.host.sandbox import Sandbox, make_engine
from pie_edge.host.schedule import Schedule
from pie_edge.host.snapshots import Snapshots
from pie_edge.host.store import Store
from pie_edge.host.ticker import Ticker
from pie_edge.paths import cache_folder

if TYPE_CHECKING:
    from pie_edge.control.engine import Engine
    from pie_edge.control.statistics import Timeline, TokenSink
    from pie_edge.tokenizer import Tokenizer

Sink = Callable[[str], None]
_LONGEST_INPUT = 16 * 2**20
_LONGEST_NAME = 128
_SEED_BITS = 64


def _ignore(text: str) -> None: ...


async def open_sandbox(cache_dir: Path | None = None, progress: Progress | None = None) -> Sandbox:
    """The language component, ready for instances; the first time on a machine it is built and compiled, which takes a quarter
    of a minute and which ``progress`` hears of. Raises Unsupported."""
    engine = make_engine()
    component = await asyncio.to_thread(load_component, engine, cache_dir or cache_folder(), progress)
    return Sandbox(engine, component)


@dataclass(frozen=True, slots=True)
class _Start:
    """An inferlet that is about to start; ``input`` is its JSON."""

    source: source.Source
    name: str
    input: str
    seed: int
    on_text: Sink
    on_log: Sink
    limits: Limits
    has_client: bool
    parent: Guest | None = None


class Host:
    """Carries inferlets on ``engine``. Make it with ``Host.open``, inside of a running loop; ``close`` ends what still runs."""

    def __init__(
        self,
        sandbox: Sandbox,
        engine: Engine | Replicas,
        model: Model,
        limits: Limits,
        max_instances: int,
        top_k: int,
        store: Store | None,
        snapshots: Snapshots | None,
    ) -> None:
        self.limits = limits
        self._sandbox = sandbox
        self._engine = engine
        self._model = model
        self._max_instances = max_instances
        self._schedule = Schedule(asyncio.get_running_loop())
        self._ticker = Ticker(sandbox.engine)
        self._numbers = itertools.count(1)
        self._instances: set[Instance] = set()
        self._endings: Counter[State] = Counter()
        self._closed = False
        self._facilities = Facilities(
            open_handles=lambda space: engine.handles(space, top_k),
            launch=self._launch_child,
            store=store,
            snapshots=snapshots,
        )

    @classmethod
    async def open(
        cls,
        engine: Engine | Replicas,
        tokenizer: Tokenizer,
        turns: Turns | None,
        limits: Limits | None = None,
        cache_dir: Path | None = None,
        progress: Progress | None = None,
        max_instances: int = 1000,
        sandbox: Sandbox | None = None,
        data: Path | None = None,
        fingerprint: Callable[[], str] | None = None,
        template: str = "",
        top_k: int = 256,
    ) -> Host:
        """``turns`` is None for a model without a chat template, whose text is ``template``. ``sandbox`` is that of
        ``open_sandbox``, if it was opened before, while the model was loading. ``data`` is the folder of the store and of
        snapshots, for which ``fingerprint`` tells models apart; without it there are none. ``top_k`` is how many tokens a
        level 1 distribution has."""
        sandbox = sandbox or await open_sandbox(cache_dir, progress)
        facts = engine.facts
        told_apart = fingerprint or (lambda: hashlib.sha256(repr(facts).encode()).hexdigest())
        return cls(
            sandbox,
            engine,
            Model(
                replace(facts, context=engine.abilities.longest),
                tokenizer,
                turns,
                Constraints(tokenizer, facts.vocabulary),
                engine.abilities,
                template,
            ),
            limits or Limits(),
            max_instances,
            top_k,
            None if data is None else Store(data / "store.sqlite3"),
            None if data is None else Snapshots(data / "snapshots", engine, facts.name, told_apart),
        )

    @property
    def instances(self) -> frozenset[Instance]:
        """Those that haven't ended."""
        return frozenset(self._instances)

    @property
    def chats(self) -> bool:
        """Whether the model has a chat template."""
        return self._model.turns is not None

    @property
    def thinks(self) -> Literal["never", "always", "switched"]:
        """Whether the model thinks before it answers, and whether that can be switched."""
        return "never" if self._model.turns is None else self._model.turns.thinks

    @property
    def takes_tools(self) -> bool:
        """Whether conversations may have tools."""
        return self._model.turns is not None and self._model.turns.takes_tools

    def metrics(self) -> dict[str, Any]:
        """The engine's figures, and what its inferlets took; plain data."""
        found, turns = metrics(self._engine.engines), self._schedule.turns
        found["counters"] |= {"guest_seconds": turns.sum}
        found["counters"] |= {f"inferlets_{state}": self._endings[state] for state in ENDINGS}
        found["gauges"]["inferlets"] = len(self._instances)
        found["histograms"]["guest_turn_seconds"] = turns.snapshot()
        return found

    def follow(self, timeline: Timeline) -> None:
        """From now on what happens is written down there."""
        self._schedule.timeline = timeline
        follow(self._engine.engines, timeline)

    def follow_tokens(self, sink: TokenSink) -> None:
        """From now on it hears of the tokens that inferlets read and choose."""
        for engine in self._engine.engines:
            engine.statistics.tokens = sink

    @property
    def lost(self) -> str:
        """Why no inferlet can compute anything any more; nothing while a device serves."""
        return self._engine.lost

    def when_lost(self, heard: Callable[[], None]) -> None:
        """``heard`` is called when a device is given up."""
        for engine in self._engine.engines:
            engine.on_lost = heard

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
        input: Mapping[str, Any] | str,
        *,
        name: str | None = None,
        seed: int | None = None,
        on_text: Sink = _ignore,
        on_log: Sink = _ignore,
        limits: Limits | None = None,
    ) -> Instance:
        """Starts ``program`` beside its client, who sends and receives messages. An ``input`` that is text is JSON already: it is
        for the inferlet to read, and nobody else does.

        Raises InferletInvalid for a source that can't be read, UsageError for an input without a JSON form, ResourceError
        if too many instances are alive.
        """
        return self._start(program, input, name, seed, on_text, on_log, limits, has_client=True)

    async def prepare(self) -> None:
        """What the first requests would wait for, and everybody with them: the vocabulary as a tree, for grammars, takes up to a
        second, and compiling the chat template 20 ms. A server does it before it takes requests."""
        await asyncio.to_thread(self._model.constraints.prepare)
        if self._model.turns is not None:
            with suppress(TemplateError):
                await asyncio.to_thread(self._model.turns.conversation, [{"role": "user", "content": "Hello"}])

    async def close(self) -> None:
        """Ends all instances with InferletCancelled, and the clock."""
        self._closed = True
        for instance in list(self._instances):
            instance.cancel("the host was closed")
        if self._facilities.store is not None:
            self._facilities.store.close()
        await asyncio.to_thread(self._ticker.close)

    def _start(
        self,
        program: Path | str,
        input: Mapping[str, Any] | str,
        name: str | None,
        seed: int | None,
        on_text: Sink,
        on_log: Sink,
        limits: Limits | None,
        has_client: bool,
    ) -> Instance:
        self._check_room()
        limits = limits or self.limits
        loaded = source.load(program, limits.source)
        document = _short_enough(input) if isinstance(input, str) else _document(input)
        chosen = secrets.randbits(_SEED_BITS) if seed is None else seed
        name = name or Path(loaded.path).stem
        return self._admit(_Start(loaded, name, document, chosen, on_text, on_log, limits, has_client))

    def _launch_child(self, parent: Guest, launch: Launch) -> Instance:
        self._check_room()
        name = launch.name or Path(launch.source.path).stem
        if len(name) > _LONGEST_NAME or not name.isprintable():
            raise UsageError(
                f"{parent.name} names a child {name[:80]!r}; give 1 to {_LONGEST_NAME} printable characters"
            )
        limits = replace(
            parent.limits,
            time=min((one for one in (parent.limits.time, launch.time or 0.0) if one > 0), default=0.0),
            memory=min(parent.limits.memory, launch.memory or parent.limits.memory),
        )
        start = _Start(
            launch.source,
            name,
            _checked_document(launch.input),
            launch.seed,
            parent.text_sink,
            parent.log_sink,
            limits,
            has_client=True,
            parent=parent,
        )
        return self._admit(start)

    def _check_room(self) -> None:
        if self._closed:
            raise InferletCancelled("the host was closed; it starts no more inferlets")
        if len(self._instances) >= self._max_instances:
            raise ResourceError(
                f"{len(self._instances)} inferlets are alive, the most is {self._max_instances}; wait for one to end"
            )

    def _admit(self, start: _Start) -> Instance:
        parent = start.parent
        guest = Guest(
            number=next(self._numbers),
            name=start.name,
            source=start.source,
            limits=start.limits,
            model=self._model,
            space=self._engine.open_space(start.name, start.seed, None if parent is None else parent.space),
            has_client=start.has_client,
            text_sink=start.on_text,
            log_sink=start.on_log,
            facilities=self._facilities,
            generation=0 if parent is None else parent.generation + 1,
        )

        def ended(instance: Instance) -> None:
            self._instances.discard(instance)
            self._endings[instance.state] += 1
            if parent is not None:
                parent.children.ended(instance)

        instance = Instance(self._sandbox, self._ticker, guest, start.input, ended)
        guest.wake = lambda: self._schedule.wake(instance)
        self._instances.add(instance)
        self._schedule.start(instance)
        return instance


def _checked_document(text: str) -> str:
    """JSON that a guest wrote."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the input is no JSON: {error}; pass an object") from None
    if not isinstance(value, dict):
        raise UsageError(f"the input is {type(value).__name__} in JSON; pass an object")
    return _document(value)


def _document(input: Mapping[str, Any]) -> str:
    try:
        document = json.dumps(dict(input))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the input has no JSON form: {error}; pass numbers, strings, booleans, None, lists and dicts"
        ) from None
    return _short_enough(document)


def _short_enough(document: str) -> str:
    if len(document) > _LONGEST_INPUT:
        raise UsageError(
            f"the input is {len(document):,} bytes of JSON, the most is {_LONGEST_INPUT:,}; send long data as messages"
        )
    return document
