"""The cpu backend's hot kernels alone: ``python -m benchmarks.cpu_kernels [--threads N]``.

With one thread the figures are CPU time, which a busy machine changes little; with more they are wall time. The least of
several runs is told. Weights are larger together than the caches, as a model's are.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.harness import table
from pie_edge.backends.cpu.backend import CpuBackend, open_cpu
from pie_edge.backends.shared.selftest import MadeWeight
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType, Encoding
from pie_edge.program.ops import Program, Role
from pie_edge.program.step import Bucket, StepInputs, StepLayout
from pie_edge.program.trace import Trace
from pie_edge.program.trace_recurrent import Delta, gated_delta

COLUMNS, OUTPUTS, MATRICES = 1024, 4096, 12
ROWS = (1, 2, 4, 16, 128)
ENCODINGS: tuple[Encoding, ...] = (
    Affine(4, 32, DType.F16, None),
    Affine(4, 32, DType.F16, 8),
    Affine(4, 32, DType.F32, None),
    Affine(8, 32, DType.F16, 128),
    Affine(8, 16, DType.F32, 32),
    Dense(DType.BF16),
    Dense(DType.F16),
    Dense(DType.F32),
)
HEADS, KV_HEADS, HEAD, PAGE = 9, 3, 64, 16
DELTA_KEYS, DELTA_HEADS, DELTA = 16, 32, 128


@dataclass(frozen=True)
class Work:
    """A compiled Program and what its inputs are."""

    executable: Any
    inputs: dict[str, bytes]


class Bench:
    def __init__(self, backend: CpuBackend, threads: int, runs: int) -> None:
        self.backend = backend
        self._clock: Callable[[], float] = time.process_time if threads == 1 else time.perf_counter
        self._runs = runs

    async def seconds(self, work: Work) -> float:
        """The least time of one run, after one that warms up."""
        await self.backend.read(self.backend.run(work.executable, work.inputs))
        times = []
        for _ in range(self._runs):
            start = self._clock()
            await self.backend.read(self.backend.run(work.executable, work.inputs))
            times.append(self._clock() - start)
        return min(times)

    async def compile(self, program: Program, weights: dict[str, Any], inputs: dict[str, bytes]) -> Work:
        states: dict[str, Any] = {}
        for value in program.by_role(Role.STATE):
            states[value.name] = await self.backend.allocate(value.nbytes, Role.STATE)
            if value.dtype is DType.F32:
                noise = np.random.default_rng(0).standard_normal(value.size).astype(np.float32)
                self.backend.write(states[value.name], noise.tobytes())
        return Work(await self.backend.compile(program, {**weights, **states}), inputs)


async def linears(bench: Bench) -> list[list[str]]:
    found = []
    weights_in_all = COLUMNS * OUTPUTS * MATRICES
    for encoding in ENCODINGS:
        trace = Trace(f"linear-{encoding}")
        values = [trace.weight(f"w{i}", (OUTPUTS, COLUMNS), encoding) for i in range(MATRICES)]
        source = MadeWeight((OUTPUTS, COLUMNS), encoding, 0)
        weights = {value.name: await bench.backend.load(value, source) for value in values}
        row = [str(encoding)]
        for rows in ROWS:
            t = Trace(f"linear-{encoding}-{rows}")
            x = t.state("x", DType.F32, (rows, COLUMNS))
            for value in values:
                ops.linear(t, x, t.declare(value))
            took = await bench.seconds(await bench.compile(t.build(), weights, {}))
            held = sum(weight.nbytes for weight in weights.values())
            rate = f"{held / took / 1e9:.1f} GB/s" if rows == 1 else f"{weights_in_all * rows / took / 1e9:.1f}"
            row.append(rate)
        found.append(row)
        for weight in weights.values():
            bench.backend.free(weight)
    return found


def one_sequence(past: int, rows: int) -> tuple[StepInputs, Bucket]:
    total = past + rows
    entries = -(-total // PAGE)
    fresh = [sum(1 << s for s in range(PAGE) if past <= i * PAGE + s < total) for i in range(entries)]
    index = list(range(past, total))
    step = StepInputs(
        token_src=[0] * rows,
        positions=index,
        row_index=index,
        write_slots=[PAGE + i for i in index],
        query_starts=[0, rows],
        page_starts=[0, entries],
        pages=list(range(1, entries + 1)),
        page_bits=[(1 << min(PAGE, total - i * PAGE)) - 1 for i in range(entries)],
        fresh_bits=fresh,
        sample_rows=[0],
        draw_keys=[0, 0],
    )
    return step, step.counts


async def attentions(bench: Bench) -> list[list[str]]:
    found = []
    for past, rows in ((127, 1), (511, 1), (2047, 1), (0, 128), (0, 512), (1536, 512)):
        step, bucket = one_sequence(past, rows)
        t = Trace(f"attention-{past}-{rows}")
        layout = StepLayout(bucket)
        fields = t.step(layout)
        q = t.state("q", DType.F32, (rows, HEADS * HEAD))
        pages = bucket.entries + 1
        cache = (
            t.state("k", DType.F32, (pages, KV_HEADS, HEAD // 4, PAGE, 4)),
            t.state("v", DType.F32, (pages, KV_HEADS, PAGE, HEAD)),
            t.state("key_positions", DType.U32, (pages, PAGE)),
        )
        ops.attention(t, q, fields, cache, heads=HEADS, kv_heads=KV_HEADS, scale=HEAD**-0.5)
        took = await bench.seconds(await bench.compile(t.build(), {}, {"step": layout.pack(step).tobytes()}))
        pairs = sum(range(past + 1, past + rows + 1)) * HEADS
        found.append([f"{rows} after {past}", f"{took * 1e6:.0f} µs", f"{2 * HEAD * pairs / took / 1e9:.1f}"])
    return found


async def deltas(bench: Bench) -> list[list[str]]:
    """A layer of Qwen3-Next's: 32 heads of 128 × 128, 16 of keys."""
    found = []
    widths = {"qkv": (2 * DELTA_KEYS + DELTA_HEADS) * DELTA, "a": DELTA_HEADS, "b": DELTA_HEADS}
    for rows in (1, 16, 512):
        step, bucket = one_sequence(64, rows)
        step, bucket = replace(step, state_slots=[1, 1, 0], state_spans=[64, 0, 0]), replace(bucket, recurrent=1)
        t = Trace(f"deltas-{rows}")
        layout = StepLayout(bucket)
        fields = t.step(layout)
        vectors = [t.weight(name, (DELTA_HEADS,), Dense(DType.F32)) for name in ("decay", "dt_bias")]
        source = MadeWeight((DELTA_HEADS,), Dense(DType.F32), 0)
        weights = {value.name: await bench.backend.load(value, source) for value in vectors}
        given = [t.state(name, DType.F32, (rows, width)) for name, width in widths.items()]
        tails = {f"{name}_tail": t.state(f"{name}_tail", DType.F32, (2, 32, width)) for name, width in widths.items()}
        state = t.state("state", DType.F32, (2, DELTA_HEADS, DELTA, DELTA))
        delta = Delta(*vectors, state, **tails, key_heads=DELTA_KEYS, log_decay=True)
        gated_delta(t, *given, fields, delta)
        took = await bench.seconds(await bench.compile(t.build(), weights, {"step": layout.pack(step).tobytes()}))
        found.append([f"{rows}", f"{took * 1e6:.0f} µs", f"{3 * DELTA_HEADS * DELTA**2 * rows / took / 1e9:.1f}"])
    return found


async def measure(threads: int, runs: int) -> str:
    backend = await open_cpu(threads=threads)
    try:
        bench = Bench(backend, threads, runs)
        header = ["weights", "1 row", *(f"{rows} rows, GMAC/s" for rows in ROWS[1:])]
        parts = [f"{backend.limits.device}, {threads} thread{'s' * (threads > 1)}", table(header, await linears(bench))]
        parts.append(table(["attention, 9/3 heads of 64", "time", "GMAC/s"], await attentions(bench)))
        parts.append(table(["gated delta, 32 heads of 128", "time", "GMAC/s"], await deltas(bench)))
        return "\n\n".join(parts)
    finally:
        await backend.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    print(asyncio.run(measure(arguments.threads, arguments.runs)))


if __name__ == "__main__":
    main()
