"""Observing attention: a model Program that also says how the attention of chosen rows is spread over their pages.

Which rows and layers is an input of the step, so one such Program serves them all; a step that observes nothing runs the
Program without.
"""

from __future__ import annotations

from dataclasses import replace

from pie_edge.program.encodings import DType
from pie_edge.program.ops import KINDS, Op, Program, Role, Value
from pie_edge.program.step import LAYER_WORDS, Bucket

KIND = "attention_mass"
MASSES = "masses"
"""The output: [1, W], of an observed row one for each page entry of its sequence."""
MOST_LAYERS = 32 * LAYER_WORDS


def attention_layers(program: Program) -> int:
    """How many of its layers attend. They count from 0 in their order."""
    return sum(op.kind == "attention" for op in program.ops)


def observe(program: Program, bucket: Bucket) -> Program:
    """The same Program with the output ``MASSES``, for the bucket that it was traced for, which has observed rows."""
    layers = attention_layers(program)
    if not 0 < layers <= MOST_LAYERS:
        raise ValueError(
            f"program {program.name} has {layers} layers with attention; 1 to {MOST_LAYERS} can be observed"
        )
    values, ops = dict(program.values), list[Op]()

    def value(name: str) -> str:
        role = Role.OUTPUT if name == MASSES else Role.TEMP
        values[name] = Value(name, role, DType.F32, (1, bucket.masses))
        return name

    layer, total = 0, ""
    for op in program.ops:
        ops.append(op)
        if op.kind != "attention":
            continue
        so_far = value(MASSES if layer == layers - 1 else f"masses.{layer}")
        if layer == 0:
            ops.append(_mass(op, layer, so_far))
        else:
            ops.append(_mass(op, layer, value(f"mass.{layer}")))
            ops.append(Op("add", (total, f"mass.{layer}"), (so_far,)))
        layer, total = layer + 1, so_far
    return replace(program, values=values, ops=tuple(ops))


def _mass(attention: Op, layer: int, y: str) -> Op:
    """What ``attention`` attends to: its inputs but for the values, and what is observed."""
    kind = KINDS[KIND]
    given = attention.named | {name: name for name in ("mass_rows", "mass_starts", "mass_layers")}
    inputs = tuple(given[name] for name in (*kind.inputs, *kind.optional) if name in given)
    return Op(KIND, inputs, (y,), (*attention.attributes, ("layer", layer)))
