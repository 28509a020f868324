"""What programmability costs a token, beside a device that takes no time: ``python -m benchmarks.tax``.

From the bottom: a bare loop that only packs steps; the control layer with callers of its own process; Python inferlets that
decide every token, in the Wasm host; one inferlet with many contexts. Then memory per inferlet, and how late steps and
guests are beside others. Times are of the process's CPU unless they say wall: other processes don't count.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.engines import ARGMAX, Stream, engine_on
from benchmarks.harness import table
from benchmarks.null_backend import NullBackend
from benchmarks.sides.inferlet import PROGRAM
from pie_edge.control.batch import bucket_for
from pie_edge.control.engine import Engine
from pie_edge.control.plan import DeviceSettings
from pie_edge.host import Host
from pie_edge.paths import cache_folder
from pie_edge.program.step import Bucket, StepInputs, StepLayout
from pie_edge.sampling import parse
from pie_edge.tokenizer import Tokenizer
from pie_edge.weights.checkpoint import open_checkpoint

TOGETHER = (1, 16, 64, 256)
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8]
MANY = Path(__file__).resolve().parent / "inferlets" / "generate_many.py"
LIMIT = Bucket(512, 256, 256, 4096)
PAGE, VOCABULARY = 16, 49152
SPIN = "async def main(input):\n    while True: pass"
WAITS = "from inferlet import session\nasync def main(input):\n    await session.receive()"
SLEEPS = """
import asyncio, time
async def main(input):
    late = []
    for _ in range(100):
        start = time.monotonic()
        await asyncio.sleep(0.005)
        late.append(time.monotonic() - start - 0.005)
    return late
"""


class Timed(NullBackend):
    """A device whose steps take ``seconds``; ``late`` is by how much each step's results were fetched after its end."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds=seconds)
        self.late: list[float] = []

    async def read(self, ticket: Any) -> Mapping[str, memoryview]:
        found = await super().read(ticket)
        self.late.append(asyncio.get_running_loop().time() - ticket.end)
        return found


class Opened:
    """An engine and a host on a null device, for a model of which only the tokenizer and the shapes are used."""

    def __init__(self, model: Path, device: NullBackend, settings: DeviceSettings) -> None:
        self._model, self._device, self._settings = model, device, settings
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[Engine, Host]:
        checkpoint = self._stack.enter_context(open_checkpoint(self._model))
        engine = await engine_on(checkpoint, self._device, self._settings)
        self._stack.push_async_callback(engine.close)
        tokenizer = Tokenizer.from_gguf(checkpoint.metadata)
        host = await Host.open(engine, tokenizer, None, cache_dir=cache_folder())
        self._stack.push_async_callback(host.close)
        return engine, host

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()


# ---- a token's overhead


async def bare(streams: int, tokens: int) -> None:
    """Decode steps as an engine without programs forms them: fixed sequences, arrays that only grow, one epilogue."""
    device = NullBackend()
    layout = StepLayout(bucket_for(Bucket(streams, streams, streams, streams), LIMIT))
    program = parse(ARGMAX, vocabulary=VOCABULARY, rows=1).program(streams, streams)
    model = epilogue = await device.compile(program, {})
    rows = array("I", range(streams))
    chosen: list[int] = [0] * streams
    for place in range(tokens):
        block = layout.pack(decode_inputs(chosen, place, streams))
        device.run(model, {"step": memoryview(block).cast("B")})
        ticket = device.run(epilogue, {"rows": memoryview(rows).cast("B")})
        chosen = (await device.read(ticket))["out0"][:streams].tolist()


def decode_inputs(tokens: Sequence[int], place: int, streams: int) -> StepInputs:
    """All sequences at one place of their first page."""
    at, each = [place] * streams, range(streams)
    return StepInputs(
        token_src=tokens,
        positions=at,
        row_index=at,
        write_slots=[(stream + 1) * PAGE + place % PAGE for stream in each],
        query_starts=range(streams + 1),
        page_starts=range(streams + 1),
        pages=range(1, streams + 1),
        page_bits=[(2 << place % PAGE) - 1] * streams,
        fresh_bits=[1 << place % PAGE] * streams,
        sample_rows=each,
        draw_keys=[0] * 2 * streams,
    )


async def native(engine: Engine, streams: int, tokens: int, prompt: int = len(PROMPT)) -> None:
    """Callers in this process, a call a token."""
    spaces = [engine.open_space(f"s{i}", i) for i in range(streams)]
    made = [Stream(space, prompt + tokens) for space in spaces]
    ids = [[1 + i, *range(2, prompt + 1)] for i in range(streams)]
    await asyncio.gather(*(stream.generate(one, tokens) for stream, one in zip(made, ids, strict=True)))
    for space in spaces:
        space.close()


async def guests(host: Host, streams: int, tokens: int) -> None:
    await asyncio.gather(*(host.run(PROGRAM, {"ids": PROMPT, "count": tokens}) for _ in range(streams)))


