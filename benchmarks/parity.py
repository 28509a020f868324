"""Whether each backend says what the oracle says: ``python -m benchmarks.parity [--model M] [--backend B] [--write]``.

Two questions for each prompt of ``tests/data/oracle``. Left alone, does the model continue it with the same greedy tokens,
and if not, how close were the two best where it first differs? Led along the oracle's tokens, how far are the
log probabilities of its five best off, from the oracle's own and from our NumPy reference on the same weights?
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import models
from benchmarks.engines import Opened, Stream, logits_epilogue, open_engine
from benchmarks.parity_page import PAGE, Row, merge, render
from benchmarks.parity_reference import Case, Floats, cases, expected, log_softmax

TOLERANCES = {"exact": 2e-4, "fast": 0.1}
"""Largest error of a log probability, from our reference, that a mode promises; and the gap below which it may choose the
other of two tokens. Exact mode keeps everything in float32, fast mode what the device is fastest with."""


@dataclass(frozen=True)
class Verdict:
    """One prompt: how many greedy tokens match, the oracle's gap at the first that doesn't, and the largest errors."""

    matched: int
    gap: float | None
    oracle_error: float
    reference_error: float


async def judge(opened: Opened, case: Case, reference: Floats) -> Verdict:
    space = opened.engine.open_space("parity", 0)
    prompt, greedy = case["prompt_ids"], case["greedy_ids"]
    answer = await Stream(space, len(prompt) + len(greedy)).generate(prompt, len(greedy))
    found = await _led_along(Stream(space, len(prompt) + len(greedy)), prompt + greedy[:-1], len(greedy))
    space.close()
    matched = next((i for i, pair in enumerate(zip(answer, greedy, strict=True)) if pair[0] != pair[1]), len(greedy))
    best = sorted(case["steps"][matched]["logprobs"], reverse=True) if matched < len(greedy) else None
    ids = np.array([step["ids"] for step in case["steps"]])
    told = np.take_along_axis(found, ids, axis=1)
    oracle = np.array([step["logprobs"] for step in case["steps"]])
    return Verdict(
        matched, best[0] - best[1] if best else None, _largest(told - oracle), _largest(told - reference)
    )


async def _led_along(stream: Stream, tokens: Sequence[int], rows: int) -> Floats:
    """[rows, vocabulary]: log probabilities after each of the last ``rows`` tokens, in one pass."""
    read = await stream.forward(tokens, range(len(tokens) - rows, len(tokens)), logits_epilogue(rows))
    return log_softmax(np.frombuffer(read.data, np.float32).reshape(rows, -1))


def _largest(error: Any) -> float:
    return float(np.abs(error).max())


async def measure(model: str, backend: str, mode: str) -> Row:
    path, judged = models.find(model), cases(model)
    reference = expected(model, path)
    async with open_engine(path, backend, exact=mode == "exact") as opened:
        name = opened.backend.limits.backend
        verdicts = [await judge(opened, case, known) for case, known in zip(judged, reference, strict=True)]
    return row(model, name, mode, verdicts, sum(len(case["greedy_ids"]) for case in judged))


def row(model: str, backend: str, mode: str, verdicts: Sequence[Verdict], tokens: int) -> Row:
    tolerance = TOLERANCES[mode]
    gaps = [verdict.gap for verdict in verdicts if verdict.gap is not None]
    oracle_error = max(verdict.oracle_error for verdict in verdicts)
    error = max(verdict.reference_error for verdict in verdicts)
    return Row(
        model,
        backend,
        mode,
        f"{sum(verdict.matched for verdict in verdicts)} of {tokens}",
        f"{len(gaps)} of {len(verdicts)} prompts, gap up to {max(gaps):.4f}" if gaps else "none",
        f"{oracle_error:.2g}",
        f"{error:.2g}",
        f"{tolerance:g}",
        "yes" if error <= tolerance and max(gaps, default=0) <= tolerance else "**no**",
    )


def _working_backends() -> list[str]:
    from pie_edge.backend_choice import BACKENDS, has_kernels, probe

    return [name for name in BACKENDS if has_kernels(name) and probe(name).devices]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.parity", description=__doc__)
    parser.add_argument("--model", action="append", choices=models.MODELS, help="default: all")
    parser.add_argument("--backend", action="append", help="a backend, or reference; default: all that work here")
    parser.add_argument("--mode", action="append", choices=TOLERANCES, help="default: both")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/parity.md")
    asked = parser.parse_args(argv)
    rows = []
    for model in asked.model or models.MODELS:
        for backend in asked.backend or _working_backends():
            # The reference has one way to compute, and it is exact.
            for mode in ["exact"] if backend == "reference" else asked.mode or TOLERANCES:
                rows.append(asyncio.run(measure(model, backend, mode)))
                print(json.dumps({name: getattr(rows[-1], name) for name in Row.__slots__}), file=sys.stderr)
    print(render(rows))
    if asked.write:
        PAGE.write_text(merge(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    return 0 if all(found.within == "yes" for found in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
