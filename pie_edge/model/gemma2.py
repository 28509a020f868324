"""The gemma2 family: norms before and after each block, soft caps of scores and logits, every other layer with a window.

Gemma 2, arXiv:2408.00118. GGUF files store norm weights with the family's +1 added; Hugging Face checkpoints don't.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model import layers
from pie_edge.model.gemma import norm_offset
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, Spec, WeightSpec, begin
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket

_LAYERS_OF_27B = 46


@dataclass(frozen=True)
class Gemma2Spec(Spec):
    rope: Rope
    windows: tuple[int, ...]
    """Each layer's window; 0 sees the whole context."""
    score_scale: float
    score_softcap: float
    """0: none."""
    logit_softcap: float


def read(facts: Facts) -> Gemma2Spec:
    layers.expect_activation(facts, "gelu_pytorch_tanh", key="hidden_activation")
    found = layers.dimensions(facts, head_dim=256)
    rope, context = read_rope(facts, found["head_dim"], found["context"])
    window = layers.window_of(facts, 4096)
    return Gemma2Spec(
        **found | {"context": context},
        rope=rope,
        windows=layers.windows(facts, found["layers"], window, lambda layer: layer % 2 == 0),
        score_scale=_score_scale(facts, found),
        score_softcap=_cap(facts, "attn_logit_softcapping", 50.0),
        logit_softcap=_cap(facts, "final_logit_softcapping", 30.0),
    )


def _cap(facts: Facts, key: str, default: float) -> float:
    # An explicit null means none, which is not the default.
    return 0.0 if facts.metadata.get(key, default) is None else facts.number(key, default)


def _score_scale(facts: Facts, found: Mapping[str, int]) -> float:
    scalar = facts.number("query_pre_attn_scalar", 256.0) if facts.container != GGUF else float(found["head_dim"])
    # A GGUF doesn't carry it. Only the model of 27 billion has another one than its heads' width.
    if facts.container == GGUF and found["layers"] == _LAYERS_OF_27B:
        scalar = found["hidden"] / found["heads"]
    return 1.0 / math.sqrt(scalar) if scalar > 0 else 0.0


def weights(spec: Gemma2Spec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    parts |= dict.fromkeys(("post_attn_norm", "post_mlp_norm"), (spec.hidden,))
    return layers.decoder_weights(spec, parts, layers.SANDWICH) + spec.rope.weights()


def trace(spec: Gemma2Spec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)
    offset = norm_offset(spec)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        window, cap = spec.windows[layer], spec.score_softcap
        y = layers.attend(r, spec, layer, (q, k, v), scale=spec.score_scale, window=window, softcap=cap)
        return ops.rms_norm(r.t, y, r.weight(f"{layer}.post_attn_norm"), eps=spec.eps, offset=offset)

    def mlp(layer: int, x: Value) -> Value:
        y = layers.gated_mlp(r, layer, x, act="gelu_tanh")
        return ops.rms_norm(r.t, y, r.weight(f"{layer}.post_mlp_norm"), eps=spec.eps, offset=offset)

    x = layers.embed_tokens(r, scale=spec.hidden**0.5)
    x = layers.pre_norm(r, spec, x, attention, mlp, offset=offset)
    return layers.read_out(r, spec, x, softcap=spec.logit_softcap)
