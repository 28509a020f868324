"""The whole put together: a checkpoint, a backend, the engine, a tokenizer and the Wasm host, to run inferlets with."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pie_edge import __version__
from pie_edge.backend import Stop, in_thread
from pie_edge.backend_choice import Choice, choose, open_backend
from pie_edge.config import Settings
from pie_edge.control.engine import Engine
from pie_edge.control.facts import ModelFacts
from pie_edge.control.plan import DeviceSettings
from pie_edge.control.replicas import Replicas
from pie_edge.control.statistics import Timeline
from pie_edge.control.usage import Usage
from pie_edge.errors import BackendUnavailable
from pie_edge.host import Host, Limits, memory
from pie_edge.model import registry
from pie_edge.model.adapters import Adapters, find_module, targets
from pie_edge.model.pooling import pooling
from pie_edge.model.recommended import recommended
from pie_edge.model.spec import Family, Spec
from pie_edge.paths import cache_folder
from pie_edge.spill import FileSpill
from pie_edge.text import open_text
from pie_edge.weights import hub, store
from pie_edge.weights.adapters import stack
from pie_edge.weights.checkpoint import Checkpoint, open_checkpoint
from pie_edge.weights.fingerprint import fingerprint
from pie_edge.weights.peft import read_peft
from pie_edge.weights.source import weight_sources


class Progress(Protocol):
    """Where long work tells how far it is: units done, units in all (0 if unknown), and what is being done."""

    def __call__(self, done: int, total: int, what: str) -> None: ...


def _silent(done: int, total: int, what: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RunResult:
    """What an inferlet gave. ``timings`` are seconds, but ``tokens_per_second``: rows read out after the first one.
    ``swap_rate`` is how many parked pages came back to the device per step, of whatever inferlets, in the last 64 steps."""

    result: Any
    usage: dict[str, Any]
    timings: dict[str, float]
    swap_rate: float = 0.0


class Runtime:
    """One model on one device or several, ready to run inferlets. Made by ``open_runtime``."""

    def __init__(
        self, engine: Engine | Replicas, host: Host, checkpoint: Checkpoint, choice: Choice, load: float
    ) -> None:
        self.engine = engine
        self.host = host
        self.choice = choice
        self.load = load
        self._checkpoint = checkpoint

    async def run(
        self,
        program: Path | str,
        input: dict[str, Any],
        *,
        seed: int | None = None,
        on_text: Callable[[str], None] = lambda text: None,
        on_log: Callable[[str], None] = lambda text: None,
    ) -> RunResult:
        """Run an inferlet, a file or a source text, to its end. Raises InferletError, or what the host refuses."""
        started = time.perf_counter()
        outcome = await self.host.run(program, input, seed=seed, on_text=on_text, on_log=on_log)
        usage = outcome.usage
        timings = {"load": self.load} | outcome.timings
        if usage.first_result:
            timings["time_to_first_token"] = usage.first_result - started
        if usage.read_rows > 1 and usage.last_result > usage.first_result:
            timings["tokens_per_second"] = (usage.read_rows - 1) / (usage.last_result - usage.first_result)
        counts: dict[str, Any] = _counts(usage)
        if outcome.children.passes:
            counts["children"] = _counts(outcome.children)
        rate = sum(engine.residency.pressure.rate for engine in self.engine.engines)
        return RunResult(outcome.result, counts, timings, rate)

    def metrics(self) -> dict[str, Any]:
        """What it has done and is doing, as ``control.metrics`` has it, with ``info``: text about model and device."""
        facts, choice = self.engine.facts, self.choice
        info = {"version": __version__, "model": facts.name, "architecture": facts.architecture}
        return {"info": info | {"backend": choice.backend, "device": choice.named}} | self.host.metrics()

    def follow(self, timeline: Timeline) -> None:
        """From now on what happens is written down there."""
        self.host.follow(timeline)

    async def close(self) -> None:
        await self.host.close()
        await self.engine.close()
        self._checkpoint.close()


async def open_runtime(
    model: str,
    settings: Settings,
    *,
    backend: str | None = None,
    device: str | None = None,
    progress: Progress = _silent,
) -> Runtime:
    """Fetch the model if need be, choose a device, load. Raises ModelError or BackendError; nothing is left open then."""
    started = time.perf_counter()
    choice = choose(backend or settings.backend, device or settings.device)
    stop = Stop()
    path = await in_thread(hub.ensure, model, stop.watched(progress), stop=stop)
    checkpoint = open_checkpoint(path)
    try:
        facts = registry.facts(checkpoint, settings.context)
        spec, family = registry.read(facts), registry.family(facts)
        # The tokenizer is built on another thread while the weights are on their way.
        language = asyncio.create_task(asyncio.to_thread(open_text, checkpoint, spec.vocabulary))
        try:
            engine = await _open_engines(model, checkpoint, spec, family, choice, settings, progress)
        except BaseException:
            await asyncio.gather(language, return_exceptions=True)
            raise
        try:
            tokenizer, turns = await language
            checkpoint.release()
            host = await Host.open(
                engine,
                tokenizer,
                turns,
                limits=Limits(memory=settings.limits.memory, time=settings.limits.time, http=settings.limits.http),
                cache_dir=cache_folder(),
                progress=progress,
                max_instances=settings.max_instances or memory.room(),
                data=store.home(),
                fingerprint=functools.partial(fingerprint, checkpoint, family.weights(spec)),
                template="" if turns is None else turns.source,
                top_k=settings.top_k,
            )
        except BaseException:
            await engine.close()
            raise
    except BaseException:
        checkpoint.close()
        raise
    return Runtime(engine, host, checkpoint, choice, time.perf_counter() - started)


async def _open_engines(
    name: str,
    checkpoint: Checkpoint,
    spec: Spec,
    family: Family,
    choice: Choice,
    settings: Settings,
    progress: Progress,
) -> Engine | Replicas:
    """One on each device that was chosen."""
    engines: list[Engine] = []
    try:
        for device in choice.devices:
            engines.append(await _open_engine(name, checkpoint, spec, family, choice, device, settings, progress))
    except BaseException:
        for engine in engines:
            await engine.close()
        raise
    return engines[0] if len(engines) == 1 else Replicas(engines)


async def _open_engine(
    name: str,
    checkpoint: Checkpoint,
    spec: Spec,
    family: Family,
    choice: Choice,
    device: str,
    settings: Settings,
    progress: Progress,
) -> Engine:
    opened = await open_backend(
        choice,
        device=device,
        threads=settings.threads,
        memory=settings.memory,
        exact=settings.exact,
        cache_dir=cache_folder(),
        tune=settings.tune,
        progress=progress,
    )
    try:
        if settings.deterministic and not opened.limits.batch_invariant:
            raise BackendUnavailable(
                f"deterministic is set, and {choice.backend} computes a row differently beside others; "
                "use --backend cpu, or leave it off"
            )
        adapters = _read_adapters(settings.adapters, family, spec)
        pooled = pooling(checkpoint, settings.pooling)
        sources = weight_sources(checkpoint.tensors, family.weights(spec), opened.limits.supports)
        weights = {weight: (source.target, source) for weight, source in sources.items()}
        facts = ModelFacts(
            name=Path(name).stem if Path(name).exists() else name,
            architecture=spec.architecture,
            vocabulary=spec.vocabulary,
            context=spec.context,
            page_size=settings.page_size,
            licence=str(checkpoint.config.get("general.license", "")),
            description=str(checkpoint.config.get("general.name", "")),
            version=str(checkpoint.config.get("general.version", "")),
            hidden=spec.hidden,
            pooling=pooled.kind,
            unpooled=pooled.refusal,
            sampling=recommended(checkpoint) if settings.generation_config else (),
        )
        spill = FileSpill(cache_folder() / "parked")
        chosen = device_settings(settings)
        return await Engine.open(facts, spec, family, weights, opened, chosen, progress, spill, adapters)
    except BaseException:
        await opened.close()
        raise


def _read_adapters(named: Sequence[str], family: Family, spec: Spec) -> Adapters | None:
    if not named:
        return None
    folders = dict(one.split("=", 1) for one in named)
    read = {name: read_peft(Path(folder).expanduser()) for name, folder in folders.items()}
    known = targets(family, spec)
    rank, stacked = stack(read, lambda module: find_module(module, known))
    return Adapters(tuple(read), rank, {name: memoryview(values).cast("B") for name, values in stacked.items()})


def device_settings(settings: Settings) -> DeviceSettings:
    """What the settings say of a device's memory and steps."""
    return DeviceSettings(
        page_size=settings.page_size,
        memory=settings.memory,
        kv_memory=settings.kv_memory,
        state_memory=settings.state_memory,
        park_memory=settings.park_memory,
        speculation_depth=settings.speculation_depth,
    )


def _counts(usage: Usage) -> dict[str, int]:
    """What an inferlet used, as ``--json`` shows it: tokens, but for ``passes``, ``…_pages``, ``…_states``, and run-ahead's
    hits and misses."""
    return {
        "forwarded": usage.forwarded_tokens,
        "sampled": usage.read_rows,
        "passes": usage.passes,
        "cached": usage.cached_tokens,
        "recomputed": usage.recomputed_tokens,
        "evicted_pages": usage.evicted_pages,
        "parked_pages": usage.parked_pages,
        "restored_pages": usage.restored_pages,
        "released_pages": usage.released_pages,
        "parked_states": usage.parked_states,
        "restored_states": usage.restored_states,
        "predicted": usage.predicted,
        "mispredicted": usage.mispredicted,
    }
