"""Pieces that families with mixtures of experts share: their facts, their weights by both containers' names, and the mixture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pie_edge.errors import BadCheckpoint
from pie_edge.model import layers
from pie_edge.model.layers import Shapes
from pie_edge.model.spec import GGUF, Facts, Recording, Spec, WeightSpec
from pie_edge.program import trace as ops
from pie_edge.program import trace_experts as mixture
from pie_edge.program.ops import Value
from pie_edge.program.trace_experts import Routing

NAMES = {
    **layers.NAMES,
    "router": ("ffn_gate_inp", "mlp.gate"),
    "expert_gate": ("ffn_gate_exps", "mlp.experts.gate_proj"),
    "expert_up": ("ffn_up_exps", "mlp.experts.up_proj"),
    "expert_down": ("ffn_down_exps", "mlp.experts.down_proj"),
}
MOST = 1 << 12
"""Experts that a file may state: a damaged count must not become a loop of billions."""


@dataclass(frozen=True)
class ExpertSpec(Spec):
    """``mlp`` is the width of one expert."""

    experts: int
    chosen: int
    """Experts that a token goes through."""


def counts(facts: Facts, key: str) -> dict[str, int]:
    """The fields that ``ExpertSpec`` adds; ``key`` is config.json's for the number of experts. Raises BadCheckpoint."""
    gguf = facts.container == GGUF
    # Later versions of transformers write one name for all families.
    key = "num_local_experts" if "num_local_experts" in facts.metadata else key
    experts = facts.integer("expert_count" if gguf else key)
    chosen = facts.integer("expert_used_count" if gguf else "num_experts_per_tok")
    if not 0 < chosen <= experts <= MOST:
        raise BadCheckpoint(
            f"{facts.path}: the {facts.architecture} model states {experts} experts, of which {chosen} are used; fetch it again"
        )
    return {"experts": experts, "chosen": chosen}


def shapes(spec: ExpertSpec) -> dict[str, tuple[int, ...]]:
    rows, hidden = spec.experts * spec.mlp, spec.hidden
    return {
        "mlp_norm": (hidden,),
        "router": (spec.experts, hidden),
        "expert_gate": (rows, hidden),
        "expert_up": (rows, hidden),
        "expert_down": (spec.experts * hidden, spec.mlp),
    }


def weights(spec: ExpertSpec, parts: Shapes, names: layers.Names = NAMES) -> tuple[WeightSpec, ...]:
    """``layers.decoder_weights``, those of experts with a matrix for each."""
    return stacked(spec, layers.decoder_weights(spec, parts, names))


def stacked(spec: ExpertSpec, listed: Iterable[WeightSpec]) -> tuple[WeightSpec, ...]:
    return tuple(replace(w, matrices=spec.experts) if ".expert_" in w.name else w for w in listed)


def choose(r: Recording, spec: ExpertSpec, layer: int, x: Value, *, normalised: bool) -> Routing:
    logits = layers.project(r, x, f"{layer}.router")
    return mixture.route(r.t, logits, chosen=spec.chosen, normalised=normalised)


def project(r: Recording, x: Value, routing: Routing, name: str) -> Value:
    """Each chosen expert's x · weightᵀ, plus its bias where the family lists one."""
    bias = r.weight(f"{name}_bias") if f"{name}_bias" in r.shapes else None
    return mixture.expert_linear(r.t, x, routing, r.weight(name), bias)


def gated_mlp(r: Recording, spec: ExpertSpec, layer: int, x: Value, *, act: str, normalised: bool) -> Value:
    """The weighted sum of down(act(gate(x)) · up(x)) of the chosen experts."""
    routing = choose(r, spec, layer, x, normalised=normalised)
    gate, up = (project(r, x, routing, f"{layer}.expert_{side}") for side in ("gate", "up"))
    y = project(r, ops.glu(r.t, gate, up, act=act), routing, f"{layer}.expert_down")
    return mixture.combine_experts(r.t, y, routing)
