"""The llama family: pre-norm layers, grouped-query attention with rope, SwiGLU. SmolLM2 is one.

Llama 2 and 3, arXiv:2307.09288. GGUF files of this family store ``attn_q`` and ``attn_k`` rows permuted so that rope turns
neighbouring pairs; Hugging Face checkpoints keep the halves apart.
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


@dataclass(frozen=True)
class LlamaSpec(Spec):
    rope: Rope
    window: int = 0
    """Tokens that every layer sees; 0: all."""


def read(facts: Facts) -> LlamaSpec:
    layers.expect_activation(facts, "silu")
    found = layers.dimensions(facts)
    rope, context = read_rope(facts, found["head_dim"], found["context"], style="interleaved")
    # Mistral's GGUF files are llama's; those that state a window mean it.
    window = layers.window_of(facts) if facts.container == GGUF else 0
    return LlamaSpec(**found | {"context": context}, rope=rope, window=window)


def weights(spec: LlamaSpec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    return layers.decoder_weights(spec, parts) + spec.rope.weights()


def trace(spec: LlamaSpec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        return layers.attend(r, spec, layer, (q, k, v), window=spec.window)

    def mlp(layer: int, x: Value) -> Value:
        return layers.gated_mlp(r, layer, x, act="silu")

    return layers.read_out(r, spec, layers.pre_norm(r, spec, layers.embed_tokens(r), attention, mlp))
