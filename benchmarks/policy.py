"""When to form a step, and of what: ``python -m benchmarks.policy`` compares ours with others in simulation.

The control layer is the real one, the device a cost model (``device_costs``). ``--page docs/scheduling.md`` writes the tables
between that page's marks, ``--image FILE`` draws the curves (needs matplotlib).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.device_costs import CPU, L4, Cost
from benchmarks.harness import table
from benchmarks.policies import DecodeFirst, Eager, FixedSize, FixedWait, PrefillFirst, WorkConserving
from benchmarks.simulation import Policy, Run, Script, Simulation

DEVICES: Mapping[str, Cost] = {"cpu": CPU, "L4": L4}
CONCURRENCY = (1, 8, 32, 128, 512)
HOST = 1e-4
"""Seconds of the host's thread for each token told."""
OURS = "ours"
MOMENT: Mapping[str, Callable[[], Policy]] = {
    OURS: lambda: WorkConserving(ahead=True),
    "ours, no run-ahead": lambda: WorkConserving(),
    "eager": lambda: Eager(),
    "8 calls": lambda: FixedSize(8),
    "32 calls": lambda: FixedSize(32),
    "128 calls": lambda: FixedSize(128),
    "5 ms": lambda: FixedWait(0.005),
    "20 ms": lambda: FixedWait(0.02),
    "50 ms": lambda: FixedWait(0.05),
}
ORDER: Mapping[str, Callable[[], Policy]] = {
    "mixed, ours": lambda: WorkConserving(ahead=True),
    "prefill first": lambda: PrefillFirst(ahead=True),
    "decode first": lambda: DecodeFirst(ahead=True),
}
BEGIN, END = "<!-- figures: python -m benchmarks.policy -->", "<!-- end of figures -->"


def scripts(seed: int) -> Iterator[Script]:
    """Completions with tools: a prompt of 32 to 256 tokens, 32 to 96 decided one by one, after each 64th or so a tool for 50 to
    200 ms."""
    draw = random.Random(seed)
    while True:
        tokens = draw.randint(32, 96)
        pauses = {i: draw.uniform(0.05, 0.2) for i in range(1, tokens) if draw.random() < 1 / 64}
        yield Script(0.0, draw.randint(32, 256), tokens, pauses)


def throughput(policy: Policy, cost: Cost, concurrency: int, generations: float = 2.0) -> float:
    """Tokens a second while ``concurrency`` inferlets are alive: when one ends, the next starts. Counted from when all of the
    first ones decode, over ``generations`` of them."""
    sim, more = Simulation(policy, cost, HOST), scripts(1)
    sim.on_end = lambda run: sim.start(next(more))
    for _ in range(concurrency):
        sim.start(next(more))
    sim.run(lambda sim: len(sim.runs) >= concurrency and all(run.times for run in sim.runs[:concurrency]))
    began, counted = sim.now, len(sim.runs)
    before = sum(len(run.times) for run in sim.runs)
    sim.run(lambda sim: len(sim.runs) >= counted + max(int(generations * concurrency), 3))
    return (sum(len(run.times) for run in sim.runs) - before) / (sim.now - began)


@dataclass(frozen=True, slots=True)
class Served:
    """What inferlets of an open load saw, seconds."""

    first_token: float
    first_token_p99: float
    gap: float
    gap_p99: float
    tokens_per_second: float


def serve(policy: Policy, cost: Cost, load: float, seconds: float = 30.0) -> Served:
    """Inferlets arrive at random, ``load`` of what the device could do; one in twenty has a prompt of 2,000 tokens."""
    draw, sim, more = random.Random(2), Simulation(policy, cost, HOST), scripts(3)
    # A token costs its share of a full step; the prompt's rows come on top.
    work = 0.95 * 144 + 0.05 * 2000 + 64
    rate = load / (work * cost.row + 64 * (cost.sampled + cost.step / 32))
    # What arrives is as much for a slow device as for a fast one.
    seconds, now = max(seconds, 100 / rate), 0.0
    while now < seconds:
        now += draw.expovariate(rate)
        script = next(more)
        prompt = 2000 if draw.random() < 0.05 else script.prompt
        sim.start(Script(now, prompt, script.tokens, script.pauses))
    sim.run()
    firsts = sorted(run.first_token for run in sim.runs)
    gaps = sorted(gap for run in sim.runs for gap in _gaps(run))
    total = sum(len(run.times) for run in sim.runs)
    return Served(statistics.mean(firsts), _at(firsts, 0.99), statistics.median(gaps), _at(gaps, 0.99), total / sim.now)


def _gaps(run: Run) -> list[float]:
    """Between tokens, without those in which it was away."""
    return [gap for index, gap in enumerate(run.gaps, 1) if index not in run.script.pauses]


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@dataclass(frozen=True, slots=True)
class Beside:
    """A long prompt beside inferlets that decode, seconds: its first token, that alone, the others' longest gap between tokens
    while it runs and before, and the longest step that its rows were in."""

    first_token: float
    alone: float
    gap: float
    gap_before: float
    chunk: float

    @property
    def cost(self) -> float:
        """How much later than alone the first token is."""
        return self.first_token / self.alone - 1

    @property
    def delay(self) -> float:
        """Of the others' tokens by the prompt, in chunks."""
        return (self.gap - self.gap_before) / self.chunk


def long_prompt(
    policy: Callable[[], Policy], cost: Cost, decoding: int, prompt: int = 4000, host: float = HOST
) -> Beside:
    alone = _long_prompt(policy(), cost, 0, prompt, host)[0]
    first, gaps, before, chunk = _long_prompt(policy(), cost, decoding, prompt, host)
    return Beside(first, alone, max(gaps, default=0.0), max(before, default=0.0), chunk)


