"""The Vulkan backend against llama.cpp's on the same device and llama.cpp's on the CPU, and where its time goes.

    python -m benchmarks.vulkan [--clock cpu] [--parts speed,start,steps,kernels]

llama.cpp comes from node-llama-cpp: npm install --prefix benchmarks --no-save --ignore-scripts node-llama-cpp. Without it
only ours is measured. ``--clock cpu`` counts tokens by a process's own processor time, all its threads' together: on a
software device that is fair on a machine that has company, where llama.cpp's spinning threads suffer most.

Exit status 1: a floor was missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import models, startup, vulkan_steps
from benchmarks.harness import Summary, in_turns, ratio, table
from benchmarks.processes import ROOT, PeerMissingError, Process, worker
from benchmarks.quiet import Patience
from benchmarks.speed import cores

OURS, PEER, CPU = "pie-edge, Vulkan", "llama.cpp, Vulkan", "llama.cpp, CPU"
PEER_SCRIPT = ROOT / "benchmarks" / "sides" / "llama_cpp.mjs"
PROMPT, PREFILL = 12, 512
STREAMS = 16
PARTS = ("speed", "start", "steps", "kernels")
FIRST_TOKEN = 5.0
"""Seconds from a fresh process to the first token."""
PYTHON_SHARE = 300.0
"""Microseconds of a decode step, beside a device that doesn't take Python's caches."""


@dataclass(frozen=True)
class Floor:
    """What a ratio has to be at least."""

    workload: str
    over: str
    least: float


FLOORS = (
    Floor("decode", PEER, 12),
    Floor("decode", CPU, 0.15),
    Floor("prefill", PEER, 4.5),
    Floor("prefill", CPU, 0.12),
)
TOGETHER = 1.2
"""So many times one stream's tokens that 16 streams have to give."""


@dataclass(frozen=True)
class Setup:
    model: Path
    threads: int
    rounds: int
    tokens: int
    clock: str
    patience: Patience

    def peer(self, kind: str, *more: str) -> list[str]:
        return ["node", str(PEER_SCRIPT), str(self.model), str(self.threads), kind, *more]


Figures = Mapping[str, Mapping[str, Sequence[float]]]
"""Tokens a second by workload and side, a figure a round."""


def speed(setup: Setup) -> Figures:
    """The peer on Vulkan takes half a minute for a prefill on a software device: it is measured once a round, like all."""
    ids = models.token_ids(setup.model, PREFILL + setup.rounds + 2)
    # A software device is only taken by it where it is named.
    os.environ.setdefault("GGML_VK_VISIBLE_DEVICES", "0")
    figures: dict[str, dict[str, list[float]]] = {"decode": {}, "prefill": {}, "streams": {}}
    with ExitStack() as stack:
        sides: dict[str, Process] = {}
        commands = {
            OURS: worker("engine", setup.model, "vulkan", setup.threads, setup.clock),
            PEER: setup.peer("vulkan", setup.clock),
            CPU: setup.peer("cpu", setup.clock),
        }
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
            for workload, given in measures.items():
                asked = {n: side for n, side in sides.items() if workload != "streams" or n != PEER}
                calls = {n: partial(side.measure, workload, **given) for n, side in asked.items()}
                for name, found in in_turns(calls, 1, setup.patience).items():
                    if turn:  # In the first one buckets are recorded, kernels compiled, clocks raised.
                        figures[workload].setdefault(name, []).extend(found)
    return figures


