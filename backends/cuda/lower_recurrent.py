"""Launches of ops with recurrent state."""

from __future__ import annotations

from pie_edge.backends.cuda.launch import Kernel, Launch, arguments, packed
from pie_edge.backends.cuda.lowering import Lowering
from pie_edge.backends.cuda.matrices import macros, packing_fields
from pie_edge.backends.shared.grid import Count
from pie_edge.backends.shared.lowering import ACTIVATIONS
from pie_edge.backends.shared.recurrent import FIELDS, convolution
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op

_THREADS, _COLUMNS, _MOST_KEYS = 128, 32, 256
"""As ``kernels/recurrent.cu`` has them."""


def short_conv(c: Lowering, op: Op) -> list[Launch]:
    x, _, tail, _, _, _, *bias = op.inputs
    matrix, columns, length = convolution(c, op, "CUDA"), c.width(x), c.program.values[tail].shape[1]
    extra = c.vector(bias[0]).region if bias else None
    given = arguments(
        *(packing_fields(matrix.packing), _spans(c), c.place[x], matrix.parts[0].region, c.place[tail], extra),
        *(c.place[op.outputs[0]], columns, length, ACTIVATIONS[str(op.attribute("act"))]),
    )
    kernel = Kernel("short_conv.cu", "short_conv", macros(matrix.packing))
    return [Launch(kernel, given, (c.rows_of(x), -(-columns // _THREADS), 1), _THREADS)]


def tail_append(c: Lowering, op: Op) -> list[Launch]:
    _, length, columns = c.program.values[op.outputs[0]].shape
    given = arguments(_spans(c), *c.at(op.inputs[0], op.outputs[0]), columns, length)
    grid = (length, -(-columns // _THREADS), Count("sequences"))
    return [Launch(Kernel("recurrent.cu", "tail_append"), given, grid, _THREADS)]


def gated_delta(c: Lowering, op: Op) -> list[Launch]:
    """A block for each few columns of a head's matrix, in every sequence."""
    qkv, a, b, decay, dt_bias, *tails = op.inputs[:8]
    _, heads, key_dim, width = c.program.values[op.outputs[1]].shape
    if key_dim > _MOST_KEYS:
        raise Unsupported(f"{op}: keys of {key_dim} values; the CUDA backend takes {_MOST_KEYS}")
    gates = c.gates(decay, dt_bias, bool(op.attribute("log_decay")))
    length, tiled = c.program.values[tails[0]].shape[1], bool(op.attribute("tiled"))
    numbers = (op.integer("key_heads"), heads, key_dim, width, length, tiled, op.number("eps"))
    told = packed(*c.at(qkv, a, b), gates, *c.at(*tails, *op.outputs), *numbers)
    grid = (-(-width // _COLUMNS), heads, Count("sequences"))
    return [Launch(Kernel("recurrent.cu", "gated_delta"), arguments(_spans(c), told), grid, _THREADS)]


def _spans(c: Lowering) -> bytes:
    """The structure ``Spans``."""
    return packed(*c.at(*FIELDS))
