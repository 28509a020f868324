"""The qwen3-next family: gated delta nets and gated attention, with a mixture of experts and a shared one in every layer.

Projections of delta nets are fused, and lie by key head: its query, its key, its values' heads, their gates. GGUF files have
the queries of all heads first, then the keys, the values and, apart, the gates; older ones leave them as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pie_edge.model import experts, layers, recurrent
from pie_edge.model.experts import ExpertSpec
from pie_edge.model.recurrent import DeltaSpec, interleaved
from pie_edge.model.rope import read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, WeightSpec, begin
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket

_FUSED = ("ssm_in", "linear_attn.in_proj_qkvz")
_GATES = ("ssm_ba", "linear_attn.in_proj_ba")
_NAMES = (
    experts.NAMES
    | recurrent.NAMES
    | {
        "a": _GATES,
        "b": _GATES,
        "shared_router": ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
        "shared_gate": ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
        "shared_up": ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
        "shared_down": ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
    }
)


@dataclass(frozen=True)
class Qwen3NextSpec(DeltaSpec, ExpertSpec):
    shared: int
    """Width of the expert that every token goes through."""
    fused: bool
    """Whether queries, keys, values and their gates are one tensor."""
    normalised: bool
    """Whether the weights of a token's experts are one in all."""


def read(facts: Facts) -> Qwen3NextSpec:
    layers.expect_activation(facts, "silu")
    gguf = facts.container == GGUF
    if not gguf and (facts.metadata.get("mlp_only_layers") or facts.integer("decoder_sparse_step", 1) != 1):
        raise facts.refuse("a layer without experts (mlp_only_layers, decoder_sparse_step)")
    found = layers.dimensions(facts, head_dim=256, prefix=recurrent.prefix_of(facts))
    rope, context = read_rope(recurrent.with_partial_rotary(facts), found["head_dim"], found["context"])
    found |= {"context": context} | experts.counts(facts, "num_experts")
    found["mlp"] = facts.integer("expert_feed_forward_length" if gguf else "moe_intermediate_size")
    shared = "expert_shared_feed_forward_length" if gguf else "shared_expert_intermediate_size"
    return Qwen3NextSpec(
        **found,
        **recurrent.delta_facts(facts, found["layers"], rope),
        tiled=False,
        shared=facts.integer(shared),
        fused=not gguf or any(name.endswith(".ssm_in.weight") for name in facts.tensors),
        normalised=gguf or facts.metadata.get("norm_topk_prob", True) is True,
    )


def weights(spec: Qwen3NextSpec) -> tuple[WeightSpec, ...]:
    mixture = experts.shapes(spec) | _shared_shapes(spec)
    shapes = recurrent.delta_shapes(spec) | mixture, recurrent.attention_shapes(spec) | mixture
    names = _NAMES | {"qkv": _FUSED, "z": _FUSED} if spec.fused else _NAMES
    listed = experts.stacked(spec, layers.decoder_weights(spec, lambda layer: shapes[spec.attends[layer]], names))
    runs = _runs(spec)
    own = (replace(weight, runs=runs.get(weight.name.partition(".")[2], ())) for weight in listed)
    return recurrent.with_gates(spec, tuple(own)) + spec.rope.weights()


def _shared_shapes(spec: Qwen3NextSpec) -> dict[str, tuple[int, ...]]:
    hidden, wide = spec.hidden, (spec.shared, spec.hidden)
    return {"shared_router": (1, hidden), "shared_gate": wide, "shared_up": wide, "shared_down": wide[::-1]}


def _runs(spec: Qwen3NextSpec) -> dict[str, tuple[tuple[int, int], ...]]:
    """Where in the fused tensors the rows of each part are."""
    groups, each = spec.key_heads, spec.value_heads // spec.key_heads
    found = {"b": interleaved(0, each, 2 * each, groups), "a": interleaved(each, each, 2 * each, groups)}
    if not spec.fused:
        return found
    keys, values = spec.key_dim, each * spec.value_dim
    stride = 2 * (keys + values)
    q, k = (interleaved(first, keys, stride, groups) for first in (0, keys))
    v, z = (interleaved(2 * keys + first, values, stride, groups) for first in (0, values))
    return found | {"qkv": q + k + v, "z": z}


def trace(spec: Qwen3NextSpec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def mlp(layer: int, x: Value) -> Value:
        chosen = experts.gated_mlp(r, spec, layer, x, act="silu", normalised=spec.normalised)
        gate, up = (layers.project(r, x, f"{layer}.shared_{side}") for side in ("gate", "up"))
        shared = layers.project(r, ops.glu(r.t, gate, up, act="silu"), f"{layer}.shared_down")
        share = ops.activation(r.t, layers.project(r, x, f"{layer}.shared_router"), act="sigmoid")
        return ops.add(r.t, chosen, ops.mul(r.t, shared, share))

    return recurrent.trace(r, spec, mlp)
