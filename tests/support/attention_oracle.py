"""How attention is spread over pages, worked out token by token from a whole pass of the reference: no page table, no op of
the table but those before the scores, float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pie_edge.model.spec import Cache
from pie_edge.program import reference
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.ops import Op, Role
from pie_edge.program.step import StepLayout
from tests.support.oracle_run import PAGE, Floats, Loaded, whole_pass

Wide = NDArray[np.float64]


def masses(model: Loaded, tokens: list[int], layers: Sequence[int], page: int, hidden: Sequence[int] = ()) -> Wide:
    """[tokens, pages of ``page`` tokens]: the mean over heads and layers of each token's attention to each page. Some tokens
    may be ``hidden``, which is right for the first layer: its queries and keys don't depend on what others see."""
    return np.asarray(masses_by_layer(model, tokens, page, hidden)[list(layers)].mean(axis=0))


def masses_by_layer(model: Loaded, tokens: list[int], page: int, hidden: Sequence[int] = ()) -> Wide:
    """[layers, tokens, pages], of one pass."""
    inputs = replace(whole_pass(tokens), sample_rows=[0], draw_keys=[0, 0])  # nobody looks at its logits
    bucket = inputs.counts
    cache = Cache(bucket.entries + 1, PAGE, DType.F32, bucket.sampled, 1)
    program = model.family.trace(model.spec, bucket, cache, dict.fromkeys(model.weights, Dense(DType.F32)))
    states = {v.name: np.zeros(v.shape, reference.NUMPY[v.dtype]) for v in program.by_role(Role.STATE)}
    found = reference.run(program, model.weights | states, StepLayout(bucket).pack(inputs).tobytes())
    pages = -(-len(tokens) // page)
    layers = []
    for op in program.ops:
        if op.kind == "attention":
            padded = np.pad(_weights(op, found, len(tokens), hidden), ((0, 0), (0, pages * page - len(tokens))))
            layers.append(padded.reshape(len(tokens), pages, page).sum(axis=2))
    return np.stack(layers)


def _weights(op: Op, found: dict[str, Floats], count: int, hidden: Sequence[int]) -> Wide:
    """[tokens, tokens], the mean over heads."""
    heads, groups = op.integer("heads"), op.integer("kv_heads")
    q = found[op.inputs[0]].astype(np.float64).reshape(count, heads, -1)
    # K [pages, G, D/v, P, v], of which page 0 is nobody's.
    pages = found[op.inputs[1]][1:].astype(np.float64).transpose(0, 3, 1, 2, 4)
    k = np.repeat(pages.reshape(-1, groups, q.shape[2])[:count], heads // groups, axis=1)
    scores = np.einsum("thd,khd->htk", q, k) * op.number("scale")
    if op.number("softcap"):
        scores = op.number("softcap") * np.tanh(scores / op.number("softcap"))
    distance = np.arange(count)[:, None] - np.arange(count)[None, :]
    window = op.integer("window") or count
    seen = (distance >= 0) & (distance < window) & ~np.isin(np.arange(count), hidden)
    weights = np.exp(np.where(seen, scores, -np.inf) - np.where(seen, scores, -1e30).max(axis=2, keepdims=True))
    return np.asarray((weights / np.maximum(weights.sum(axis=2, keepdims=True), 1e-300)).mean(axis=0))