async def contexts(host: Host, streams: int, tokens: int) -> None:
    await host.run(MANY, {"ids": PROMPT, "contexts": streams, "count": tokens})


async def per_token(
    measured: Callable[[int], Awaitable[None]], streams: int, tokens: int, rounds: int
) -> tuple[float, float]:
    """CPU and wall microseconds a token, the best of some rounds. What starting takes is told apart by a run of few tokens."""
    few, best = max(tokens // 8, 2), (float("inf"), float("inf"))
    await measured(few)
    for _ in range(rounds):
        spans = []
        for count in (few, tokens):
            cpu, wall = time.process_time(), time.perf_counter()
            await measured(count)
            spans.append((time.process_time() - cpu, time.perf_counter() - wall))
        made = streams * (tokens - few)
        found = [1e6 * (long - short) / made for short, long in zip(*spans, strict=True)]
        best = min(best[0], found[0]), min(best[1], found[1])
    return best


async def overhead(model: Path, rounds: int, together: Sequence[int] = TOGETHER) -> str:
    rows = []
    async with Opened(model, NullBackend(), DeviceSettings()) as (engine, host):
        for streams in together:
            tokens = max(1024 // streams, 48)
            sides: dict[str, Callable[[int], Awaitable[None]]] = {
                "bare": partial(bare, streams),
                "control": partial(native, engine, streams),
                "guests": partial(guests, host, streams),
                "contexts": partial(contexts, host, streams),
            }
            found = {name: await per_token(side, streams, tokens, rounds) for name, side in sides.items()}
            share = found["control"][0] - found["bare"][0]
            cells = [f"{found[name][0]:.0f} ({found[name][1]:.0f})" for name in sides]
            rows.append([str(streams), cells[0], cells[1], f"{share:.0f}", *cells[2:]])
        long = [await per_token(partial(native, engine, n, prompt=4000), n, 512, rounds) for n in (1, 4)]
    header = ("together", "bare loop", "control layer", "its own share", "Python inferlets", "one inferlet's contexts")
    tail = ", ".join(f"{cpu:.0f} at {n}" for (cpu, _), n in zip(long, (1, 4), strict=True))
    return f"{table(header, rows)}\n\nThe control layer with contexts of 4,000 tokens: {tail}."


# ---- memory, and who waits for whom


async def memory(model: Path, alive: int) -> str:
    """Resident memory that each inferlet adds while it waits."""
    async with Opened(model, NullBackend(), DeviceSettings()) as (_, host):
        instances = [host.launch(WAITS, {}) for _ in range(8)]
        await asyncio.sleep(0.5)
        before, start = _resident(), time.process_time()
        instances += [host.launch(WAITS, {}) for _ in range(alive)]
        while sum(instance.state == "running" for instance in instances) < len(instances):
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        each, seconds = (_resident() - before) / alive, time.process_time() - start
        for instance in instances:
            instance.send("end")
        await asyncio.gather(*(instance.result() for instance in instances))
    return f"{alive} inferlets alive at once: {each / 2**20:.1f} MiB and {1e3 * seconds / alive:.1f} ms of CPU each."


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def fairness(model: Path) -> str:
    rows = []
    async with Opened(model, NullBackend(), DeviceSettings()) as (_, host):
        spinning = [host.launch(SPIN, {}) for _ in range(8)]
        rows.append(["a guest's wake-up beside 8 that spin", *_late((await host.run(SLEEPS, {})).result)])
        for instance in spinning:
            instance.cancel()
    for spinning_too, name in ((0, "beside 64 that decode"), (8, "beside 64 that decode and 8 that spin")):
        device = Timed(0.01)
        async with Opened(model, device, DeviceSettings()) as (_, host):
            others = [host.launch(SPIN, {}) for _ in range(spinning_too)]
            await asyncio.gather(*(host.run(PROGRAM, {"ids": PROMPT, "count": 64}) for _ in range(64)))
            # In the first half some are still being started.
            rows.append([f"a step's results {name}", *_late(device.late[len(device.late) // 2 :])])
            for instance in others:
                instance.cancel()
    return table(("late", "median", "95 of 100", "worst"), rows)


def _late(seconds: Sequence[float]) -> list[str]:
    ordered = sorted(seconds)
    found = (statistics.median(ordered), ordered[int(0.95 * len(ordered))], ordered[-1])
    return [f"{1e3 * value:.2f} ms" for value in found]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.tax", description=__doc__)
    parser.add_argument("--model", default=models.MODELS[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alive", type=int, default=512)
    asked = parser.parse_args(argv)
    model = models.find(asked.model)
    print("Microseconds of CPU a token (wall):\n")
    print(asyncio.run(overhead(model, asked.rounds)))
    print("\n" + asyncio.run(fairness(model)))
    print("\n" + asyncio.run(memory(model, asked.alive)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
