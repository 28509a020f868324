"""The phi3 family (Phi-3, Phi-3.5, Phi-4): llama's layers with fused tensors, rope on part of a head, LongRoPE.

Phi-3, arXiv:2404.14219. Queries, keys and values are one tensor in the file, gate and up another; here they are weights of
their own, rows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model import layers
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import Cache, Facts, Spec, WeightSpec, begin
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket

_FUSED = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}
_NAMES = layers.NAMES | {"qkv": ("attn_qkv", "self_attn.qkv_proj"), "gate_up": ("ffn_up", "mlp.gate_up_proj")}


@dataclass(frozen=True)
class Phi3Spec(Spec):
    rope: Rope
    window: int
    """Tokens that every layer sees; 0: all."""


def read(facts: Facts) -> Phi3Spec:
    layers.expect_activation(facts, "silu")
    found = layers.dimensions(facts)
    rope, context = read_rope(facts, found["head_dim"], found["context"])
    return Phi3Spec(**found | {"context": context}, rope=rope, window=layers.window_of(facts))


def weights(spec: Phi3Spec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    listed = layers.decoder_weights(spec, parts, _NAMES | {part: _NAMES[of] for part, of in _FUSED.items()})
    return layers.share_rows(listed) + spec.rope.weights()


def trace(spec: Phi3Spec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        return layers.attend(r, spec, layer, (q, k, v), window=spec.window)

    def mlp(layer: int, x: Value) -> Value:
        return layers.gated_mlp(r, layer, x, act="silu")

    return layers.read_out(r, spec, layers.pre_norm(r, spec, layers.embed_tokens(r), attention, mlp))
