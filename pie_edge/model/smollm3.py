"""The smollm3 family: llama's layers, of which every fourth has no rope (NoPE, arXiv:2501.18795).

GGUF files don't say which: llama.cpp takes every fourth, and permutes queries and keys as for llama.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.errors import BadCheckpoint
from pie_edge.model import layers
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, Spec, WeightSpec, begin
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket

INTERVAL = 4
"""Every fourth layer has no rope unless the configuration says otherwise."""


@dataclass(frozen=True)
class SmolLM3Spec(Spec):
    rope: Rope
    turned: tuple[bool, ...]
    """Whether a layer has rope."""
    windows: tuple[int, ...]
    """Each layer's window; 0 sees the whole context."""


def read(facts: Facts) -> SmolLM3Spec:
    layers.expect_activation(facts, "silu")
    found = layers.dimensions(facts)
    rope, context = read_rope(facts, found["head_dim"], found["context"], base=2e6, style="interleaved")
    turned = _turned(facts, found["layers"])
    windowed = facts.metadata.get("use_sliding_window") is True
    window = layers.window_of(facts) if windowed else 0
    windows = layers.windows(facts, found["layers"], window, lambda layer: not turned[layer])
    return SmolLM3Spec(**found | {"context": context}, rope=rope, turned=turned, windows=windows)


def _turned(facts: Facts, count: int) -> tuple[bool, ...]:
    flags = facts.metadata.get("no_rope_layers")
    if facts.container == GGUF or flags is None:
        interval = INTERVAL if facts.container == GGUF else max(facts.integer("no_rope_layer_interval", INTERVAL), 1)
        return tuple((layer + 1) % interval != 0 for layer in range(count))
    # In spite of its name, 1 marks a layer that has rope.
    if not isinstance(flags, list) or len(flags) < count:
        raise BadCheckpoint(f"{facts.path}: no_rope_layers should have {count} entries; fetch the file again")
    return tuple(bool(flag) for flag in flags[:count])


def weights(spec: SmolLM3Spec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    return layers.decoder_weights(spec, parts) + spec.rope.weights()


def trace(spec: SmolLM3Spec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        if spec.turned[layer]:
            q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        return layers.attend(r, spec, layer, (q, k, v), window=spec.windows[layer])

    def mlp(layer: int, x: Value) -> Value:
        return layers.gated_mlp(r, layer, x, act="silu")

    return layers.read_out(r, spec, layers.pre_norm(r, spec, layers.embed_tokens(r), attention, mlp))
