"""How the attention of observed rows is spread over their pages."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.ops.attended import Sequence, sequences, weights_of
from pie_edge.program.ops import Op


def ops(c: Context, op: Op, q: mx.array, keys: mx.array, *fields: Any) -> Arrays:
    given, layer = c.fields(op), op.integer("layer")
    parts, weights = [], dict[int, mx.array]()
    for i, row in enumerate(given["mass_rows"].tolist()):
        start, end = given["mass_starts"][i : i + 2].tolist()
        chosen = np.unpackbits(given["mass_layers"][i].view("u1"), bitorder="little")
        if end <= start:
            continue
        if not chosen[layer]:
            parts.append(mx.zeros((end - start,)))
            continue
        s = int(np.searchsorted(given["query_starts"], row, side="right")) - 1
        sequence = sequences(c, op)[s]
        if s not in weights:
            weights[s] = weights_of(c, op, sequence, q, keys, fields)
        parts.append(_masses(op, sequence, weights[s], row) / int(chosen.sum()))
    return (mx.concatenate(parts)[None] if parts else mx.zeros((1, 0)),)


def _masses(op: Op, sequence: Sequence, weights: mx.array, row: int) -> mx.array:
    own = weights[:, row - sequence.first].reshape(op.integer("heads"), -1, op.integer("page_size"))
    return own.sum(axis=-1).mean(axis=0)
