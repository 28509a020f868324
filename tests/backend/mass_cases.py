"""Observed attention that every backend with ``attention_mass`` is tested with: the attention cases, some of their rows
observed in some layers, and a second layer after the first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pie_edge.program import trace as ops
from pie_edge.program.encodings import DType
from pie_edge.program.observe import MASSES, observe
from pie_edge.program.ops import Program, Role, Value
from pie_edge.program.step import LAYER_WORDS, Bucket, StepInputs
from pie_edge.program.trace import Trace
from tests.backend import cases
from tests.backend.cases import Case

NAMES = tuple(name for name in cases.ALL if name.startswith("attention "))
_CHOICES = ({0, 1}, {1}, {0}, {1, 40, 255}, {7})
"""Layers of observed rows in turn. The Program has 0 and 1; rows of 7 alone have no masses."""


def layer_words(layers: set[int]) -> list[int]:
    return [sum(1 << layer % 32 for layer in layers if layer // 32 == word) for word in range(LAYER_WORDS)]


@dataclass
class MassCase(Case):
    """Its first, its last, and every fifth row in between are observed."""

    bucket: Bucket = field(init=False)
    fields: dict[str, Value] = field(init=False)

    def step(self, inputs: StepInputs, bucket: Bucket) -> dict[str, Value]:
        counts = inputs.counts
        rows = sorted({*range(0, counts.rows, 5), counts.rows - 1})
        sequences = [int(np.searchsorted(inputs.query_starts, row, side="right")) - 1 for row in rows]
        entries = [inputs.page_starts[s + 1] - inputs.page_starts[s] for s in sequences]
        observing = replace(
            inputs,
            mass_rows=rows,
            mass_starts=[sum(entries[:i]) for i in range(len(rows) + 1)],
            mass_layers=[word for i in range(len(rows)) for word in layer_words(_CHOICES[i % len(_CHOICES)])],
        )
        self.bucket = replace(bucket, observed=len(rows) + 2, masses=sum(entries) + 3)
        self.fields = super().step(observing, self.bucket)
        return self.fields

    def add_layer(self) -> None:
        """The same keys and values, met by other queries without a window; and what is observed is a result."""
        first = self.trace.build().ops[-1]
        heads, kv_heads = first.integer("heads"), first.integer("kv_heads")
        known = self.trace.build().values
        q = self.row_state("q2", self.normal(*self.states["q"].shape, scale=2))
        cache: Any = tuple(known[name] for name in ("k", "v", "key_positions"))
        scale = 0.5 * first.number("scale")
        y = ops.attention(self.trace, q, self.fields, cache, heads=heads, kv_heads=kv_heads, scale=scale)
        self.results = (*self.results, y, Value(MASSES, Role.OUTPUT, DType.F32, (1, self.bucket.masses)))

    @property
    def program(self) -> Program:
        return observe(super().program, self.bucket)


def build(name: str) -> MassCase:
    case = MassCase(Trace(f"observed {name}"), np.random.default_rng(sum(name.encode())))
    cases.ALL[name](case)
    case.add_layer()
    return case
