"""The qwen3 family, its dense models: llama's layers with normalised queries and keys. arXiv:2505.09388."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model import layers
from pie_edge.model.qwen2 import layer_windows
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import Cache, Facts, Spec, WeightSpec, begin
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket


@dataclass(frozen=True)
class Qwen3Spec(Spec):
    rope: Rope
    windows: tuple[int, ...]
    """Each layer's window; 0 sees the whole context."""


def read(facts: Facts) -> Qwen3Spec:
    layers.expect_activation(facts, "silu")
    found = layers.dimensions(facts, head_dim=128)
    rope, context = read_rope(facts, found["head_dim"], found["context"])
    return Qwen3Spec(**found | {"context": context}, rope=rope, windows=layer_windows(facts, found["layers"]))


def weights(spec: Qwen3Spec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    parts |= dict.fromkeys(("q_norm", "k_norm"), (spec.head_dim,))
    return layers.decoder_weights(spec, parts) + spec.rope.weights()


def trace(spec: Qwen3Spec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = layers.norm_heads(r, spec, layer, q, k)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        return layers.attend(r, spec, layer, (q, k, v), window=spec.windows[layer])

    def mlp(layer: int, x: Value) -> Value:
        return layers.gated_mlp(r, layer, x, act="silu")

    return layers.read_out(r, spec, layers.pre_norm(r, spec, layers.embed_tokens(r), attention, mlp))