def tell_speed(figures: Figures, setup: Setup) -> bool:
    """Print it all; whether every floor that could be measured holds, by the best of each side."""
    unit = "tok/s" if setup.clock == "wall" else "tokens a second of processor time"
    rows = [
        [workload, *(Summary.of(sides[n]).show(1) if n in sides else "–" for n in (OURS, PEER, CPU))]
        for workload, sides in figures.items()
    ]
    print(f"\nOn {setup.model.stem}, {unit}: median (least to most)\n")
    print(table(("workload", OURS, PEER, CPU), rows))
    checks = []
    for floor in FLOORS:
        sides = figures[floor.workload]
        if floor.over in sides:
            found = max(sides[OURS]) / max(sides[floor.over])
            told = ratio(sides[OURS], sides[floor.over]).show(2)
            checks.append((f"{floor.workload} ÷ {floor.over}", told, found, floor.least))
    alone, together = figures["decode"][OURS], figures["streams"][OURS]
    checks.append((f"{STREAMS} streams ÷ one", ratio(together, alone).show(2), max(together) / max(alone), TOGETHER))
    print()
    print(table(("ratio", "round by round", "best", "floor"), [[n, t, f"{f:.2f}", f"{m:g}"] for n, t, f, m in checks]))
    return all(found >= least for _, _, found, least in checks)


def tell_start(setup: Setup) -> bool:
    """Fresh processes with the driver's cache of compiled shaders and without, and the stages of one of each."""
    ours = [sys.executable, "-P", "-m", "pie_edge.cli", *startup.words(setup.model, "vulkan")]
    rows, within = [], True
    startup.start(ours)  # The language component is built once on a machine, and imports are compiled.
    with tempfile.TemporaryDirectory() as folder:
        for name, driver in (("driver's cache warm", {}), ("driver's cache empty", {"MESA_SHADER_CACHE_DIR": folder})):
            os.environ |= driver
            setup.patience()
            found = [startup.start(ours) for _ in range(1 if driver else setup.rounds)]
            rows += startup.rows({f"pie-edge, {name}": found})
            within = within and min(one.first for one in found) <= FIRST_TOKEN
        os.environ["MESA_SHADER_CACHE_DIR"] = f"{folder}/traced"
        traced = startup.stages(setup.model, "vulkan")
        del os.environ["MESA_SHADER_CACHE_DIR"]
    try:
        rows += startup.rows({PEER: [startup.start(setup.peer("vulkan", startup.PROMPT))]})
    except (OSError, ChildProcessError, subprocess.SubprocessError) as error:
        print(f"{PEER} is not here: {error}", file=sys.stderr)
    print()
    print(table(("fresh process", "first token, s", "end, s", "processor time, s"), rows))
    print("\nWith the driver's cache empty:\n")
    told = [[t, n, f"{b * 1e3:.0f}", f"{s * 1e3:.1f}"] for t, n, b, s in traced]
    print(table(("stage", "thread", "begins at, ms", "takes, ms"), told))
    return within


def tell_steps(setup: Setup) -> bool:
    busy, idle = vulkan_steps.breakdown(setup.model, setup.tokens, setup.rounds)
    print()
    rows = [[name, f"{micros:.1f}", f"{idle[name]:.1f}"] for name, micros in busy.items()]
    print(table(("of a decode step, µs", "as it is", "beside an idle device"), rows))
    return idle[vulkan_steps.OWN] <= PYTHON_SHARE


def tell_kernels(setup: Setup) -> bool:
    rate, rows = vulkan_steps.kernels(setup.model)
    print(f"\nKernels of a decode step, by processor time; one thread reads {rate / 1e9:.1f} GB/s here:\n")
    header = ("kernel", "launches", "µs", "MB of weights", "GB/s", "of the limit")
    print(table(header, rows))
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.vulkan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=models.MODELS[0])
    parser.add_argument(
        "--threads", type=int, default=0, help="of llama.cpp; default: one a core, with --clock cpu one"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32, help="of a decode")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for an idle machine, each time")
    asked = parser.parse_args(argv)
    threads = asked.threads or (1 if asked.clock == "cpu" else cores())
    patience = Patience(asked.patience)
    setup = Setup(models.find(asked.model), threads, asked.rounds, asked.tokens, asked.clock, patience)
    tellers = {"start": tell_start, "steps": tell_steps, "kernels": tell_kernels}
    held = []
    for part in asked.parts.split(","):
        held.append(tell_speed(speed(setup), setup) if part == "speed" else tellers[part](setup))
    patience.tell()
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
