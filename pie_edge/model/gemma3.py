"""The Gemma 3 family (text): norms before and after each block, normalised queries and keys, windows with global layers.

Gemma 3 technical report, arXiv:2503.19786. GGUF files store norm weights with the family's +1 already added; Hugging Face
checkpoints don't.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict

from pie_edge.model.layers import gated_mlp, linear_rope_scale
from pie_edge.model.spec import GGUF, Cache, Facts, Recording, Spec, WeightSpec, begin
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket


class _Norm(TypedDict):
    eps: float
    offset: float


PATTERN = 6
"""Every sixth layer is global unless the checkpoint says otherwise."""


@dataclass(frozen=True)
class Gemma3Spec(Spec):
    rope_base: float
    local_rope_base: float
    rope_scale: float
    """Global layers' positions are multiplied by it (linear scaling of the larger models)."""
    window: int
    global_layers: tuple[int, ...]
    """Layers that attend to the whole context; the others see ``window`` tokens."""
    score_scale: float
    norm_offset: float


def every_nth(layers: int, n: int) -> tuple[int, ...]:
    return tuple(range(n - 1, layers, max(n, 1)))


def _global_layers(facts: Facts, layers: int) -> tuple[int, ...]:
    """From ``layer_types``, where newer configurations list them one by one, or from the pattern."""
    kinds = facts.metadata.get("layer_types")
    if not isinstance(kinds, list):
        return every_nth(layers, facts.integer("sliding_window_pattern", PATTERN))
    if len(kinds) != layers or set(kinds) - {"full_attention", "sliding_attention"}:
        raise facts.refuse(
            f"a layer_types of {len(kinds)} entries, {sorted(set(map(str, kinds)))}, for {layers} layers"
        )
    return tuple(layer for layer, kind in enumerate(kinds) if kind == "full_attention")


def read(facts: Facts) -> Gemma3Spec:
    return _from_gguf(facts) if facts.container == GGUF else _from_config(facts)


def _from_gguf(facts: Facts) -> Gemma3Spec:
    heads, head_dim = facts.integer("attention.head_count"), facts.integer("attention.key_length", 256)
    layers = facts.integer("block_count")
    return Gemma3Spec(
        architecture="gemma3",
        container=facts.container,
        vocabulary=facts.rows("token_embd.weight"),
        context=facts.integer("context_length"),
        hidden=facts.integer("embedding_length"),
        layers=layers,
        heads=heads,
        kv_heads=facts.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        mlp=facts.integer("feed_forward_length"),
        eps=facts.number("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in facts.tensors,
        rope_base=facts.number("rope.freq_base", 1e6),
        local_rope_base=facts.number("rope.freq_base_swa", 1e4),
        rope_scale=linear_rope_scale(facts),
        window=facts.integer("attention.sliding_window"),
        global_layers=every_nth(layers, PATTERN),
        score_scale=head_dim**-0.5,
        norm_offset=0.0,
    )


def _from_config(facts: Facts) -> Gemma3Spec:
    heads, layers = facts.integer("num_attention_heads"), facts.integer("num_hidden_layers")
    act = facts.text("hidden_activation", facts.text("hidden_act", "gelu_pytorch_tanh"))
    if act != "gelu_pytorch_tanh":
        raise facts.refuse(f"the activation {act!r}")
    # transformers 5 keeps a set of rope parameters per kind of layer.
    ropes = facts.within("rope_parameters")
    full, local = ropes.within("full_attention"), ropes.within("sliding_attention")
    return Gemma3Spec(
        architecture="gemma3",
        container=facts.container,
        vocabulary=facts.rows("model.embed_tokens.weight"),
        context=facts.integer("max_position_embeddings", 32768),
        hidden=facts.integer("hidden_size"),
        layers=layers,
        heads=heads,
        kv_heads=facts.integer("num_key_value_heads", heads),
        head_dim=facts.integer("head_dim", 256),
        mlp=facts.integer("intermediate_size"),
        eps=facts.number("rms_norm_eps", 1e-6),
        tied="lm_head.weight" not in facts.tensors,
        rope_base=full.number("rope_theta", facts.number("rope_theta", 1e6)),
        local_rope_base=local.number("rope_theta", facts.number("rope_local_base_freq", 1e4)),
        rope_scale=linear_rope_scale(
            facts if facts.metadata.get("rope_scaling") else replace(facts, metadata={"rope_scaling": full.metadata})
        ),
        window=facts.integer("sliding_window", 512),
        global_layers=_global_layers(facts, layers),
        score_scale=facts.number("query_pre_attn_scalar", 256.0) ** -0.5,
        norm_offset=1.0,
    )


_GGUF_NAMES = {
    "attn_norm": "blk.{}.attn_norm",
    "q": "blk.{}.attn_q",
    "k": "blk.{}.attn_k",
    "v": "blk.{}.attn_v",
    "o": "blk.{}.attn_output",
    "q_norm": "blk.{}.attn_q_norm",
    "k_norm": "blk.{}.attn_k_norm",
    "post_attn_norm": "blk.{}.post_attention_norm",
    "mlp_norm": "blk.{}.ffn_norm",
    "gate": "blk.{}.ffn_gate",
    "up": "blk.{}.ffn_up",
    "down": "blk.{}.ffn_down",
    "post_mlp_norm": "blk.{}.post_ffw_norm",
}
_HF_NAMES = {
    "attn_norm": "model.layers.{}.input_layernorm",
    "q": "model.layers.{}.self_attn.q_proj",
    "k": "model.layers.{}.self_attn.k_proj",
    "v": "model.layers.{}.self_attn.v_proj",
    "o": "model.layers.{}.self_attn.o_proj",
    "q_norm": "model.layers.{}.self_attn.q_norm",
    "k_norm": "model.layers.{}.self_attn.k_norm",
    "post_attn_norm": "model.layers.{}.post_attention_layernorm",
    "mlp_norm": "model.layers.{}.pre_feedforward_layernorm",
    "gate": "model.layers.{}.mlp.gate_proj",
    "up": "model.layers.{}.mlp.up_proj",
    "down": "model.layers.{}.mlp.down_proj",
    "post_mlp_norm": "model.layers.{}.post_feedforward_layernorm",
}


def weights(spec: Gemma3Spec) -> tuple[WeightSpec, ...]:
    gguf = spec.container == GGUF
    names = _GGUF_NAMES if gguf else _HF_NAMES
    q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("attn_norm", "post_attn_norm", "mlp_norm", "post_mlp_norm"), (spec.hidden,)),
        **dict.fromkeys(("q_norm", "k_norm"), (spec.head_dim,)),
        "q": (q_width, spec.hidden),
        "k": (kv_width, spec.hidden),
        "v": (kv_width, spec.hidden),
        "o": (spec.hidden, q_width),
        "gate": (spec.mlp, spec.hidden),
        "up": (spec.mlp, spec.hidden),
        "down": (spec.hidden, spec.mlp),
    }
    table = (spec.vocabulary, spec.hidden)
    found = [WeightSpec("embed", "token_embd.weight" if gguf else "model.embed_tokens.weight", table)]
    for layer in range(spec.layers):
        found += [
            WeightSpec(f"{layer}.{part}", names[part].format(layer) + ".weight", shape)
            for part, shape in shapes.items()
        ]
    found.append(WeightSpec("norm", "output_norm.weight" if gguf else "model.norm.weight", (spec.hidden,)))
    if not spec.tied:
        found.append(WeightSpec("head", "output.weight" if gguf else "lm_head.weight", table))
    return tuple(found)


