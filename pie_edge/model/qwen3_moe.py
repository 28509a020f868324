"""The qwen3 family's mixtures of experts: its dense models' attention, and small experts of which a token takes several.
arXiv:2505.09388."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model import experts, layers
from pie_edge.model.experts import ExpertSpec
from pie_edge.model.qwen2 import layer_windows
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, WeightSpec, begin
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket


@dataclass(frozen=True)
class Qwen3MoeSpec(ExpertSpec):
    rope: Rope
    windows: tuple[int, ...]
    """Each layer's window; 0 sees the whole context."""
    normalised: bool
    """Whether the weights of a token's experts are one in all."""


def read(facts: Facts) -> Qwen3MoeSpec:
    layers.expect_activation(facts, "silu")
    gguf = facts.container == GGUF
    if not gguf and (facts.metadata.get("mlp_only_layers") or facts.integer("decoder_sparse_step", 1) != 1):
        raise facts.refuse("a layer without experts (mlp_only_layers, decoder_sparse_step)")
    found = layers.dimensions(facts, head_dim=128)
    rope, context = read_rope(facts, found["head_dim"], found["context"])
    found |= {"context": context} | experts.counts(facts, "num_experts")
    found["mlp"] = facts.integer("expert_feed_forward_length" if gguf else "moe_intermediate_size")
    # GGUFs have no key for it: the models that were published have it so.
    normalised = gguf or facts.metadata.get("norm_topk_prob") is True
    windows = layer_windows(facts, found["layers"])
    return Qwen3MoeSpec(**found, rope=rope, windows=windows, normalised=normalised)


def weights(spec: Qwen3MoeSpec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | experts.shapes(spec)
    parts |= dict.fromkeys(("q_norm", "k_norm"), (spec.head_dim,))
    return experts.weights(spec, parts) + spec.rope.weights()


def trace(spec: Qwen3MoeSpec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = layers.norm_heads(r, spec, layer, q, k)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        return layers.attend(r, spec, layer, (q, k, v), window=spec.windows[layer])

    def mlp(layer: int, x: Value) -> Value:
        return experts.gated_mlp(r, spec, layer, x, act="silu", normalised=spec.normalised)

    return layers.read_out(r, spec, layers.pre_norm(r, spec, layers.embed_tokens(r), attention, mlp))
