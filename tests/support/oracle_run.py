"""Running a real checkpoint through the NumPy reference, and judging it by an oracle file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.model import registry
from pie_edge.model.spec import Cache, Family, Spec
from pie_edge.program import reference
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.ops import Role
from pie_edge.program.step import StepInputs, StepLayout
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.dequantise import dequantise

PAGE = 16
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Loaded:
    spec: Spec
    family: Family
    weights: dict[str, Floats]


def load(path: Path) -> Loaded:
    """All weights in float32."""
    checkpoint = open_checkpoint(path)
    facts = registry.facts(checkpoint)
    spec, family = registry.read(facts), registry.family(facts.architecture, facts.path)
    weights = {
        weight.name: dequantise(checkpoint.tensors[weight.source]).reshape(weight.shape)
        for weight in family.weights(spec)
    }
    return Loaded(spec, family, weights)


def round_bf16(values: Floats) -> Floats:
    """To the nearest bfloat16, ties to even, back in float32."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


def whole_pass(tokens: list[int]) -> StepInputs:
    """One sequence, forwarded in one piece, every row read out."""
    count, entries = len(tokens), -(-len(tokens) // PAGE)
    bits = [(1 << min(PAGE, count - i * PAGE)) - 1 for i in range(entries)]
    index = list(range(count))
    return StepInputs(
        token_src=tokens,
        positions=index,
        row_index=index,
        write_slots=[PAGE + i for i in index],
        query_starts=[0, count],
        page_starts=[0, entries],
        pages=list(range(1, entries + 1)),
        page_bits=bits,
        fresh_bits=bits,
        sample_rows=index,
        draw_keys=[0] * (2 * count),
    )


def whole_pass_without(tokens: list[int], hidden: Collection[int], after: int) -> StepInputs:
    """The same, but that tokens from ``after`` on don't see those that are ``hidden``."""
    inputs, entries = whole_pass(tokens), -(-len(tokens) // PAGE)
    seen = sum(1 << place for place in range(entries * PAGE) if place not in hidden)
    full = (1 << PAGE) - 1
    rows = [seen if row >= after else -1 for row in range(len(tokens))]
    mask = [row >> entry * PAGE & full for row in rows for entry in range(entries)]
    return replace(inputs, mask_starts=[1], mask=mask)


def log_probabilities(model: Loaded, tokens: list[int], inputs: StepInputs | None = None) -> NDArray[np.float64]:
    """[tokens, vocabulary] of the reference; ``inputs`` are those of a whole pass by default."""
    inputs = inputs or whole_pass(tokens)
    bucket = inputs.counts
    cache = Cache(bucket.entries + 1, PAGE, DType.F32, bucket.sampled, 1)
    encodings = dict.fromkeys(model.weights, Dense(DType.F32))
    program = model.family.trace(model.spec, bucket, cache, encodings)
    states = {v.name: np.zeros(v.shape, reference.NUMPY[v.dtype]) for v in program.by_role(Role.STATE)}
    reference.run(program, model.weights | states, StepLayout(bucket).pack(inputs).tobytes())
    return log_softmax(states["logits"])


def log_softmax(logits: Floats) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True)))


def largest_error(case: dict[str, Any], found: NDArray[np.float64]) -> float:
    """Largest distance from the oracle's log probabilities; ``found`` has the rows that predict each greedy token."""
    return max(
        float(np.abs(row[step["ids"]] - step["logprobs"]).max()) for row, step in zip(found, case["steps"], strict=True)
    )
