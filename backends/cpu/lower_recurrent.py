"""Ops with recurrent state in instructions: ``kernels/short_conv.c`` and ``kernels/gated_delta.c``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pie_edge.backends.cpu.instructions import Argument, Ref
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op

if TYPE_CHECKING:
    from pie_edge.backends.cpu.lowering import Lowering

ACTIVATIONS = ("silu", "gelu_tanh", "gelu", "relu", "sigmoid")
"""By number, as in ``kernels/activations.h``; then comes none."""
MOST_TAPS, BLOCK, TOKENS = 64, 16, 16
"""As in the kernels."""
_COUNTS = Ref("counts")


def short_conv(low: Lowering, op: Op) -> None:
    x, weight, tail, *fields = op.inputs
    places, bias = fields[:3], fields[3:]
    form, (slots, length, width) = low.weights[weight].format, low.value(tail).shape
    taps = low.value(weight).shape[1]
    if form is None or form.affine or taps > MOST_TAPS:
        raise Unsupported(f"{op}: the cpu backend takes dense convolutions over up to {MOST_TAPS} tokens")
    given: Argument = Ref(bias[0]) if bias else 0
    act = op.attribute("act")
    activation = len(ACTIVATIONS) if act == "none" else ACTIVATIONS.index(str(act))
    refs = (Ref(x), Ref(weight), Ref(tail), *map(Ref, places), given, Ref(op.outputs[0]), _COUNTS)
    low.emit(op.kind, (*refs, width, taps, length, slots, form.number, activation), op, x)


def tail_append(low: Lowering, op: Op) -> None:
    slots, length, width = low.value(op.outputs[0]).shape
    low.emit(op.kind, (*map(Ref, op.inputs), Ref(op.outputs[0]), _COUNTS, width, length, slots), op, None)


def gated_delta(low: Lowering, op: Op) -> None:
    y, state = op.outputs
    slots, heads, key_dim, width = low.value(state).shape
    length = low.value(op.inputs[5]).shape[1]
    sizes = (op.integer("key_heads"), heads, key_dim, width, length, slots)
    flags = (op.integer("tiled"), op.integer("log_decay"), op.number("eps"))
    room = 4 * (3 * TOKENS + 2 * TOKENS * BLOCK + key_dim * (BLOCK + 2 * TOKENS))
    low.emit(op.kind, (*map(Ref, op.inputs), Ref(y), Ref(state), _COUNTS, *sizes, *flags), op, op.inputs[0], room)
