"""The olmo2 family: norms after each block instead of before it, and one norm over all heads' queries, one over all keys.

OLMo 2, arXiv:2501.00656.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model import layers
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, Recording, Spec, WeightSpec, begin
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket


@dataclass(frozen=True)
class Olmo2Spec(Spec):
    rope: Rope


def read(facts: Facts) -> Olmo2Spec:
    layers.expect_activation(facts, "silu")
    if facts.container == GGUF and layers.window_of(facts):
        raise facts.refuse("a sliding window (OLMo 3)")
    found = layers.dimensions(facts)
    rope, context = read_rope(facts, found["head_dim"], found["context"])
    return Olmo2Spec(**found | {"context": context}, rope=rope)


def weights(spec: Olmo2Spec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    parts |= {"q_norm": parts["q"][:1], "k_norm": parts["k"][:1]}
    parts |= dict.fromkeys(("post_attn_norm", "post_mlp_norm"), (spec.hidden,))
    del parts["attn_norm"], parts["mlp_norm"]
    return layers.decoder_weights(spec, parts, layers.SANDWICH) + spec.rope.weights()


def trace(spec: Olmo2Spec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)
    x = layers.embed_tokens(r)
    for layer in range(spec.layers):
        x = ops.add(r.t, _normed(r, spec, f"{layer}.post_attn_norm", _attention(r, spec, layer, x)), x)
        x = ops.add(r.t, _normed(r, spec, f"{layer}.post_mlp_norm", layers.gated_mlp(r, layer, x, act="silu")), x)
    return layers.read_out(r, spec, _normed(r, spec, "norm", x))


def _attention(r: Recording, spec: Olmo2Spec, layer: int, x: Value) -> Value:
    q, k, v = layers.project_qkv(r, layer, x)
    q, k = _normed(r, spec, f"{layer}.q_norm", q), _normed(r, spec, f"{layer}.k_norm", k)
    q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
    return layers.attend(r, spec, layer, (q, k, v))


def _normed(r: Recording, spec: Olmo2Spec, weight: str, x: Value) -> Value:
    return ops.rms_norm(r.t, x, r.weight(weight), eps=spec.eps)
