"""The granite family, its dense models: llama's layers with a multiplier at the embedding, the scores, what a block adds to
the residual, and the logits. GGUF files permute queries and keys as for llama."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model import layers
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, Spec, WeightSpec, begin
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket


@dataclass(frozen=True)
class GraniteSpec(Spec):
    rope: Rope
    embedding_multiplier: float
    score_scale: float
    residual_multiplier: float
    logits_divisor: float


def read(facts: Facts) -> GraniteSpec:
    layers.expect_activation(facts, "silu")
    found, gguf = layers.dimensions(facts), facts.container == GGUF
    if gguf and facts.metadata.get(f"{facts.architecture}.rope.scaling.finetuned") is False:
        raise facts.refuse("a model without rope (rope.scaling.finetuned = false)")
    rope, context = read_rope(facts, found["head_dim"], found["context"], style="interleaved")
    # A GGUF leaves the scale of scores out where it is the usual one.
    usual = found["head_dim"] ** -0.5 if gguf else 1.0
    return GraniteSpec(
        **found | {"context": context},
        rope=rope,
        embedding_multiplier=facts.number("embedding_scale" if gguf else "embedding_multiplier", 1.0),
        score_scale=facts.number("attention.scale" if gguf else "attention_multiplier", usual),
        residual_multiplier=facts.number("residual_scale" if gguf else "residual_multiplier", 1.0),
        logits_divisor=facts.number("logit_scale" if gguf else "logits_scaling", 1.0),
    )


def weights(spec: GraniteSpec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    return layers.decoder_weights(spec, parts) + spec.rope.weights()


def trace(spec: GraniteSpec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        y = layers.attend(r, spec, layer, (q, k, v), scale=spec.score_scale)
        return ops.scale(r.t, y, factor=spec.residual_multiplier)

    def mlp(layer: int, x: Value) -> Value:
        return ops.scale(r.t, layers.gated_mlp(r, layer, x, act="silu"), factor=spec.residual_multiplier)

    x = layers.embed_tokens(r, scale=spec.embedding_multiplier)
    return layers.read_out(r, spec, layers.pre_norm(r, spec, x, attention, mlp), scale=1 / spec.logits_divisor)
