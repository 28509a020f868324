"""What a step costs on a device, as a line through measured steps: ``python -m benchmarks.device_costs`` fits it anew.

A step reads every weight once (``step``), computes each row (``row``) and reads out some (``sampled``: the vocabulary's
projection and the epilogue). Attention reads each sequence's keys once (``context``) and multiplies each row with them
(``key``).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from benchmarks import models
from benchmarks.engines import Opened, Stream, open_engine
from pie_edge.control.batch import Batch
from pie_edge.control.plan import DeviceSettings


@dataclass(frozen=True, slots=True)
class Load:
    """What a step has to do: ``context`` is the sum over its sequences of their tokens so far, ``keys`` the sum over its rows of
    the keys that each sees."""

    rows: int
    sampled: int
    context: int
    keys: int

    @classmethod
    def of(cls, step: Batch) -> Load:
        context = sum(part.end for part in step.slices)
        keys = sum(part.count * part.end - part.count * (part.count - 1) // 2 for part in step.slices)
        counts = step.inputs.counts
        return cls(counts.rows, counts.sampled, context, keys)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds."""

    step: float
    row: float
    sampled: float
    context: float
    key: float

    def seconds(self, load: Load) -> float:
        parts = self.row * load.rows, self.sampled * load.sampled, self.context * load.context, self.key * load.keys
        return self.step + sum(parts)


def _l4() -> Cost:
    bandwidth, arithmetic, launches = 300e9, 0.5 * 121e12, 0.5e-3
    parameters, layers, width, vocabulary, kv_token = 1.24e9, 16, 2048, 128256, 32 * 1024
    return Cost(
        step=2 * parameters / bandwidth + launches,
        row=2 * parameters / arithmetic,
        sampled=3 * 4 * vocabulary / bandwidth,
        context=kv_token / bandwidth,
        key=4 * layers * width / arithmetic,
    )


L4 = _l4()
"""A GPU as in the Pie paper, from its data sheet and not measured: Llama 3.2 1B in bf16 on an L4 (300 GB/s, 121 Tflop/s of which
half is reached), 0.5 ms of launches a step, logits written once and read twice."""

CPU = Cost(step=4.6e-3, row=1.4e-3, sampled=0.8e-3, context=2e-6, key=1e-6)
"""SmolLM2 135M (Q4_1) on the ``cpu`` backend with two threads: what ``main`` fits, rounded (two virtual cores of an EPYC)."""


async def _decode(opened: Opened, streams: int, context: int, rounds: int) -> tuple[Load, float]:
    """The quickest step of ``streams`` contexts of ``context`` tokens that decode together."""
    space = opened.engine.open_space("decode", 0)
    made = [Stream(space, context + rounds + 1) for _ in range(streams)]
    tokens = [await stream.next_token([1 + i, *range(2, context + 1)]) for i, stream in enumerate(made)]
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        tokens = await asyncio.gather(*(s.next_token([t]) for s, t in zip(made, tokens, strict=True)))
        times.append(time.perf_counter() - start)
    space.close()
    keys = streams * (context + 1 + rounds // 2)
    return Load(streams, streams, keys, keys), min(times)


async def _prefill(opened: Opened, rows: int, start: int, rounds: int) -> tuple[Load, float]:
    """The quickest step of ``rows`` rows of a prompt that has ``start`` tokens before them."""
    times = []
    for number in range(rounds):
        space = opened.engine.open_space("prefill", 0)
        stream = Stream(space, start + rows + 1)
        if start:
            await stream.next_token([number + 1, *range(7, start + 6)])
        begin = time.perf_counter()
        await stream.next_token([number + 3, *range(9, rows + 8)])
        times.append(time.perf_counter() - begin)
        space.close()
    return Load(rows, 1, start + rows, rows * start + rows * (rows + 1) // 2), min(times)


async def measure(model: str, backend: str, rounds: int) -> list[tuple[Load, float]]:
    # A step that run-ahead puts behind the measured one would be measured too.
    settings = DeviceSettings(speculation_depth=0)
    async with open_engine(models.find(model), backend, settings=settings) as opened:
        found = []
        for streams, context in [(1, 16), (1, 1000), (4, 16), (16, 16), (16, 400), (48, 16)]:
            found.append(await _decode(opened, streams, context, rounds))
        for rows, start in [(16, 0), (64, 0), (128, 0), (128, 1024), (500, 0)]:
            found.append(await _prefill(opened, rows, start, max(rounds // 3, 2)))
    return found


def fit(measured: Iterable[tuple[Load, float]]) -> Cost:
    """Least squares of the relative error; no cost is negative."""
    import numpy as np

    loads, seconds = zip(*measured, strict=True)
    factors = np.array([[1, *astuple(load)] for load in loads], float)
    times = np.array(seconds)
    kept = list(range(5))
    while True:
        best, *_ = np.linalg.lstsq(factors[:, kept] / times[:, None], np.ones(len(times)), rcond=None)
        if min(best) >= 0:
            break
        del kept[int(np.argmin(best))]
    found = [0.0] * 5
    for index, value in zip(kept, best, strict=True):
        found[index] = float(value)
    return Cost(*found)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.device_costs", description=__doc__)
    parser.add_argument("--model", default=models.MODELS[0])
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args(argv)
    measured = asyncio.run(measure(asked.model, asked.backend, asked.rounds))
    cost = fit(measured)
    for load, seconds in measured:
        print(f"{load}: {seconds * 1e3:.2f} ms, the line says {cost.seconds(load) * 1e3:.2f} ms")
    print(cost, [f"{value * 1e6:.3g} µs" for value in astuple(cost)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
