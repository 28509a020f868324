"""The qwen2 family (Qwen 2 and 2.5): llama's layers with biases of queries, keys and values. arXiv:2407.10671."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model import layers
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, Spec, WeightSpec, begin
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket


@dataclass(frozen=True)
class Qwen2Spec(Spec):
    rope: Rope
    windows: tuple[int, ...]
    """Each layer's window; 0 sees the whole context."""


def layer_windows(facts: Facts, count: int) -> tuple[int, ...]:
    """Qwen's windows are off unless the configuration turns them on, and then only from ``max_window_layers``."""
    if facts.container == GGUF or facts.metadata.get("use_sliding_window") is not True:
        return (0,) * count
    first = facts.integer("max_window_layers", 28)
    return layers.windows(facts, count, layers.window_of(facts, 4096), lambda layer: layer >= first)


def read(facts: Facts) -> Qwen2Spec:
    layers.expect_activation(facts, "silu")
    found = layers.dimensions(facts)
    rope, context = read_rope(facts, found["head_dim"], found["context"])
    return Qwen2Spec(**found | {"context": context}, rope=rope, windows=layer_windows(facts, found["layers"]))


def weights(spec: Qwen2Spec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    parts |= {f"{part}_bias": parts[part][:1] for part in ("q", "k", "v")}
    return layers.decoder_weights(spec, parts) + spec.rope.weights()


def trace(spec: Qwen2Spec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        return layers.attend(r, spec, layer, (q, k, v), window=spec.windows[layer])

    def mlp(layer: int, x: Value) -> Value:
        return layers.gated_mlp(r, layer, x, act="silu")

    return layers.read_out(r, spec, layers.pre_norm(r, spec, layers.embed_tokens(r), attention, mlp))
