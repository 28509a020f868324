"""The Mixtral family: llama's layers with a mixture of experts, two a token, for each MLP. arXiv:2401.04088.

GGUF files of it say ``llama``, with a number of experts; queries and keys are permuted there as llama's are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model import experts, layers
from pie_edge.model.experts import ExpertSpec
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import Cache, Facts, WeightSpec, begin
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket

_NAMES = experts.NAMES | {
    "router": ("ffn_gate_inp", "block_sparse_moe.gate"),
    "expert_gate": ("ffn_gate_exps", "block_sparse_moe.experts.w1"),
    "expert_up": ("ffn_up_exps", "block_sparse_moe.experts.w3"),
    "expert_down": ("ffn_down_exps", "block_sparse_moe.experts.w2"),
}


@dataclass(frozen=True)
class MixtralSpec(ExpertSpec):
    rope: Rope
    window: int
    """Tokens that every layer sees; 0: all."""


def read(facts: Facts) -> MixtralSpec:
    layers.expect_activation(facts, "silu")
    found = layers.dimensions(facts)
    rope, context = read_rope(facts, found["head_dim"], found["context"], style="interleaved")
    found |= {"context": context} | experts.counts(facts, "num_local_experts")
    return MixtralSpec(**found, rope=rope, window=layers.window_of(facts))


def weights(spec: MixtralSpec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | experts.shapes(spec)
    return experts.weights(spec, parts, _NAMES) + spec.rope.weights()


def trace(spec: MixtralSpec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        return layers.attend(r, spec, layer, (q, k, v), window=spec.window)

    def mlp(layer: int, x: Value) -> Value:
        return experts.gated_mlp(r, spec, layer, x, act="silu", normalised=True)

    return layers.read_out(r, spec, layers.pre_norm(r, spec, layers.embed_tokens(r), attention, mlp))
