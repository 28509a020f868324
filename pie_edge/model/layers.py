"""Pieces that several families share."""

from __future__ import annotations

from pie_edge.model.spec import GGUF, Facts, Recording
from pie_edge.program import trace as ops
from pie_edge.program.ops import Value


def gated_mlp(r: Recording, layer: int, x: Value, *, act: str) -> Value:
    """down(act(gate(x)) · up(x)): GLU variants, arXiv:2002.05202."""
    gate = ops.linear(r.t, x, r.weight(f"{layer}.gate"))
    up = ops.linear(r.t, x, r.weight(f"{layer}.up"))
    return ops.linear(r.t, ops.glu(r.t, gate, up, act=act), r.weight(f"{layer}.down"))


def linear_rope_scale(facts: Facts) -> float:
    """What positions are multiplied by: 1, or 1/factor where the file declares linear scaling; other kinds are refused."""
    if facts.container == GGUF:
        kind, factor = facts.text("rope.scaling.type", "none"), facts.number("rope.scaling.factor", 1.0)
    else:
        # transformers 5 writes rope_parameters, earlier versions rope_scaling.
        declared = facts.within("rope_scaling" if facts.metadata.get("rope_scaling") else "rope_parameters")
        kind = declared.text("rope_type", declared.text("type", "default"))
        factor = declared.number("factor", 1.0)
    if kind not in ("none", "default", "linear"):
        raise facts.refuse(f"rope scaling {kind!r}")
    return 1.0 if kind in ("none", "default") or factor <= 0 else 1.0 / factor


def rope_base(facts: Facts, default: float) -> float:
    """``rope_theta`` of a config.json, where either generation of transformers puts it."""
    return facts.within("rope_parameters").number("rope_theta", facts.number("rope_theta", default))
