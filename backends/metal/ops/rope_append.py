"""Queries turned, and keys turned and values written into the cache: what ``fuse`` makes of two ropes and an append.

Kernels can't write what they are given, so this one gives keys and values as the cache has them, and MLX's indexed update puts
them there."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.kv_append import append
from pie_edge.backends.metal.ops.rope import turns
from pie_edge.program.ops import Op

_KERNEL = Kernel("rope_append", ("q", "k", "v", "cosines", "sines"), ("y", "new_keys", "new_values"))


def kernel(
    c: Context,
    op: Op,
    q: mx.array,
    k: mx.array,
    v: mx.array,
    positions: mx.array,
    write_slots: mx.array,
    *rest: mx.array,
) -> Arrays:
    keys, values, key_positions = rest[-3:]
    factors = op.inputs[5] if len(op.inputs) > 5 else None
    heads, kv_heads = op.integer("heads"), op.integer("kv_heads")
    width = q.shape[1] // heads
    given = (
        ("HEADS", heads),
        ("KV_HEADS", kv_heads),
        ("WIDTH", width),
        ("ROTARY", op.integer("rotary")),
        ("NEOX", op.attribute("style") == "neox"),
        ("T", keys.dtype),
    )
    launch = Launch(
        _KERNEL,
        (q, k, v, *turns(c, op, op.inputs[3], factors)),
        ((q.shape, mx.float32), (k.shape, keys.dtype), (v.shape, keys.dtype)),
        (width // 2, heads + 2 * kv_heads, q.shape[0]),
        (min(width // 2, 256), 1, 1),
        given,
    )
    turned, new_keys, new_values = c.launch(launch)
    slots = c.inputs[op.inputs[4]]
    return turned, *append(c, op, (new_keys, new_values, positions), slots, (keys, values, key_positions))
