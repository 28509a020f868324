"""act(gate) · up."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.activations import ACTIVATIONS
from pie_edge.program.ops import Op

_KERNEL = Kernel("glu", ("gate", "up"), ("y",))
_ACTS = ("silu", "gelu_tanh", "relu", "sigmoid")
"""As the kernel numbers them. Metal has no error function, so that gelu is left to MLX's own."""


def ops(c: Context, op: Op, gate: mx.array, up: mx.array) -> Arrays:
    return (ACTIVATIONS[str(op.attribute("act"))](gate) * up,)


def kernel(c: Context, op: Op, gate: mx.array, up: mx.array) -> Arrays:
    act = str(op.attribute("act"))
    if act not in _ACTS:
        return ops(c, op, gate, up)
    outputs, given = ((gate.shape, mx.float32),), (("ACT", _ACTS.index(act)),)
    return c.launch(Launch(_KERNEL, (gate, up), outputs, (gate.size, 1, 1), (256, 1, 1), given))
