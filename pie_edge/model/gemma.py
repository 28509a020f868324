"""The gemma family (1): llama's layers with a scaled embedding, GeGLU, and norm weights stored less one. arXiv:2403.08295.

GGUF files store norm weights with the one added; Hugging Face checkpoints don't.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model import layers
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, Spec, WeightSpec, begin
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket

ACTIVATIONS = ("gelu_pytorch_tanh", "gelu")
"""The first releases said ``gelu`` and meant the tanh form, as every implementation takes it."""


@dataclass(frozen=True)
class GemmaSpec(Spec):
    rope: Rope


def norm_offset(spec: Spec) -> float:
    """What is added to a norm's weight."""
    return 0.0 if spec.container == GGUF else 1.0


def read(facts: Facts) -> GemmaSpec:
    layers.expect_activation(facts, *ACTIVATIONS)
    found = layers.dimensions(facts, head_dim=256)
    rope, context = read_rope(facts, found["head_dim"], found["context"])
    return GemmaSpec(**found | {"context": context}, rope=rope)


def weights(spec: GemmaSpec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    return layers.decoder_weights(spec, parts) + spec.rope.weights()


def trace(spec: GemmaSpec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        return layers.attend(r, spec, layer, (q, k, v))

    def mlp(layer: int, x: Value) -> Value:
        return layers.gated_mlp(r, layer, x, act="gelu_tanh")

    x = layers.embed_tokens(r, scale=spec.hidden**0.5)
    return layers.read_out(r, spec, layers.pre_norm(r, spec, x, attention, mlp, offset=norm_offset(spec)))
