"""Which variants of the hot kernels are fastest here: measured on the device, kept by device, driver and kernels.

Each choice is made by itself, starting from the defaults: a few variants run a chain of one kernel at a representative size,
and the fastest is taken if it is faster by more than what measuring wavers. A driver that refuses a variant loses only that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pie_edge.backends.vulkan.compiler import Compiler
from pie_edge.backends.vulkan.device import Facts, open_gpu
from pie_edge.backends.vulkan.loader import Loader
from pie_edge.backends.vulkan.remembered import Record
from pie_edge.backends.vulkan.selftest import MadeWeight
from pie_edge.backends.vulkan.session import Session
from pie_edge.backends.vulkan.tuning import AttentionVariant, LinearVariant, Tuning, default_tuning
from pie_edge.errors import PieError
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, DType
from pie_edge.program.ops import Program, Role
from pie_edge.program.step import Bucket, StepInputs, StepLayout
from pie_edge.program.trace import Trace

MARGIN = 0.05
"""A variant has to be faster by this share to replace the default."""
SHORT_SECONDS = 1.5
"""What the tuning of a first load may take."""
_ENCODING = Affine(4, 32, DType.F16, None)
_WIDTH = 1024
"""Rows and columns of the matrix that is measured: between a small model's and a large one's."""
_LINKS = 8
_HEADS, _KV_HEADS, _HEAD, _PAGE, _KEYS = 9, 3, 64, 16, 1024


@dataclass(frozen=True, slots=True)
class Choice:
    """What was measured for one kernel: seconds by variant, and the one that was taken."""

    kernel: str
    seconds: Mapping[str, float]
    taken: str

    def __str__(self) -> str:
        """The times of all variants, the default first, and which was taken."""
        number = list(self.seconds).index(self.taken)
        times = ", ".join(f"{1e6 * value:.0f}" for value in self.seconds.values())
        return f"{self.kernel}: {times} µs; {'the default stays' if not number else f'variant {number} is taken'}"


@dataclass(frozen=True, slots=True)
class Chain:
    """A Program of one kernel after the other, each reading what the one before gave; and its inputs."""

    program: Program
    block: bytes


def tune_device(device: str, cache_dir: Path, report: Callable[[str], None]) -> None:
    """``pie-edge tune``: try all variants on a device by its name, and remember the best. Raises BackendUnavailable."""
    gpu = open_gpu(device)
    session = Session(gpu, gpu.facts.memory, cache_dir)
    try:
        found = tune(session, default_tuning(gpu.facts), report=lambda choice: report(str(choice)))
        remember(gpu.facts, cache_dir, found)
    finally:
        session.close()


def remembered(facts: Facts, cache_dir: Path | None) -> Tuning | None:
    """What an earlier tuning found for this device with this driver and these kernels."""
    found = Record(facts, cache_dir, "tuning").read()
    try:
        return None if found is None else _tuning(found)
    except (KeyError, TypeError, ValueError):
        return None


def remember(facts: Facts, cache_dir: Path | None, tuning: Tuning) -> None:
    Record(facts, cache_dir, "tuning").write(asdict(tuning))


def _tuning(found: Mapping[str, Any]) -> Tuning:
    linear = tuple((int(tokens), LinearVariant(**variant)) for tokens, variant in found["linear"])
    attention = {name: AttentionVariant(**found[name]) for name in ("decode", "prefill")}
    return Tuning(**{**found, **attention, "linear": linear})


def tune(
    session: Session, default: Tuning, seconds: float = 60.0, report: Callable[[Choice], None] = lambda choice: None
) -> Tuning:
    """The best of the variants that could be measured in so many seconds; each kernel is reported when it is decided."""
    tuner = _Tuner(session, time.perf_counter() + seconds, report)
    facts, found = session.gpu.facts, default
    if not facts.software:
        wider = (replace(found, interleaved=lanes) for lanes in (16, 64) if lanes != found.interleaved)
        found = tuner.best("rows interleaved", _products(1), found, wider)
    for tokens, variant in default.linear:
        others = (_with_linear(found, tokens, other) for other in _linear_variants(facts, variant))
        found = tuner.best(f"linear, {tokens} tokens", _products(tokens), found, others)
    found = tuner.best("attention, a decode", _attentions(1), found, _decodes(found))
    return tuner.best("attention, a prefill", _attentions(64), found, _prefills(found))


def _with_linear(tuning: Tuning, tokens: int, variant: LinearVariant) -> Tuning:
    return replace(tuning, linear=tuple((t, variant if t == tokens else v) for t, v in tuning.linear))


def _linear_variants(facts: Facts, variant: LinearVariant) -> Iterator[LinearVariant]:
    """All but the default. Software shares no columns among invocations: they would only wait for each other."""
    if variant.tile:
        yield from (replace(variant, groups=groups) for groups in (1, 2, 4) if groups != variant.groups)
        return
    for splits in (1,) if facts.software else (1, 2, 4, 8):
        for groups in (8, 12, 16) if facts.software else (1, 2, 4):
            if (splits, groups) != (variant.splits, variant.groups):
                yield LinearVariant(splits, groups)


def _decodes(tuning: Tuning) -> Iterator[Tuning]:
    given = tuning.decode
    for chunk in (given.chunk // 2, 2 * given.chunk):
        yield replace(tuning, decode=replace(given, chunk=chunk))


def _prefills(tuning: Tuning) -> Iterator[Tuning]:
    """Rows by invocation as they are held by default, or by workgroup whatever their width."""
    given = tuning.prefill
    for rows in (given.rows, 2 * given.rows):
        yield replace(tuning, held=0, prefill=replace(given, rows=rows))


class _Tuner:
    def __init__(self, session: Session, deadline: float, report: Callable[[Choice], None]) -> None:
        self._session = session
        self._deadline = deadline
        self._report = report

    def best(self, kernel: str, chain: Chain, default: Tuning, others: Iterable[Tuning]) -> Tuning:
        seconds, best = {str(default): self._measure(chain, default)}, default
        for variant in others:
            if time.perf_counter() > self._deadline:
                break
            try:
                seconds[str(variant)] = self._measure(chain, variant)
            except PieError:
                continue
            if seconds[str(variant)] < seconds[str(best)]:
                best = variant
        if seconds[str(best)] > (1 - MARGIN) * seconds[str(default)]:
            best = default
        self._report(Choice(kernel, seconds, str(best)))
        return best

    def _measure(self, chain: Chain, tuning: Tuning) -> float:
        """Seconds of a link: the least of a few runs of the chain."""
        session, values = self._session, chain.program.values
        loader = Loader(session, tuning.interleaved, session.gpu.facts.max_binding)
        weights = {
            v.name: loader.load(v, MadeWeight(v.shape, _ENCODING, 1)) for v in chain.program.by_role(Role.WEIGHT)
        }
        states = {
            v.name: session.device_buffer(values[v.name].nbytes, "tuning").region()
            for v in chain.program.by_role(Role.STATE)
        }
        compiler = Compiler(session, loader, tuning, session.gpu.facts.max_binding)
        recorded = compiler.compile(chain.program, states, weights)

        def once() -> float:
            started = time.perf_counter()
            session.timeline.wait(recorded.run({"step": chain.block}).value)
            return time.perf_counter() - started

        once()  # compiles what the driver left for the first run
        best = min(once() for _ in range(5))
        for region in states.values():
            session.free(region.buffer)
        for weight in weights.values():
            loader.free(weight)
        compiler.close()
        return best / _LINKS


def _products(tokens: int) -> Chain:
    """x · wᵀ · wᵀ …"""
    t, layout = Trace("tune-linear"), StepLayout(Bucket(tokens, 1, 1, 1))
    t.step(layout)
    x = t.state("x", DType.F32, (tokens, _WIDTH))
    weight = t.weight("w", (_WIDTH, _WIDTH), _ENCODING)
    for _ in range(_LINKS):
        x = ops.linear(t, x, weight)
    return Chain(t.build(), layout.pack(_step(tokens, 0)).tobytes())


def _attentions(rows: int) -> Chain:
    """Attention over 1,024 keys with the queries that the attention before gave."""
    entries = _KEYS // _PAGE
    t, layout = Trace("tune-attention"), StepLayout(Bucket(rows, 1, 1, entries))
    fields = t.step(layout)
    x = t.state("x", DType.F32, (rows, _HEADS * _HEAD))
    cache = (
        t.state("k", DType.F16, (entries, _KV_HEADS, _HEAD // 8, _PAGE, 8)),
        t.state("v", DType.F16, (entries, _KV_HEADS, _PAGE, _HEAD)),
        t.state("key_positions", DType.U32, (entries, _PAGE)),
    )
    for _ in range(_LINKS):
        x = ops.attention(t, x, fields, cache, heads=_HEADS, kv_heads=_KV_HEADS, scale=_HEAD**-0.5)
    return Chain(t.build(), layout.pack(_step(rows, entries)).tobytes())


def _step(rows: int, entries: int) -> StepInputs:
    """One sequence that sees all its keys."""
    return StepInputs(
        token_src=[0] * rows,
        positions=[_KEYS] * rows,
        row_index=[_KEYS] * rows,
        write_slots=[0] * rows,
        query_starts=[0, rows],
        page_starts=[0, entries],
        pages=list(range(entries)),
        page_bits=[(1 << _PAGE) - 1] * entries,
        fresh_bits=[0] * entries,
        sample_rows=[0],
        draw_keys=[0, 0],
    )
