"""Running a real checkpoint through the NumPy reference, and judging it by an oracle file."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.model import registry
from pie_edge.model.spec import Cache, Family, Spec
from pie_edge.program import reference
from pie_edge.program.encodings import Dense, DType, Encoding
from pie_edge.program.ops import Role
from pie_edge.program.step import StepInputs, StepLayout
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.source import AnyWeight, weight_sources
from pie_edge.weights.widen import dequantise_planes

PAGE = 16
TAIL = 24
"""Tokens that the tests' caches keep beside recurrent states."""
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Loaded:
    spec: Spec
    family: Family
    weights: dict[str, Floats]


def load(path: Path, context: int = 0) -> Loaded:
    """All weights in float32. ``context`` is what ``registry.facts`` takes."""
    checkpoint = open_checkpoint(path)
    facts = registry.facts(checkpoint, context)
    spec, family = registry.read(facts), registry.family(facts)
    sources = weight_sources(checkpoint.tensors, family.weights(spec), lambda encoding: True)
    return Loaded(spec, family, {name: dense(source) for name, source in sources.items()})


def dense(source: AnyWeight) -> Floats:
    """A weight whole, multiplied out to float32."""
    rows = source.shape[0] if len(source.shape) > 1 else 1
    return dequantise_planes(source.target, source.planes(0, rows)).reshape(source.shape)


def round_bf16(values: Floats) -> Floats:
    """To the nearest bfloat16, ties to even, back in float32."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


def whole_pass(tokens: list[int]) -> StepInputs:
    """One sequence, forwarded in one piece, every row read out."""
    return part_pass(tokens, 0)


def part_pass(tokens: list[int], first: int) -> StepInputs:
    """The rows of a sequence from ``first`` on, those before it being in the cache; every row read out."""
    count, entries, rows = len(tokens), -(-len(tokens) // PAGE), len(tokens) - first
    bits = [(1 << min(PAGE, count - i * PAGE)) - 1 for i in range(entries)]
    fresh = [sum(1 << s for s in range(PAGE) if first <= i * PAGE + s < count) for i in range(entries)]
    index = list(range(first, count))
    return StepInputs(
        token_src=tokens[first:],
        positions=index,
        row_index=index,
        write_slots=[PAGE + i for i in index],
        query_starts=[0, rows],
        page_starts=[0, entries],
        pages=list(range(1, entries + 1)),
        page_bits=bits,
        fresh_bits=fresh,
        sample_rows=list(range(rows)),
        draw_keys=[0] * (2 * rows),
    )


def with_states(step: StepInputs) -> StepInputs:
    """The step with the recurrent state of each of its sequences, which go on from where they stand: it is in the slot that
    has the number of the sequence's first page. One that says itself where its states are stays as it is."""
    if step.state_slots:
        return step
    slots, spans = [], []
    for row, entry in zip(step.query_starts[:-1], step.page_starts[:-1], strict=True):
        start, home = step.row_index[row], step.pages[entry]
        slots += [home if start else 0, home, 0]
        spans += [start, 0, 0]
    return replace(step, state_slots=slots, state_spans=spans)


def cache_for(steps: Sequence[StepInputs], dtype: DType) -> Cache:
    """One that these steps fit."""
    pages = 1 + max(max(step.pages) for step in steps)
    slots = 1 + max(pages - 1, *(max(step.state_slots, default=0) for step in steps))
    return Cache(pages, PAGE, dtype, max(step.counts.sampled for step in steps), 1, slots, TAIL)


def moved(step: StepInputs, pages: int) -> StepInputs:
    """The same on pages further on."""
    slots = [slot + pages * PAGE for slot in step.write_slots]
    return replace(step, pages=[page + pages for page in step.pages], write_slots=slots)


def together(steps: Sequence[StepInputs]) -> StepInputs:
    """One step of the sequences of several, which lie on pages of their own."""
    found = steps[0]
    for step in steps[1:]:
        rows, entries = len(found.token_src), len(found.pages)
        joined = {
            name: [*getattr(found, name), *getattr(step, name)]
            for name in (
                "token_src",
                "positions",
                "row_index",
                "write_slots",
                "pages",
                "page_bits",
                "fresh_bits",
                "draw_keys",
            )
        }
        joined["query_starts"] = [*found.query_starts, *(rows + start for start in step.query_starts[1:])]
        joined["page_starts"] = [*found.page_starts, *(entries + start for start in step.page_starts[1:])]
        joined["sample_rows"] = [*found.sample_rows, *(rows + row for row in step.sample_rows)]
        found = replace(found, **joined)
    return found


def whole_pass_without(tokens: list[int], hidden: Collection[int], after: int) -> StepInputs:
    """A whole pass, but that tokens from ``after`` on don't see those that are ``hidden``."""
    inputs, entries = whole_pass(tokens), -(-len(tokens) // PAGE)
    seen = sum(1 << place for place in range(entries * PAGE) if place not in hidden)
    full = (1 << PAGE) - 1
    rows = [seen if row >= after else -1 for row in range(len(tokens))]
    mask = [row >> entry * PAGE & full for row in rows for entry in range(entries)]
    return replace(inputs, mask_starts=[1], mask=mask)


def forwarded(model: Loaded, steps: Sequence[StepInputs]) -> Floats:
    """[rows, vocabulary] logits of the reference, of all rows read out, the steps following each other on one cache."""
    steps = [with_states(step) if model.spec.recurrent else step for step in steps]
    counts = [step.counts for step in steps]
    cache = cache_for(steps, DType.F32)
    encodings: dict[str, Encoding] = dict.fromkeys(model.weights, Dense(DType.F32))
    states: dict[str, Any] = {}
    found = []
    for step, bucket in zip(steps, counts, strict=True):
        program = model.family.trace(model.spec, bucket, cache, encodings)
        states = states or {v.name: np.zeros(v.shape, reference.NUMPY[v.dtype]) for v in program.by_role(Role.STATE)}
        reference.run(program, model.weights | states, StepLayout(bucket).pack(step).tobytes())
        found.append(states["logits"][: bucket.sampled].copy())
    return np.concatenate(found)


def in_parts(model: Loaded, tokens: list[int], ends: list[int]) -> Floats:
    """[tokens, vocabulary] logits, the sequence forwarded in parts that end at ``ends``."""
    return forwarded(model, [part_pass(tokens[:end], first) for first, end in itertools.pairwise([0, *ends])])


def log_probabilities(model: Loaded, tokens: list[int], inputs: StepInputs | None = None) -> NDArray[np.float64]:
    """[tokens, vocabulary]; ``inputs`` are those of a whole pass by default."""
    return log_softmax(forwarded(model, [inputs or whole_pass(tokens)]))


def log_softmax(logits: Floats) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True)))


def largest_error(case: dict[str, Any], found: NDArray[np.float64]) -> float:
    """Largest distance from the oracle's log probabilities; ``found`` has the rows that predict each greedy token."""
    return max(
        float(np.abs(row[step["ids"]] - step["logprobs"]).max()) for row, step in zip(found, case["steps"], strict=True)
    )