def trace(spec: Gemma3Spec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)
    norm = _Norm(eps=spec.eps, offset=spec.norm_offset)
    residual = ops.embed(r.t, r.weight("embed"), r.step["token_src"], r.tokens(), scale=spec.hidden**0.5)
    x = ops.rms_norm(r.t, residual, r.weight("0.attn_norm"), **norm)
    for layer in range(spec.layers):
        x = ops.rms_norm(r.t, _attention(r, spec, layer, x), r.weight(f"{layer}.post_attn_norm"), **norm)
        residual, x = ops.add_rms_norm(r.t, x, residual, r.weight(f"{layer}.mlp_norm"), **norm)
        x = gated_mlp(r, layer, x, act="gelu_tanh")
        x = ops.rms_norm(r.t, x, r.weight(f"{layer}.post_mlp_norm"), **norm)
        last = layer == spec.layers - 1
        following = r.weight("norm" if last else f"{layer + 1}.attn_norm")
        residual, x = ops.add_rms_norm(r.t, x, residual, following, **norm)
    x = ops.gather_rows(r.t, x, r.step["sample_rows"])
    logits = ops.linear(r.t, x, r.weight("embed" if spec.tied else "head"))
    ops.store(r.t, logits, r.logits(spec.vocabulary))
    return r.t.build()


def _attention(r: Recording, spec: Gemma3Spec, layer: int, x: Value) -> Value:
    q, k, v = (ops.linear(r.t, x, r.weight(f"{layer}.{part}")) for part in ("q", "k", "v"))
    norm = _Norm(eps=spec.eps, offset=spec.norm_offset)
    q = ops.rms_norm(r.t, q, r.weight(f"{layer}.q_norm"), groups=spec.heads, **norm)
    k = ops.rms_norm(r.t, k, r.weight(f"{layer}.k_norm"), groups=spec.kv_heads, **norm)
    base, scale = (spec.rope_base, spec.rope_scale) if layer in spec.global_layers else (spec.local_rope_base, 1.0)
    q = ops.rope(r.t, q, r.step["positions"], heads=spec.heads, rotary=spec.head_dim, base=base, scale=scale)
    k = ops.rope(r.t, k, r.step["positions"], heads=spec.kv_heads, rotary=spec.head_dim, base=base, scale=scale)
    cache = r.kv(layer, spec.kv_heads, spec.head_dim)
    ops.kv_append(r.t, k, v, r.step, cache, heads=spec.kv_heads)
    y = ops.attention(
        r.t,
        q,
        r.step,
        cache,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        scale=spec.score_scale,
        window=0 if layer in spec.global_layers else spec.window,
    )
    return ops.linear(r.t, y, r.weight(f"{layer}.o"))
