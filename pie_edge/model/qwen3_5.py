"""The qwen3.5 family (text): gated delta nets, and gated attention in every fourth layer.

Its projections lie apart, where Qwen3-Next's are fused. GGUF files (``qwen35``) have value heads that share a key head not side
by side but tiled, in every tensor that has them, and layers for predicting several tokens after the model's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from pie_edge.model import layers, recurrent
from pie_edge.model.recurrent import DeltaSpec
from pie_edge.model.rope import read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, WeightSpec, begin
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket


def read(facts: Facts) -> DeltaSpec:
    gguf = facts.container == GGUF
    if not gguf and "text_config" in facts.metadata:
        facts = facts.within("text_config")
    layers.expect_activation(facts, "silu")
    found = layers.dimensions(facts, head_dim=256, prefix=recurrent.prefix_of(facts))
    if gguf:
        found["layers"] -= facts.integer("nextn_predict_layers", 0)
    rope, context = read_rope(recurrent.with_partial_rotary(facts), found["head_dim"], found["context"])
    delta = recurrent.delta_facts(facts, found["layers"], rope)
    return DeltaSpec(**found | {"architecture": "qwen3_5", "context": context}, **delta, tiled=gguf)


def weights(spec: DeltaSpec) -> tuple[WeightSpec, ...]:
    mlp = layers.mlp_shapes(spec)
    shapes = recurrent.delta_shapes(spec) | mlp, recurrent.attention_shapes(spec) | mlp
    listed = layers.decoder_weights(spec, lambda layer: shapes[spec.attends[layer]], recurrent.NAMES)
    return recurrent.with_gates(spec, listed) + spec.rope.weights()


def trace(spec: DeltaSpec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def mlp(layer: int, x: Value) -> Value:
        return layers.gated_mlp(r, layer, x, act="silu")

    return recurrent.trace(r, spec, mlp)
