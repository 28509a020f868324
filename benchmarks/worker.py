"""The process of one side: reads a request a line on stdin, writes an answer a line on stdout. Started by ``processes``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.sides.side import Job, Side

SIDES = ("engine", "inferlet", "llama.cpp", "mlx-lm")
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def open_side(name: str, job: Job) -> Side:
    """Raises ImportError for a peer that isn't installed."""
    if name == "engine":
        from benchmarks.sides.engine import EngineSide

        return EngineSide(job)
    if name == "inferlet":
        from benchmarks.sides.inferlet import InferletSide

        return InferletSide(job)
    if name == "mlx-lm":
        from benchmarks.sides.mlx_lm import MlxLmSide

        return MlxLmSide(job)
    from benchmarks.sides.llama_cpp import LlamaCppSide

    return LlamaCppSide(job)


def serve(side: Side) -> None:
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        value = getattr(side, request.pop("workload"))(**request)
        _tell({"value": value})


def _tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer | {"memory": resident()}), flush=True)


def resident() -> int | None:
    """Bytes of this process in memory, pages of mapped files included; None where the system doesn't say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.worker")
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("model", type=Path)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    asked = parser.parse_args()
    try:
        side = open_side(asked.side, Job(asked.model, asked.backend, asked.threads, CLOCKS[asked.clock]))
    except ImportError as error:
        _tell({"missing": str(error)})
        return 0
    _tell({"description": side.description})
    serve(side)
    side.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
