"""The llama family: pre-norm layers, grouped-query attention with rope, SwiGLU. SmolLM2 is one.

Llama 2 and 3, arXiv:2307.09288. GGUF files of this family store ``attn_q`` and ``attn_k`` rows permuted so that rope turns
neighbouring pairs; Hugging Face checkpoints keep the halves apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model.layers import gated_mlp, linear_rope_scale, rope_base
from pie_edge.model.spec import GGUF, Cache, Facts, Recording, Spec, WeightSpec, begin
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket


@dataclass(frozen=True)
class LlamaSpec(Spec):
    rope_base: float
    rope_scale: float
    rope_style: str
    rope_factors: bool
    """Whether the file carries a divisor per rope frequency (Llama 3.1's long contexts)."""


def read(facts: Facts) -> LlamaSpec:
    return _from_gguf(facts) if facts.container == GGUF else _from_config(facts)


def _from_gguf(facts: Facts) -> LlamaSpec:
    hidden, heads = facts.integer("embedding_length"), facts.integer("attention.head_count")
    return LlamaSpec(
        architecture="llama",
        container=facts.container,
        vocabulary=facts.rows("token_embd.weight"),
        context=facts.integer("context_length"),
        hidden=hidden,
        layers=facts.integer("block_count"),
        heads=heads,
        kv_heads=facts.integer("attention.head_count_kv", heads),
        head_dim=facts.integer("attention.key_length", facts.integer("rope.dimension_count", hidden // max(heads, 1))),
        mlp=facts.integer("feed_forward_length"),
        eps=facts.number("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in facts.tensors,
        rope_base=facts.number("rope.freq_base", 10000.0),
        rope_scale=linear_rope_scale(facts),
        rope_style="interleaved",
        rope_factors="rope_freqs.weight" in facts.tensors,
    )


def _from_config(facts: Facts) -> LlamaSpec:
    hidden, heads = facts.integer("hidden_size"), facts.integer("num_attention_heads")
    if (act := facts.text("hidden_act", "silu")) != "silu":
        raise facts.refuse(f"the activation {act!r}")
    return LlamaSpec(
        architecture="llama",
        container=facts.container,
        vocabulary=facts.rows("model.embed_tokens.weight"),
        context=facts.integer("max_position_embeddings", 2048),
        hidden=hidden,
        layers=facts.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=facts.integer("num_key_value_heads", heads),
        head_dim=facts.integer("head_dim", hidden // max(heads, 1)),
        mlp=facts.integer("intermediate_size"),
        eps=facts.number("rms_norm_eps", 1e-6),
        tied="lm_head.weight" not in facts.tensors,
        rope_base=rope_base(facts, 10000.0),
        rope_scale=linear_rope_scale(facts),
        rope_style="neox",
        rope_factors=False,
    )


_GGUF_NAMES = {
    "attn_norm": "blk.{}.attn_norm",
    "q": "blk.{}.attn_q",
    "k": "blk.{}.attn_k",
    "v": "blk.{}.attn_v",
    "o": "blk.{}.attn_output",
    "mlp_norm": "blk.{}.ffn_norm",
    "gate": "blk.{}.ffn_gate",
    "up": "blk.{}.ffn_up",
    "down": "blk.{}.ffn_down",
}
_HF_NAMES = {
    "attn_norm": "model.layers.{}.input_layernorm",
    "q": "model.layers.{}.self_attn.q_proj",
    "k": "model.layers.{}.self_attn.k_proj",
    "v": "model.layers.{}.self_attn.v_proj",
    "o": "model.layers.{}.self_attn.o_proj",
    "mlp_norm": "model.layers.{}.post_attention_layernorm",
    "gate": "model.layers.{}.mlp.gate_proj",
    "up": "model.layers.{}.mlp.up_proj",
    "down": "model.layers.{}.mlp.down_proj",
}


def weights(spec: LlamaSpec) -> tuple[WeightSpec, ...]:
    gguf = spec.container == GGUF
    names = _GGUF_NAMES if gguf else _HF_NAMES
    q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    shapes = {
        "attn_norm": (spec.hidden,),
        "q": (q_width, spec.hidden),
        "k": (kv_width, spec.hidden),
        "v": (kv_width, spec.hidden),
        "o": (spec.hidden, q_width),
        "mlp_norm": (spec.hidden,),
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
    if spec.rope_factors:
        found.append(WeightSpec("rope_factors", "rope_freqs.weight", (spec.head_dim // 2,)))
    if not spec.tied:
        found.append(WeightSpec("head", "output.weight" if gguf else "lm_head.weight", table))
    return tuple(found)


def trace(spec: LlamaSpec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)
    residual = ops.embed(r.t, r.weight("embed"), r.step["token_src"], r.tokens())
    x = ops.rms_norm(r.t, residual, r.weight("0.attn_norm"), eps=spec.eps)
    for layer in range(spec.layers):
        attended = _attention(r, spec, layer, x)
        residual, x = ops.add_rms_norm(r.t, attended, residual, r.weight(f"{layer}.mlp_norm"), eps=spec.eps)
        x = gated_mlp(r, layer, x, act="silu")
        last = layer == spec.layers - 1
        following = r.weight("norm" if last else f"{layer + 1}.attn_norm")
        residual, x = ops.add_rms_norm(r.t, x, residual, following, eps=spec.eps)
    x = ops.gather_rows(r.t, x, r.step["sample_rows"])
    logits = ops.linear(r.t, x, r.weight("embed" if spec.tied else "head"))
    ops.store(r.t, logits, r.logits(spec.vocabulary))
    return r.t.build()


def _attention(r: Recording, spec: LlamaSpec, layer: int, x: Value) -> Value:
    q, k, v = (ops.linear(r.t, x, r.weight(f"{layer}.{part}")) for part in ("q", "k", "v"))
    q, k = _rope(r, spec, q, spec.heads), _rope(r, spec, k, spec.kv_heads)
    cache = r.kv(layer, spec.kv_heads, spec.head_dim)
    ops.kv_append(r.t, k, v, r.step, cache, heads=spec.kv_heads)
    scale = spec.head_dim**-0.5
    y = ops.attention(r.t, q, r.step, cache, heads=spec.heads, kv_heads=spec.kv_heads, scale=scale)
    return ops.linear(r.t, y, r.weight(f"{layer}.o"))


def _rope(r: Recording, spec: LlamaSpec, x: Value, heads: int) -> Value:
    return ops.rope(
        r.t,
        x,
        r.step["positions"],
        heads=heads,
        rotary=spec.head_dim,
        base=spec.rope_base,
        scale=spec.rope_scale,
        style=spec.rope_style,
        factors=r.weight("rope_factors") if spec.rope_factors else None,
    )
