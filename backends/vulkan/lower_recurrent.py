"""Launches of ops with recurrent state; ``shaders/glsl/recurrent.glsl`` reads the fields of the step that say where it is."""

from __future__ import annotations

from pie_edge.backends.shared.grid import Count
from pie_edge.backends.shared.lowering import ACTIVATIONS
from pie_edge.backends.shared.recurrent import FIELDS, convolution
from pie_edge.backends.shared.region import span
from pie_edge.backends.shared.words import words
from pie_edge.backends.vulkan.launch import Access, Binding, Kernel, Launch
from pie_edge.backends.vulkan.lowering import Lowering
from pie_edge.backends.vulkan.memory import Region
from pie_edge.backends.vulkan.shaders import shader
from pie_edge.program.ops import Op


def short_conv(c: Lowering, op: Op) -> list[Launch]:
    x, _, tail, _, _, _, *bias = op.inputs
    matrix, columns = convolution(c, op, "Vulkan"), c.width(x)
    act = ACTIVATIONS[str(op.attribute("act"))]
    packing, length = matrix.packing, c.program.values[tail].shape[1]
    constants = (c.tuning.elementwise, columns, packing.columns, length, packing.interleaved, act, bool(bias))
    step, fields = _step(c)
    extra = c.vector(bias[0]).region if bias else step
    bindings = (c.read(x), Binding(matrix.parts[0].region), c.read(tail), Binding(extra), Binding(step))
    kernel = Kernel(shader(f"short_conv_{packing.format}"), constants)
    return [Launch(kernel, (*bindings, c.write(op.outputs[0])), c.over(columns, x), fields)]


def tail_append(c: Lowering, op: Op) -> list[Launch]:
    _, length, width = c.program.values[op.outputs[0]].shape
    suffix, elements = ("", width // 4) if width % 4 == 0 else ("_words", width)
    step, fields = _step(c)
    kernel = Kernel(shader(f"tail_append{suffix}"), (c.tuning.elementwise, elements, length))
    grid = (-(-elements // c.tuning.elementwise), length, Count("sequences"))
    return [Launch(kernel, (c.read(op.inputs[0]), Binding(step), c.write(op.outputs[0])), grid, fields)]


def gated_delta(c: Lowering, op: Op) -> list[Launch]:
    """A workgroup for each few columns of a head's matrix, in every sequence."""
    qkv, a, b, decay, dt_bias, *tails = op.inputs[:8]
    _, heads, key_dim, width = c.program.values[op.outputs[1]].shape
    length, local = c.program.values[tails[0]].shape[1], c.tuning.interleaved
    fours = 1
    constants = (
        *(local, fours, op.integer("key_heads"), heads, key_dim, width, length),
        *(bool(op.attribute("tiled")), op.number("eps")),
    )
    step, fields = _step(c)
    bindings = (
        *(c.read(name) for name in (qkv, a, b)),
        Binding(c.gates(decay, dt_bias, bool(op.attribute("log_decay")))),
        *(c.read(name) for name in tails),
        *(Binding(step), c.write(op.outputs[0]), Binding(c.place[op.outputs[1]], Access.BOTH)),
    )
    kernel = Kernel(shader(f"gated_delta{c.subgroups}"), constants)
    return [Launch(kernel, bindings, (-(-width // (4 * fours)), heads, Count("sequences")), fields)]


def _step(c: Lowering) -> tuple[Region, bytes]:
    """The region that holds the fields, and the push constants that say where in it."""
    regions = [c.place[name] for name in FIELDS]
    whole = span(regions)
    return whole, words(*((region.offset - whole.offset) // 4 for region in regions))
