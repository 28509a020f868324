"""Python's own share of a decode step: ``python -m benchmarks.steps``.

A device that computes nothing takes every step, so that what is left is ours: engine, hand-over, host, and the
inferlet itself. First the whole, by how many contexts decode together; then by stage, for one inferlet.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks import models
from benchmarks.engines import Stream, engine_on
from benchmarks.harness import Summary, table
from benchmarks.null_backend import NullBackend
from benchmarks.sides.inferlet import PROGRAM
from benchmarks.trace import Tracer, own_seconds
from pie_edge.control.engine import Engine
from pie_edge.host import Host
from pie_edge.paths import cache_folder
from pie_edge.tokenizer import Tokenizer
from pie_edge.weights.checkpoint import open_checkpoint

STREAMS = (1, 4, 16, 64)
TOKENS, PROMPT = 128, [1, 2, 3, 4, 5, 6, 7, 8]
STAGES = {
    "pie_edge.control.engine:Engine.enqueue": "engine: take the call, check its epilogue",
    "pie_edge.control.space:Space._check_call": "engine: check the call",
    "pie_edge.control.engine:pick": "engine: choose what runs",
    "pie_edge.control.room:Room.claim": "engine: pages",
    "pie_edge.control.batch:build": "engine: build the batch",
    "pie_edge.program.step:StepLayout.pack": "engine: pack the step's block",
    "pie_edge.control.epilogues:group": "engine: group the epilogues",
    "pie_edge.control.epilogues:Group.inputs": "engine: the epilogue's inputs",
    "pie_edge.control.epilogues:Group.split": "engine: take its outputs apart",
    "pie_edge.control.calls:Calls.deliver": "engine: deliver",
    "pie_edge.host.instance:Instance.advance": "host: a turn of the guest",
    "pie_edge.host.wasm.fiber:Fiber.poll": "guest: Wasm, and the crossing",
    "pie_edge.host.wasm.imports:Imports._invoke": "host: read arguments",
    "pie_edge.host.events:Events.wait": "host: start requests",
    "pie_edge.host.events:Events.take": "host: hand over what is complete",
    "pie_edge.host.wasm.imports:_Signature.answer": "host: write results",
}
"""Synchronous parts of a step. What is in none of them is asyncio's: tasks, futures, turns of its loop."""


@asynccontextmanager
async def open_null(model: Path) -> AsyncIterator[tuple[Engine, Host]]:
    with open_checkpoint(model) as checkpoint:
        tokenizer = Tokenizer.from_gguf(checkpoint.metadata)
        engine = await engine_on(checkpoint, NullBackend())
        host = await Host.open(engine, tokenizer, None, cache_dir=cache_folder())
        try:
            yield engine, host
        finally:
            await host.close()
            await engine.close()


async def engine_step(engine: Engine, streams: int) -> float:
    """Seconds from one step's start to the next one's, all contexts in it."""
    made = [Stream(engine.open_space(f"s{i}", 0), len(PROMPT) + TOKENS) for i in range(streams)]
    start = time.perf_counter()
    await asyncio.gather(*(stream.generate(PROMPT, TOKENS) for stream in made))
    seconds = time.perf_counter() - start
    for stream in made:
        stream.close()
    return seconds / TOKENS


async def inferlet_step(host: Host, streams: int) -> float:
    """As ``engine_step``, asked for by inferlets; their instantiation is left out."""
    start, end = await _decoding(host, streams)
    return (end - start) / (TOKENS - 1)


async def _decoding(host: Host, streams: int) -> tuple[float, float]:
    """When the first token of so many inferlets came, and the last."""
    outcomes = await asyncio.gather(*(host.run(PROGRAM, {"ids": PROMPT, "count": TOKENS}) for _ in range(streams)))
    usages = [outcome.usage for outcome in outcomes]
    return min(usage.first_result for usage in usages), max(usage.last_result for usage in usages)


async def totals(model: Path, rounds: int) -> list[list[str]]:
    rows = []
    async with open_null(model) as (engine, host):
        for streams in STREAMS:
            engines, inferlets = [], []
            for _ in range(rounds + 1):  # The first one records buckets.
                engines.append(await engine_step(engine, streams) * 1e6)
                inferlets.append(await inferlet_step(host, streams) * 1e6)
            found = [Summary.of(figures[1:]) for figures in (engines, inferlets)]
            rows.append([str(streams), *(one.show() for one in found), f"{found[1].median / streams:.0f}"])
    return rows


async def breakdown(model: Path, rounds: int) -> list[tuple[str, float]]:
    """``(stage, microseconds a step)`` of one inferlet, in the fastest of a few rounds; clocks add about 1 µs a stage."""
    async with open_null(model) as (_, host):
        await _decoding(host, 1)
        tracer, best = Tracer(), (0.0, float("inf"))
        tracer.wrap(STAGES)
        for _ in range(rounds):
            found = await _decoding(host, 1)
            best = min(best, found, key=lambda span: span[1] - span[0])
    own = own_seconds([span for span in tracer.spans if best[0] <= span.start and span.end <= best[1]])
    stages = [(title, own[title] / (TOKENS - 1) * 1e6) for title in STAGES.values()]
    whole = (best[1] - best[0]) / (TOKENS - 1) * 1e6
    rest = whole - sum(micros for _, micros in stages)
    return [*stages, ("asyncio, and what no stage covers", rest), ("a step", whole)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.steps", description=__doc__)
    parser.add_argument("--model", default=models.MODELS[0])
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args(argv)
    model = models.find(asked.model)
    header = ("together", "engine, µs a step", "inferlets, µs a step", "µs a token")
    print(table(header, asyncio.run(totals(model, asked.rounds))))
    rows = [[title, f"{micros:.1f}"] for title, micros in asyncio.run(breakdown(model, asked.rounds))]
    print("\n" + table(("stage of one inferlet's step", "µs"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
