"""The Gemma 3 family (text): norms before and after each block, normalised queries and keys, windows with global layers.

Gemma 3 technical report, arXiv:2503.19786. GGUF files store norm weights with the family's +1 already added; Hugging Face
checkpoints don't.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pie_edge.model import layers
from pie_edge.model.gemma import norm_offset
from pie_edge.model.rope import Rope, declared, read_rope, scaled
from pie_edge.model.spec import GGUF, Cache, Facts, Spec, WeightSpec, begin
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket

PATTERN = 6
"""Every sixth layer is global unless the checkpoint says otherwise."""


@dataclass(frozen=True)
class Gemma3Spec(Spec):
    rope: Rope
    """Of the global layers."""
    local_rope: Rope
    windows: tuple[int, ...]
    """Each layer's window; 0 for a global one."""
    score_scale: float


def read(facts: Facts) -> Gemma3Spec:
    layers.expect_activation(facts, "gelu_pytorch_tanh", key="hidden_activation")
    found, gguf = layers.dimensions(facts, head_dim=256), facts.container == GGUF
    (rope, context), local = _from_gguf(facts, found) if gguf else _from_config(facts, found)
    pattern = PATTERN if gguf else max(facts.integer("sliding_window_pattern", PATTERN), 1)
    window = facts.integer("attention.sliding_window") if gguf else layers.window_of(facts, 4096)
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if not gguf and facts.metadata.get(cap) is not None:
            raise facts.refuse(f"{cap} = {facts.metadata[cap]}")
    scalar = found["head_dim"] if gguf else facts.number("query_pre_attn_scalar", 256.0)
    return Gemma3Spec(
        **found | {"architecture": "gemma3", "context": context},
        rope=rope,
        local_rope=local,
        windows=layers.windows(facts, found["layers"], window, lambda layer: (layer + 1) % pattern != 0),
        score_scale=1.0 / math.sqrt(scalar) if scalar > 0 else 0.0,
    )


Found = Mapping[str, int]


def _from_gguf(facts: Facts, found: Found) -> tuple[tuple[Rope, int], Rope]:
    rope = read_rope(facts, found["head_dim"], found["context"], base=1e6)
    return rope, Rope(found["head_dim"], facts.number("rope.freq_base_swa", 1e4))


def _from_config(facts: Facts, found: Found) -> tuple[tuple[Rope, int], Rope]:
    # transformers 5 keeps a set of rope parameters for each kind of layer.
    newer = facts.within("rope_parameters")
    full, local = newer.within("full_attention"), newer.within("sliding_attention")
    given = replace(facts, metadata={**facts.metadata, "rope_parameters": full.metadata})
    width = found["head_dim"]
    rope = scaled(declared(given, 1e6), width, found.get("context", 0))
    base = local.number("rope_theta", facts.number("rope_local_base_freq", 1e4))
    return rope, Rope(width, base)


def weights(spec: Gemma3Spec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    parts |= dict.fromkeys(("post_attn_norm", "post_mlp_norm"), (spec.hidden,))
    parts |= dict.fromkeys(("q_norm", "k_norm"), (spec.head_dim,))
    return layers.decoder_weights(spec, parts, layers.SANDWICH) + spec.rope.weights()


def trace(spec: Gemma3Spec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)
    offset = norm_offset(spec)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = layers.norm_heads(r, spec, layer, q, k, offset=offset)
        rope = spec.local_rope if spec.windows[layer] else spec.rope
        q, k = rope.turn(r, q, spec.heads), rope.turn(r, k, spec.kv_heads)
        y = layers.attend(r, spec, layer, (q, k, v), scale=spec.score_scale, window=spec.windows[layer])
        return ops.rms_norm(r.t, y, r.weight(f"{layer}.post_attn_norm"), eps=spec.eps, offset=offset)

    def mlp(layer: int, x: Value) -> Value:
        y = layers.gated_mlp(r, layer, x, act="gelu_tanh")
        return ops.rms_norm(r.t, y, r.weight(f"{layer}.post_mlp_norm"), eps=spec.eps, offset=offset)

    x = layers.embed_tokens(r, scale=spec.hidden**0.5)
    return layers.read_out(r, spec, layers.pre_norm(r, spec, x, attention, mlp, offset=offset))
