"""Whether each backend says what the oracle says: ``python -m benchmarks.parity [--model M] [--backend B] [--write]``.

Two questions for each prompt of ``tests/data/oracle``. Left alone, does the model continue it with the same greedy tokens,
and if not, how close was the choice where it first differs? Led along the oracle's tokens, how far are the
log probabilities of its five best off, from the oracle's own and from our NumPy reference on the same weights?
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import models
from benchmarks.engines import EMULATED, Opened, Stream, logits_epilogue, open_engine
from benchmarks.parity_page import PAGE, Row, merge, render
from benchmarks.parity_reference import Case, Floats, cases, expected
from tests.support.oracle_run import log_softmax

TOLERANCES = {"exact": 2e-4, "fast": 0.1}
"""Largest error of a log probability, from our reference, that a mode promises; and how much less likely than the
reference's best a chosen token may be. Exact mode keeps everything in float32, fast mode what the device is fastest with."""
SHORT = 16
"""Tokens of a prompt that the emulator is asked."""
SHORT_ANSWERS = {"gemma3-270m": 8}
"""Of an answer to it, where not all: a row of Gemma's logits takes it more than a second."""
OWN_TOLERANCES = {"reference": {"exact": 2e-4}, "cpu": {"exact": 2e-4, "fast": 0.02}}
"""Of backends that promise more, or have one mode alone."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an answer leaves the oracle's. ``gap``: between the oracle's two best log probabilities there. ``regret``: from the
    reference's best token to the chosen one; infinite for one outside of the oracle's five best."""

    gap: float
    regret: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One prompt: the greedy tokens that match, where the first that doesn't stands, and the largest errors."""

    matched: int
    difference: Difference | None
    oracle_error: float
    reference_error: float


async def judge(opened: Opened, case: Case, reference: Floats) -> Verdict:
    space = opened.engine.open_space("parity", 0)
    prompt, greedy = case["prompt_ids"], case["greedy_ids"]
    answer = await Stream(space, len(prompt) + len(greedy)).generate(prompt, len(greedy))
    found = await _led_along(Stream(space, len(prompt) + len(greedy)), prompt + greedy[:-1], len(greedy))
    space.close()
    matched = next((i for i, (one, other) in enumerate(zip(answer, greedy, strict=True)) if one != other), len(greedy))
    told = np.take_along_axis(found, np.array([step["ids"] for step in case["steps"]]), axis=1)
    oracle = np.array([step["logprobs"] for step in case["steps"]])
    return Verdict(
        matched,
        difference(case["steps"][matched], reference[matched], answer[matched]) if matched < len(greedy) else None,
        _largest(told - oracle),
        _largest(told - reference),
    )


def difference(step: Case, reference: Floats, chosen: int) -> Difference:
    best, second = sorted(step["logprobs"], reverse=True)[:2]
    likely = reference[step["ids"].index(chosen)] if chosen in step["ids"] else -np.inf
    return Difference(best - second, float(reference.max() - likely))


async def _led_along(stream: Stream, tokens: Sequence[int], rows: int) -> Floats:
    """[rows, vocabulary]: log probabilities after each of the last ``rows`` tokens, in one pass."""
    read = await stream.forward(tokens, range(len(tokens) - rows, len(tokens)), logits_epilogue(rows))
    return log_softmax(np.frombuffer(read.data, np.float32).reshape(rows, -1))


def _largest(error: Any) -> float:
    return float(np.abs(error).max())


async def measure(model: str, backend: str, mode: str) -> Row:
    path = models.find(model)
    pairs = list(zip(cases(model), expected(model, path), strict=True))
    if backend == EMULATED:
        pairs = [_shortened(*pair, SHORT_ANSWERS.get(model)) for pair in pairs if len(pair[0]["prompt_ids"]) <= SHORT]
    judged, reference = zip(*pairs, strict=True)
    async with open_engine(path, backend, exact=mode == "exact") as opened:
        name = EMULATED if backend == EMULATED else opened.backend.limits.backend
        verdicts = [await judge(opened, case, known) for case, known in zip(judged, reference, strict=True)]
    return row(model, name, mode, verdicts, sum(len(case["greedy_ids"]) for case in judged))


def _shortened(case: Case, reference: Floats, tokens: int | None) -> tuple[Case, Floats]:
    """With so many tokens of the answer, or all."""
    cut = {name: case[name][:tokens] for name in ("greedy_ids", "steps")}
    return {**case, **cut}, reference[:tokens]


def row(model: str, backend: str, mode: str, verdicts: Sequence[Verdict], tokens: int) -> Row:
    tolerance = tolerances(backend)[mode]
    differences = [verdict.difference for verdict in verdicts if verdict.difference is not None]
    error = max(verdict.reference_error for verdict in verdicts)
    regret = max((found.regret for found in differences), default=0.0)
    gap = max((found.gap for found in differences), default=0.0)
    where = f"{len(differences)} of {len(verdicts)} prompts: gap {gap:.4f}, regret {regret:.4f}"
    return Row(
        model,
        backend,
        mode,
        f"{sum(verdict.matched for verdict in verdicts)} of {tokens}",
        where if differences else "none",
        f"{max(verdict.oracle_error for verdict in verdicts):.2g}",
        f"{error:.2g}",
        f"{tolerance:g}",
        "yes" if error <= tolerance and regret <= tolerance else "**no**",
    )


def tolerances(backend: str) -> Mapping[str, float]:
    """By mode."""
    return OWN_TOLERANCES.get(backend, TOLERANCES)


def _working_backends() -> list[str]:
    from pie_edge.backend_choice import BACKENDS, probe

    return [name for name in BACKENDS if probe(name).devices]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.parity", description=__doc__)
    parser.add_argument("--model", action="append", choices=models.MODELS, help="default: all")
    parser.add_argument(
        "--backend", action="append", help=f"a backend, reference, or '{EMULATED}'; default: all that work here"
    )
    parser.add_argument("--mode", action="append", choices=TOLERANCES, help="default: both")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/parity.md")
    asked = parser.parse_args(argv)
    rows = []
    for model in asked.model or models.MODELS:
        for backend in asked.backend or _working_backends():
            for mode in (mode for mode in tolerances(backend) if mode in (asked.mode or TOLERANCES)):
                rows.append(asyncio.run(measure(model, backend, mode)))
                print(
                    f"{model}, {backend}, {mode}: {rows[-1].matched}, error {rows[-1].reference_error}", file=sys.stderr
                )
    print(render(rows))
    if asked.write:
        PAGE.write_text(merge(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    return 0 if all(found.within == "yes" for found in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
