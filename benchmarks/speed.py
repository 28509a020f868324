"""Ours and llama.cpp on the same file with as many threads, in turns: ``python -m benchmarks.speed``.

Each side is a process of its own; a round measures each once, and ratios are taken within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.harness import Summary, in_turns, ratio, table
from benchmarks.processes import PeerMissingError, Process, worker
from benchmarks.quiet import Patience

SIDES = ("engine", "inferlet", "llama.cpp")
PEER = "llama.cpp"


@dataclass(frozen=True)
class Workload:
    """``arguments`` makes a side's arguments from the model's token ids."""

    name: str
    title: str
    arguments: Callable[[Sequence[int]], dict[str, Any]]


WORKLOADS = (
    Workload("decode", "decode, 128 tokens", lambda ids: {"prompt": ids[:12], "count": 128}),
    Workload("prefill", "prefill, 512 tokens", lambda ids: {"prompt": ids[:512]}),
    Workload(
        "streams",
        "16 streams of 32 tokens",
        lambda ids: {"prompts": [ids[12 * i : 12 * i + 12] for i in range(16)], "count": 32},
    ),
)


@dataclass(frozen=True)
class Result:
    """Tokens a second of one workload by side, a figure a round."""

    model: str
    workload: str
    figures: Mapping[str, list[float]]

    def row(self) -> list[str]:
        cells = [Summary.of(self.figures[name]).show() if name in self.figures else "not here" for name in SIDES]
        return [self.model, self.workload, *cells, *(self._ratio(name) for name in SIDES if name != PEER)]

    def _ratio(self, name: str) -> str:
        """Round by round, and the best of each over the other's: what company takes from one side alone isn't in that."""
        if name not in self.figures or PEER not in self.figures:
            return "–"
        ours, peer = self.figures[name], self.figures[PEER]
        return f"{ratio(ours, peer).show(2)}; best {max(ours) / max(peer):.2f}"


HEADER = ("model", "workload", *(f"{name}, tok/s" for name in SIDES), "engine ÷ peer", "inferlet ÷ peer")


@dataclass(frozen=True)
class Setup:
    """How everything is measured in one run. ``clock`` is ``wall`` or ``cpu``."""

    backend: str
    threads: int
    rounds: int
    clock: str
    patience: Patience

    @property
    def sides(self) -> Sequence[str]:
        """What an inferlet's steps take is read from the engine's own clock, which is the wall's."""
        return SIDES if self.clock == "wall" else [name for name in SIDES if name != "inferlet"]


def measure(model: str, path: Path, setup: Setup) -> tuple[list[Result], list[str]]:
    """Results by workload, and a line for each side: what it is and the memory it took."""
    ids = models.token_ids(path, 1024)
    with ExitStack() as stack:
        sides: dict[str, Process] = {}
        for name in setup.sides:
            command = worker(name, path, setup.backend, setup.threads, setup.clock)
            try:
                sides[name] = stack.enter_context(Process(name, command))
            except PeerMissingError as error:
                print(f"{name} is not here, only ours is measured: {error}", file=sys.stderr)
        results = []
        for work in WORKLOADS:
            results.append(Result(model, work.title, _turns(sides, work, ids, setup)))
            print(" | ".join(results[-1].row()), file=sys.stderr)
        notes = [f"{name}: {side.description}; {side.memory / 1e6:.0f} MB resident" for name, side in sides.items()]
        return results, notes


def _turns(sides: Mapping[str, Process], work: Workload, ids: Sequence[int], setup: Setup) -> dict[str, list[float]]:
    calls = {name: partial(side.measure, work.name, **work.arguments(ids)) for name, side in sides.items()}
    in_turns(calls, 1)  # Buckets are recorded, caches filled, clocks raised.
    return in_turns(calls, setup.rounds, setup.patience)


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.speed", description=__doc__)
    parser.add_argument("--model", action="append", help="a model by name or a GGUF file; default: both built-in ones")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--threads", type=int, default=cores(), help="of each side; default: one a core")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: tokens by the process's own processor time; with --threads 1 fair on a machine that has company",
    )
    parser.add_argument("--json", type=Path, help="write every figure there")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for an idle machine, each time")
    asked = parser.parse_args(argv)
    setup = Setup(asked.backend, asked.threads, asked.rounds, asked.clock, Patience(asked.patience))
    results: list[Result] = []
    for model in asked.model or models.MODELS:
        found, notes = measure(model, models.find(model), setup)
        results += found
        print("\n".join(notes), file=sys.stderr)
    setup.patience.tell()
    print(table(HEADER, [result.row() for result in results]))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(result) for result in results], indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