def _long_prompt(
    policy: Policy, cost: Cost, decoding: int, prompt: int, host: float
) -> tuple[float, list[float], list[float], float]:
    sim = Simulation(policy, cost, host)
    # The pace has seen a prompt and decodes before, as it has after the first second of a server's life.
    sim.start(Script(0.0, 1000, 16))
    sim.run()
    for _ in range(decoding):
        sim.start(Script(0.0, 16, 4000))
    sim.run(lambda sim: len(sim.runs) == 1 + decoding and all(len(run.times) >= 16 for run in sim.runs))
    began, steps = sim.now, len(sim.steps)
    sim.start(Script(sim.now, prompt, 1))
    sim.run(lambda sim: len(sim.runs) == 2 + decoding and bool(sim.runs[-1].times))
    spans = [(end, end - start) for run in sim.runs[1:-1] for start, end in itertools.pairwise(run.times)]
    during = [gap for end, gap in spans if end > began]
    # The first ones come one after the other.
    before = [gap for run in sim.runs[1:-1] for gap in run.gaps[8:12]]
    chunks = [cost.seconds(load) for _, load in sim.steps[steps:] if load.rows > load.sampled]
    return sim.runs[-1].first_token, during, before, max(chunks)


# ---- the report


def moments(cost: Cost, concurrency: Sequence[int]) -> dict[str, list[float]]:
    return {name: [throughput(make(), cost, count) for count in concurrency] for name, make in MOMENT.items()}


def report(concurrency: Sequence[int] = CONCURRENCY) -> tuple[str, dict[str, dict[str, list[float]]]]:
    parts, curves = [], {}
    for device, cost in DEVICES.items():
        found = curves[device] = moments(cost, concurrency)
        parts += [f"### When a step is formed, {device}", "", "Tokens a second, by how many inferlets are alive.", ""]
        rows = [[name, *(f"{value:,.0f}" for value in values)] for name, values in found.items()]
        parts += [table(("policy", *map(str, concurrency)), rows), "", _compared(found, concurrency), ""]
    parts += ["### What is in a step", "", _orders(), ""]
    parts += ["### A prompt of 4,000 tokens beside inferlets that decode", "", _prompts(), ""]
    return "\n".join(parts), curves


def _compared(found: Mapping[str, Sequence[float]], concurrency: Sequence[int]) -> str:
    """Ours against no batching, against the fixed policy that is best at each size, and that which is best for all sizes."""
    fixed = {name: values for name, values in found.items() if name[0].isdigit()}
    overall = max(fixed, key=lambda name: statistics.geometric_mean(fixed[name]))
    rows = []
    for name in (OURS, "ours, no run-ahead"):
        against = {
            "eager": found["eager"],
            "the best fixed policy at each size": [
                max(values[i] for values in fixed.values()) for i in range(len(concurrency))
            ],
            f"the best for all sizes ({overall})": fixed[overall],
        }
        for other, values in against.items():
            rows.append(
                [name, other, *(f"{ours / theirs:.2f}" for ours, theirs in zip(found[name], values, strict=True))]
            )
    return table(("times as many tokens", "as", *map(str, concurrency)), rows)


def _orders() -> str:
    header = ("device", "load", "step", "first token, mean", "p99", "gap, median", "p99", "tokens/s")
    rows = []
    for device, cost in DEVICES.items():
        for load in (0.4, 0.7):
            for name, make in ORDER.items():
                seen = serve(make(), cost, load)
                times = (seen.first_token, seen.first_token_p99, seen.gap, seen.gap_p99)
                millis = [f"{value * 1e3:,.0f} ms" for value in times]
                rows.append([device, f"{load:.0%}", name, *millis, f"{seen.tokens_per_second:,.0f}"])
    return table(header, rows)


def _prompts() -> str:
    header = (
        "device",
        "decoding",
        "run-ahead",
        "first token alone",
        "beside",
        "later by",
        "others' gap before",
        "while",
        "chunks",
    )
    rows = []
    for device, cost in DEVICES.items():
        for decoding in (1, 8, 32):
            for ahead in (True, False):
                seen = long_prompt(functools.partial(WorkConserving, ahead=ahead), cost, decoding)
                times = [f"{value * 1e3:,.0f} ms" for value in (seen.alone, seen.first_token)]
                gaps = [f"{value * 1e3:,.1f} ms" for value in (seen.gap_before, seen.gap)]
                shown = "on" if ahead else "off"
                rows.append([device, str(decoding), shown, *times, f"{seen.cost:.0%}", *gaps, f"{seen.delay:.2f}"])
    return table(header, rows)


def draw(curves: Mapping[str, Mapping[str, Sequence[float]]], concurrency: Sequence[int], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(curves), figsize=(9, 3.6), dpi=100)
    for axis, (device, found) in zip(axes, curves.items(), strict=True):
        for name, values in found.items():
            axis.plot(concurrency, values, marker="o", markersize=3, linewidth=2.2 if name == OURS else 1, label=name)
        axis.set(title=device, xlabel="inferlets alive", xscale="log", yscale="log", xticks=concurrency)
        axis.set_xticklabels([str(count) for count in concurrency])
    axes[0].set_ylabel("tokens a second")
    axes[-1].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.policy", description=__doc__)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--image", type=Path)
    asked = parser.parse_args(argv)
    start = time.perf_counter()
    text, curves = report()
    print(text)
    if asked.page is not None:
        page = asked.page.read_text(encoding="utf-8")
        head, rest = page.split(BEGIN)
        asked.page.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    if asked.image is not None:
        draw(curves, CONCURRENCY, asked.image)
    print(f"({time.perf_counter() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
