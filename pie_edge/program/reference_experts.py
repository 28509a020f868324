"""What ops of mixtures of experts mean, in plain NumPy: a part of ``reference.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.program.ops import Op

Array = NDArray[Any]


def route(op: Op, logits: Array) -> tuple[Array, ...]:
    chosen = op.integer("chosen")
    # A stable sort: of equal ones the lower comes first.
    experts = np.argsort(-logits, axis=1, kind="stable")[:, :chosen]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights = np.take_along_axis(shares, experts, axis=1)
    whole = weights if op.attribute("normalised") else shares
    weights = weights / whole.sum(axis=1, keepdims=True) * np.float32(op.number("scale"))
    return experts.astype(np.uint32), weights.astype(np.float32)


def sort_by_expert(op: Op, experts: Array) -> tuple[Array, ...]:
    flat = experts.reshape(-1)
    starts = np.searchsorted(np.sort(flat), np.arange(op.integer("experts") + 1))
    return np.argsort(flat, kind="stable").astype(np.uint32), starts.astype(np.uint32)


def expert_linear(
    op: Op, x: Array, experts: Array, order: Array, starts: Array, weight: Array, bias: Array | None = None
) -> tuple[Array, ...]:
    count = len(starts) - 1
    matrices = weight.reshape(count, -1, weight.shape[1])
    biases = np.zeros(matrices.shape[:2], np.float32) if bias is None else bias.reshape(count, -1)
    parts = np.broadcast_to(x.reshape(len(x), -1, weight.shape[1]), (*experts.shape, weight.shape[1]))
    y = np.zeros((*experts.shape, matrices.shape[1]), np.float32)
    for expert in range(count):
        mine = experts == expert
        y[mine] = parts[mine] @ matrices[expert].T + biases[expert]
    return (y.reshape(len(x), -1),)


def combine_experts(op: Op, x: Array, weights: Array) -> tuple[Array, ...]:
    parts = x.reshape(*weights.shape, -1)
    return (np.einsum("tk,tkc->tc", weights, parts),)


def clamped_glu(op: Op, gate: Array, up: Array) -> tuple[Array, ...]:
    limit = np.float32(op.number("limit"))
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    # 1 / (1 + e^−s), without the overflow.
    sigmoid = np.exp(-np.logaddexp(0.0, -op.number("slope") * gate.astype(np.float64)))
    return (gate * sigmoid.astype(np.float32) * (up + np.float32(1)),)
