"""Nodes that are algorithms of their own, and sampling presets, by kernels by hand: a threadgroup takes a row.

Every value is an array of its own, so that it begins at its array's first word: of what ``shared/epilogue_algorithms.py`` says
of places only where inputs begin counts here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.launch import LEAST, Kernel, Launch, Launcher
from pie_edge.backends.shared.epilogue_algorithms import Run, Site, launches
from pie_edge.backends.shared.epilogue_presets import Sampler
from pie_edge.backends.shared.words import words
from pie_edge.sampling.dialects.kernel import Call, Place

_RADIX = ("words", "keys", "bins")


@dataclass(frozen=True)
class Gpu:
    """What decides how many threads share a row."""

    name: str = "Apple GPU"
    software: bool = False
    shared_memory: int = 32 << 10
    max_invocations: int = 1024


@dataclass(frozen=True)
class Node:
    kernel: Kernel
    constants: tuple[str, ...]
    """Of those that a run has, the first so many."""
    told: tuple[int, ...]
    """Which of the numbers of a run the kernel is told: not where values begin."""


NODES: Mapping[str, Node] = {
    "kth_largest": Node(
        Kernel("nodes_kth_largest", ("told", "x", "argument"), ("y",), _RADIX), ("LOCAL", "COPIES"), (0, 3, 5)
    ),
    "nucleus": Node(
        Kernel("nodes_nucleus", ("told", "x", "argument"), ("y",), (*_RADIX, "masses")), ("LOCAL", "COPIES"), (0, 3, 5)
    ),
    "top_k": Node(
        Kernel("nodes_top_k", ("told", "x"), ("values", "places"), _RADIX), ("LOCAL", "COPIES", "TYPE", "K"), (0,)
    ),
    "sort": Node(
        Kernel("nodes_sort", ("told", "x", "from"), ("to", "values"), ("words", "keys")),
        ("LOCAL", "TYPE", "BITS", "FALLING", "IS_FIRST", "IS_LAST"),
        (0, 5, 6),
    ),
    "sample": Node(
        Kernel(
            "nodes_sample",
            ("told", "logits", "inputs"),
            ("list", "tokens"),
            (*_RADIX, "masses", "random", "sample"),
        ),
        ("LOCAL", "COPIES", "MASK", "TEMPERED", "STAGE_1", "STAGE_2", "STAGE_3", "STAGE_4"),
        tuple(range(18)),
    ),
}
KINDS = frozenset(NODES) - {"sample"}
"""Of nodes."""


@dataclass(frozen=True)
class _Site(Site[Mapping[str, mx.array]]):
    """Where launches run at once: what one gives the next may read."""

    launcher: Launcher
    known: dict[str, mx.array]

    def start(self, place: Place) -> int:
        return 0

    def launch(self, run: Run) -> Mapping[str, mx.array]:
        node = NODES[run.name]
        first = self.known[run.operands[0].name]
        # A sort's first pass reads no order: any array will do in its place.
        operands = (self.known.get(place.name, first) for place in run.operands)
        threads = int(run.constants[0])
        given = Launch(
            node.kernel,
            (_array(words(*(run.push[place] for place in node.told))), *operands),
            tuple(((max(entries, LEAST),), mx.uint32) for entries in self._entries(run)),
            (threads, self.slots * run.rows, 1),
            (threads, 1, 1),
            tuple(zip(node.constants, run.constants, strict=False)),
        )
        found = dict(zip((place.name for place in run.results), self.launcher(given), strict=True))
        self.known.update(found)
        return found

    def _entries(self, run: Run) -> tuple[int, ...]:
        """Of each result."""
        row = self.slots * run.rows * int(run.push[0])
        if run.name == "sample":
            return 2 * row, self.slots
        if run.name == "sort" and not run.constants[-1]:
            # An order, and no values until the last pass.
            return row, 0
        return tuple(self.slots * place.size for place in run.results)


@lru_cache(1024)
def _array(told: bytes) -> mx.array:
    return mx.array(np.frombuffer(told.ljust(4 * LEAST, b"\0"), np.uint32))


def run(call: Call, passes: int, known: Mapping[str, mx.array], launcher: Launcher) -> Mapping[str, mx.array]:
    """A node's results by name, of so many passes. ``known`` has its operands."""
    return launches(_Site(Gpu(), {}, 0, passes, launcher, dict(known)), call)[-1]


def sample(
    sampler: Sampler, passes: int, starts: Mapping[str, int], logits: mx.array, inputs: mx.array, launcher: Launcher
) -> mx.array:
    """A token for each pass. ``starts`` has the word where each input begins."""
    site = _Site(Gpu(), starts, 0, passes, launcher, {"logits": logits, "inputs": inputs})
    return sampler.launches(site)[-1]["out0"]
