"""The CUDA backend on a card: tokens a second of one stream, of a long prompt and of sixteen streams, and the share of the card's
memory that a decode reaches.

    python -m benchmarks.cuda [--model NAME_OR_PATH] [--rounds 3]

Without ``--model`` it takes a checkpoint of a billion parameters out of nothing (``seeded.py``), kept in the cache folder:
nothing is downloaded. Exit status 1: sixteen streams give less than four times the tokens of one, by the median.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import models, seeded
from benchmarks.engines import EMULATED
from benchmarks.harness import Measure, Summary, in_turns, ratio, table
from benchmarks.paper.cuda import CARDS
from benchmarks.sides.engine import EngineSide
from benchmarks.sides.side import Job
from pie_edge.weights.checkpoint import open_checkpoint

STREAMS = 16
TOGETHER = 4.0
"""So many times one stream's tokens that sixteen have to give at least: they share each read of the weights."""


@dataclass(frozen=True)
class Setup:
    model: Path
    backend: str
    rounds: int
    tokens: int
    prompt: int


@dataclass(frozen=True)
class Figures:
    """Tokens a second by workload, a figure a round."""

    device: str
    found: Mapping[str, Sequence[float]]

    @property
    def together(self) -> Summary:
        return ratio(self.found["16 streams"], self.found["decode"])


def checkpoint(name: str | None, folder: Path, size: str) -> Path:
    """The named model, or the seeded one, made if it isn't there."""
    if name is not None:
        return models.find(name)
    path = folder / f"seeded-{size}.gguf"
    folder.mkdir(parents=True, exist_ok=True)
    seeded.main([str(path), "--size", size])
    return path


def measure(setup: Setup) -> Figures:
    """Each workload once to warm up, then in turns."""
    side = EngineSide(Job(setup.model, setup.backend, 0))
    with open_checkpoint(setup.model) as found:
        vocabulary = len(found.metadata["tokenizer.ggml.tokens"])
    rng = np.random.default_rng(0)

    def prompt(count: int) -> list[int]:
        """Never the same: a prompt that was seen is not computed again."""
        return [int(token) for token in rng.integers(0, min(vocabulary, 256), count)]

    calls: dict[str, Measure] = {
        "decode": lambda: side.decode(prompt(12), setup.tokens),
        f"prefill of {setup.prompt}": lambda: side.prefill(prompt(setup.prompt)),
        f"{STREAMS} streams": lambda: side.streams([prompt(12) for _ in range(STREAMS)], setup.tokens),
    }
    try:
        in_turns(calls, 1)
        return Figures(side.description, in_turns(calls, setup.rounds))
    finally:
        side.close()


def tell(figures: Figures, setup: Setup) -> str:
    """And what of a known card's memory bandwidth a decode takes, all of the file being read for each token."""
    rows = [[workload, Summary.of(found).show(1)] for workload, found in figures.found.items()]
    rate = max(figures.found["decode"]) * setup.model.stat().st_size
    lines = [figures.device, "", table(("tokens a second", setup.model.stem), rows), ""]
    lines.append(f"{STREAMS} streams ÷ one: {figures.together.show(1)}, {TOGETHER:g} asked for")
    card = next((card for card in CARDS if re.search(rf"\b{card.name}\b", figures.device)), None)
    share = "" if card is None else f", {rate / card.bandwidth:.0%} of the {card.name}'s"
    lines.append(f"a decode reads {rate / 1e9:.1f} GB/s{share}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    from pie_edge.paths import cache_folder

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a name or a path; default: the seeded one")
    parser.add_argument("--size", choices=seeded.SIZES, default="billion", help="of the seeded one")
    parser.add_argument("--backend", choices=("cuda", EMULATED), default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64, help="of a decode")
    parser.add_argument("--prompt", type=int, default=512)
    given = parser.parse_args(argv)
    setup = Setup(
        checkpoint(given.model, cache_folder(), given.size), given.backend, given.rounds, given.tokens, given.prompt
    )
    figures = measure(setup)
    print(tell(figures, setup))
    return 0 if figures.together.median >= TOGETHER else 1


if __name__ == "__main__":
    sys.exit(main())
