"""A chain of one hot kernel with one choice of variants, compiled: what ``tune.py`` times."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.shared.examination import TOLERANCE
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.remembered import Subject
from pie_edge.backends.shared.selftest import MadeWeight, wave
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, DType, Encoding
from pie_edge.program.ops import Program, Role, Value
from pie_edge.program.step import Bucket, StepInputs, StepLayout
from pie_edge.program.trace import Trace

_WIDTH = 1024
"""Rows and columns of the matrix that is measured: between a small model's and a large one's."""
_LINKS = 8
KEPT = "kept"
_HEADS, _KV_HEADS, _HEAD, _PAGE, _KEYS = 9, 3, 64, 16, 1024


FOURS = Affine(4, 32, DType.F16, None)
_SIXES, _BYTES = Affine(6, 16, DType.F32, 32), Affine(8, 16, DType.F32, 32)


@dataclass(frozen=True, slots=True)
class Chain:
    """A Program of one kernel after the other, each reading what the one before gave; and its inputs."""

    program: Program
    block: bytes
    made: Encoding | None = None
    """Whose codes the weights have, where it isn't their own encoding's."""


@dataclass(frozen=True)
class Bench:
    """An open device to try variants on."""

    subject: Subject
    software: bool
    session: Any
    compiler: Callable[[Any, Loader[Any], Any, int], Any]
    max_binding: int
    default: Any
    """A backend's own tuning: a frozen dataclass with ``interleaved`` rows, and ``restored`` from a record."""
    finish: Callable[[], None]
    """Block until everything that was enqueued is done, and no longer."""
    search: Callable[[Any], Any]
    """Of a ``tune.Tuner``: tries variants kernel by kernel, and gives the best of all."""


class Trial:
    """A chain ready to run. Raises what compiling it raises: a driver may refuse a variant."""

    def __init__(self, bench: Bench, chain: Chain, tuning: Any) -> None:
        self._bench = bench
        self._block = chain.block
        self._loader: Loader[Any] = Loader(bench.session, tuning.interleaved, bench.max_binding)
        self._compiler = bench.compiler(bench.session, self._loader, tuning, bench.max_binding)
        self._weights = {
            v.name: self._loader.load(v, MadeWeight(v.shape, chain.made or v.encoding, 1))
            for v in chain.program.by_role(Role.WEIGHT)
            if v.encoding is not None
        }
        self._states = {
            v.name: bench.session.device_buffer(v.nbytes, "tuning").region() for v in chain.program.by_role(Role.STATE)
        }
        for v in chain.program.by_role(Role.STATE):
            bench.session.upload(self._states[v.name].part(0, v.nbytes), memoryview(_filled(v).tobytes()))
        self._recorded = self._compiler.compile(chain.program, self._states, self._weights)
        self.seconds()  # compiles what the driver left for the first run
        self.result = self._kept(chain.program.values[KEPT])

    def agrees(self, other: Trial) -> bool:
        """Whether they compute the same but for rounding."""
        largest = float(np.abs(other.result).max())
        return bool(
            np.abs(self.result - other.result).max() <= TOLERANCE * largest
        )  # nothing compares with what is no number

    def _kept(self, value: Value) -> NDArray[np.float32]:
        flight = self._bench.session.download([self._states[value.name].part(0, value.nbytes)])
        self._bench.finish()
        (data,) = flight.outputs().values()
        return np.frombuffer(data, np.float32)

    def seconds(self) -> float:
        """Of a link, in one run of the chain."""
        started = time.perf_counter()
        self._recorded.run({"step": self._block})
        self._bench.finish()
        return (time.perf_counter() - started) / _LINKS

    def close(self) -> None:
        for region in self._states.values():
            self._bench.session.free(region.buffer)
        for weight in self._weights.values():
            self._loader.free(weight)
        self._compiler.close()


def always(chain: Chain) -> Callable[[Any], Chain]:
    """One that every variant runs."""
    return lambda tuning: chain


def products(tokens: int, encoding: Encoding) -> Chain:
    """x · wᵀ · wᵀ …"""
    t, layout = Trace("tune-linear"), StepLayout(Bucket(tokens, 1, 1, 1))
    t.step(layout)
    x = t.state("x", DType.F32, (tokens, _WIDTH))
    weight = t.weight("w", (_WIDTH, _WIDTH), encoding)
    for link in range(_LINKS):
        x = ops.linear(t, x, weight)
        if link == 0:
            _keep(t, x)
    return Chain(t.build(), layout.pack(_step(tokens, 0)).tobytes())


def _keep(t: Trace, first: Value) -> None:
    """What the first link gave, by which variants are compared: further on, what they round differently grows."""
    ops.store(t, first, t.state(KEPT, DType.F32, first.shape))


def _filled(value: Value) -> NDArray[Any]:
    """Of a state: noise, or for the places of keys one after the other."""
    if value.dtype is DType.U32:
        return np.arange(value.size, dtype=np.uint32)
    return wave(value.size, len(value.name)).astype(np.float16 if value.dtype is DType.F16 else np.float32)


def of_six_bits(tuning: Any) -> Chain:
    """A decode's products with codes of six bits: as they are, or as the bytes that they become."""
    return replace(products(1, _SIXES if tuning.odd_bits else _BYTES), made=_SIXES)


def attentions(rows: int) -> Chain:
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
    for link in range(_LINKS):
        x = ops.attention(t, x, fields, cache, heads=_HEADS, kv_heads=_KV_HEADS, scale=_HEAD**-0.5)
        if link == 0:
            _keep(t, x)
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
