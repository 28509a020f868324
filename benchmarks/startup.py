"""From a fresh process to the first token, ours and llama.cpp's in turns, and where our time goes.

    python -m benchmarks.startup

Both run from Python with files and caches warm (the second run of a user). llama.cpp's own C++ program would start
faster than its Python package does: what that package's import takes is told beside it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import models
from benchmarks.harness import Summary, ratio, table
from benchmarks.processes import ROOT, describe_exit, environment
from benchmarks.quiet import Patience

PROMPT = "The capital of France is"
TARGET = 1.5
"""Seconds to the first token that a start may take on two cores."""


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from starting a process until its first output and until it had ended; and of all processors' time."""

    first: float
    end: float
    processor: float


def start(command: Sequence[str]) -> Start:
    """Raises ChildProcessError where the command fails or says nothing."""
    begun, spent = time.perf_counter(), _children()
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        told = child.stdout.read(1)
        first = time.perf_counter() - begun
        child.stdout.read()
        errors = child.stderr.read().decode("utf-8", "replace")
        code = child.wait()
    if code or not told:
        raise ChildProcessError(f"{' '.join(command)}: {describe_exit(code, errors)}")
    return Start(first, time.perf_counter() - begun, _children() - spent)


def _children() -> float:
    """Processor seconds of the processes that this one waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def words(model: Path, backend: str) -> list[str]:
    return [
        *("run", "inferlets/quickstart/main.py", "--model", str(model), "--backend", backend, "--quiet"),
        *("--", "--prompt", PROMPT, "--max_tokens", "1"),
    ]


def stages(model: Path, backend: str) -> list[tuple[str, str, float, float]]:
    """``(title, thread, begin, seconds)`` of one traced start, in order of their beginning."""
    command = [sys.executable, "-m", "benchmarks.startup_stages", str(time.perf_counter()), *words(model, backend)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChildProcessError(f"the traced start: {describe_exit(done.returncode, done.stderr)}")
    found = [
        (title, thread, begin, seconds) for title, thread, begin, seconds in json.loads(done.stderr.splitlines()[-1])
    ]
    return sorted(found, key=lambda stage: stage[2])


def slowest_imports(model: Path, backend: str, count: int = 12) -> list[tuple[str, float]]:
    """``(module, seconds)`` of the imports that took longest by themselves; the clock of ``-X importtime`` adds some."""
    command = [sys.executable, "-X", "importtime", "-P", "-m", "pie_edge.cli", *words(model, backend)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    return parse_imports(done.stderr)[:count]


def parse_imports(told: str) -> list[tuple[str, float]]:
    lines = re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)$", told, re.MULTILINE)
    return sorted(((name, int(micros) / 1e6) for micros, name in lines), key=lambda found: -found[1])


def starts(commands: Mapping[str, Sequence[str]], rounds: int, patience: Patience) -> dict[str, list[Start]]:
    """Each command's starts, in turns, after one that fills the caches."""
    for command in commands.values():
        start(command)
    found: dict[str, list[Start]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            patience()
            found[name].append(start(command))
    return found


def rows(figures: Mapping[str, Sequence[Start]]) -> list[list[str]]:
    return [
        [name, *(Summary.of([getattr(one, title) for one in found]).show(2) for title in Start.__slots__)]
        for name, found in figures.items()
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.startup", description=__doc__)
    parser.add_argument("--model", default=models.MODELS[0])
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for an idle machine, each time")
    asked = parser.parse_args(argv)
    model = models.find(asked.model)
    commands = {"pie-edge": [sys.executable, "-P", "-m", "pie_edge.cli", *words(model, asked.backend)]}
    if importlib.util.find_spec("llama_cpp") is None:
        print("llama.cpp is not here, only ours is measured (benchmarks/requirements.txt)", file=sys.stderr)
    else:
        commands["llama.cpp"] = [
            *(sys.executable, "-m", "benchmarks.first_token_llama", str(model), str(os.cpu_count()), PROMPT)
        ]
    patience = Patience(asked.patience)
    figures = starts(commands, asked.rounds, patience)
    patience.tell()
    print(table(("fresh process", "first token, s", "end, s", "processor time, s"), rows(figures)))
    if "llama.cpp" in figures:
        for title in ("first", "processor"):
            ours, peer = ([getattr(one, title) for one in figures[name]] for name in ("pie-edge", "llama.cpp"))
            print(f"\nours ÷ llama.cpp, {title}: {ratio(ours, peer).show(2)}; best {min(ours) / min(peer):.2f}")
    best = min((stages(model, asked.backend) for _ in range(3)), key=lambda found: max(s[2] + s[3] for s in found))
    print(
        "\n"
        + table(
            ("stage", "thread", "begins at, ms", "takes, ms"),
            [[t, n, f"{b * 1e3:.0f}", f"{s * 1e3:.1f}"] for t, n, b, s in best],
        )
    )
    print(
        "\n"
        + table(("slowest imports", "ms"), [[n, f"{s * 1e3:.1f}"] for n, s in slowest_imports(model, asked.backend)])
    )
    return 0 if min(one.first for one in figures["pie-edge"]) <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
