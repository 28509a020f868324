"""The activations of glu and activation, and of convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import mlx.core as mx

ACTIVATIONS: Mapping[str, Callable[[mx.array], mx.array]] = {
    "silu": lambda x: x * mx.sigmoid(x),
    "gelu_tanh": lambda x: 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
    "gelu": lambda x: 0.5 * x * (1 + mx.erf(x * math.sqrt(0.5))),
    "relu": lambda x: mx.maximum(x, 0),
    "sigmoid": mx.sigmoid,
    "none": lambda x: x,
}
