"""Tokens a second of engines and peers on one device, in turns, and the ratios that have to hold: what the benchmarks of Vulkan
and wgpu have in common.

llama.cpp comes from node-llama-cpp: npm install --prefix benchmarks --no-save --ignore-scripts node-llama-cpp. Without it
only ours is measured. ``--clock cpu`` counts tokens by a process's own processor time, all its threads' together: on a
software device that is fair on a machine that has company, where llama.cpp's spinning threads suffer most.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import models
from benchmarks.harness import Summary, in_turns, ratio, table
from benchmarks.processes import ROOT, PeerMissingError, Process, worker
from benchmarks.quiet import Patience
from benchmarks.speed import cores

PEER, PEER_CPU = "llama.cpp, Vulkan", "llama.cpp, CPU"
PEER_SCRIPT = ROOT / "benchmarks" / "sides" / "llama_cpp.mjs"
PROMPT, PREFILL = 12, 512
STREAMS = 16


@dataclass(frozen=True)
class Floor:
    """What a ratio of two sides has to be at least."""

    workload: str
    over: str
    least: float


@dataclass(frozen=True)
class Setup:
    model: Path
    threads: int
    rounds: int
    tokens: int
    clock: str
    patience: Patience

    def ours(self, backend: str) -> list[str]:
        return worker("engine", self.model, backend, self.threads, self.clock)

    def peer(self, kind: str, *more: str) -> list[str]:
        return ["node", str(PEER_SCRIPT), str(self.model), str(self.threads), kind, *more]


Figures = Mapping[str, Mapping[str, Sequence[float]]]
"""Tokens a second by workload and side, a figure a round."""


def main(
    name: str, about: str | None, tellers: Mapping[str, Callable[[Setup], bool]], argv: Sequence[str] | None = None
) -> int:
    """Measures and tells the parts that are asked for; 0 if all of them are as they should be."""
    parser = argparse.ArgumentParser(prog=name, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    setup, parts = _arguments(parser, argv, tellers)
    held = [tellers[part](setup) for part in parts]
    setup.patience.tell()
    return 0 if all(held) else 1


def _arguments(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, parts: Iterable[str]
) -> tuple[Setup, list[str]]:
    """The setup, and which of the parts are asked for."""
    parser.add_argument("--model", default=models.MODELS[0])
    parser.add_argument(
        "--threads", type=int, default=0, help="of llama.cpp; default: one a core, with --clock cpu one"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32, help="of a decode")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--parts", default=",".join(parts), help="what to measure")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for an idle machine, each time")
    asked = parser.parse_args(argv)
    threads = asked.threads or (1 if asked.clock == "cpu" else cores())
    setup = Setup(models.find(asked.model), threads, asked.rounds, asked.tokens, asked.clock, Patience(asked.patience))
    return setup, asked.parts.split(",")


def speed(setup: Setup, commands: Mapping[str, Sequence[str]], streams: Sequence[str] = ()) -> Figures:
    """Of each side by its command; those of ``streams`` also decode several at once. The peer on Vulkan takes half a minute for
    a prefill on a software device: it is measured once a round, like all."""
    ids = models.token_ids(setup.model, PREFILL + setup.rounds + 2)
    # A software device is only taken by the peer where it is named.
    os.environ.setdefault("GGML_VK_VISIBLE_DEVICES", "0")
    figures: dict[str, dict[str, list[float]]] = {"decode": {}, "prefill": {}} | ({"streams": {}} if streams else {})
    with ExitStack() as stack:
        sides: dict[str, Process] = {}
        for name, command in commands.items():
            try:
                sides[name] = stack.enter_context(Process(name, command))
                print(f"{name}: {sides[name].description}", file=sys.stderr)
            except (PeerMissingError, FileNotFoundError) as error:
                print(f"{name} is not here: {error}", file=sys.stderr)
        for turn in range(setup.rounds + 1):
            # Another beginning each time: a prompt that was seen is not computed again.
            prompt = ids[turn : turn + PREFILL]
            measures = {
                "decode": {"prompt": prompt[:PROMPT], "count": setup.tokens},
                "prefill": {"prompt": prompt},
                "streams": {"prompts": [prompt[i : i + PROMPT] for i in range(STREAMS)], "count": setup.tokens // 2},
            }
            for workload in figures:
                asked = {n: side for n, side in sides.items() if workload != "streams" or n in streams}
                calls = {n: partial(side.measure, workload, **measures[workload]) for n, side in asked.items()}
                for name, found in in_turns(calls, 1, setup.patience).items():
                    if turn:  # In the first one buckets are recorded, kernels compiled, clocks raised.
                        figures[workload].setdefault(name, []).extend(found)
    return figures


@dataclass(frozen=True)
class Check:
    """A ratio as it was found, round by round and by the best of each side, and what it has to be at least."""

    name: str
    told: str
    found: float
    least: float


def checks(figures: Figures, ours: str, floors: Iterable[Floor]) -> list[Check]:
    """Of the floors that could be measured."""
    return [
        Check(
            f"{floor.workload} ÷ {floor.over}",
            ratio(sides[ours], sides[floor.over]).show(2),
            max(sides[ours]) / max(sides[floor.over]),
            floor.least,
        )
        for floor in floors
        if floor.over in (sides := figures[floor.workload])
    ]


def tell(figures: Figures, setup: Setup, names: Sequence[str], found: Sequence[Check]) -> bool:
    """Print it all; whether every floor holds."""
    unit = "tok/s" if setup.clock == "wall" else "tokens a second of processor time"
    rows = [
        [workload, *(Summary.of(sides[n]).show(1) if n in sides else "–" for n in names)]
        for workload, sides in figures.items()
    ]
    print(f"\nOn {setup.model.stem}, {unit}: median (least to most)\n")
    print(table(("workload", *names), rows))
    print()
    told = [[one.name, one.told, f"{one.found:.2f}", f"{one.least:g}"] for one in found]
    print(table(("ratio", "round by round", "best", "floor"), told))
    return all(one.found >= one.least for one in found)
