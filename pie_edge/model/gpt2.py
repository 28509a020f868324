"""The gpt2 family: learned positions, layer norms, biases everywhere, an MLP without gate.

Hugging Face checkpoints keep matrices as [inputs, outputs] (``Conv1D``), GGUF files as [outputs, inputs]; queries, keys and
values are one tensor in both. The first releases name tensors without ``transformer.`` before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.model import layers
from pie_edge.model.spec import GGUF, Cache, Facts, Recording, Spec, WeightSpec, begin
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket

_PREFIX = "transformer."
_NAMES = {
    "attn_norm": ("attn_norm", "ln_1"),
    "q": ("attn_qkv", "attn.c_attn"),
    "k": ("attn_qkv", "attn.c_attn"),
    "v": ("attn_qkv", "attn.c_attn"),
    "o": ("attn_output", "attn.c_proj"),
    "mlp_norm": ("ffn_norm", "ln_2"),
    "up": ("ffn_up", "mlp.c_fc"),
    "down": ("ffn_down", "mlp.c_proj"),
}
_WHOLE = {
    "embed": ("token_embd.weight", "wte.weight"),
    "places": ("position_embd.weight", "wpe.weight"),
    "norm": ("output_norm.weight", "ln_f.weight"),
    "norm_bias": ("output_norm.bias", "ln_f.bias"),
}


@dataclass(frozen=True)
class Gpt2Spec(Spec):
    prefix: str
    """Of a Hugging Face checkpoint's names."""


def read(facts: Facts) -> Gpt2Spec:
    gguf = facts.container == GGUF
    layers.expect_activation(facts, "gelu_new", "gelu_pytorch_tanh", key="activation_function")
    for flag, usual in (("scale_attn_by_inverse_layer_idx", False), ("scale_attn_weights", True)):
        if facts.metadata.get(flag, usual) is not usual:
            raise facts.refuse(f"{flag} = {facts.metadata[flag]}")
    prefix = "" if gguf or "wte.weight" in facts.tensors else _PREFIX
    hidden = facts.integer("embedding_length" if gguf else "n_embd")
    heads = facts.integer("attention.head_count" if gguf else "n_head")
    return Gpt2Spec(
        architecture=facts.architecture,
        container=facts.container,
        vocabulary=facts.rows("token_embd.weight" if gguf else f"{prefix}wte.weight"),
        context=facts.integer("context_length" if gguf else "n_positions"),
        hidden=hidden,
        layers=facts.integer("block_count" if gguf else "n_layer"),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // max(heads, 1),
        mlp=facts.integer("feed_forward_length" if gguf else "n_inner", 4 * hidden),
        eps=facts.number("attention.layer_norm_epsilon" if gguf else "layer_norm_epsilon", 1e-5),
        tied=layers.is_tied(facts, "output.weight" if gguf else "lm_head.weight"),
        prefix=prefix,
    )


def weights(spec: Gpt2Spec) -> tuple[WeightSpec, ...]:
    gguf = spec.container == GGUF
    parts = layers.attention_shapes(spec) | layers.mlp_shapes(spec)
    del parts["gate"]
    table, vector = (spec.vocabulary, spec.hidden), (spec.hidden,)
    shapes = {"embed": table, "places": (spec.context, spec.hidden), "norm": vector, "norm_bias": vector}
    found = [WeightSpec(name, _whole(spec, name), shape) for name, shape in shapes.items()]
    for layer in range(spec.layers):
        for part, shape in parts.items():
            source = _source(spec, layer, part)
            turned = not gguf and len(shape) == 2
            found.append(WeightSpec(f"{layer}.{part}", f"{source}.weight", shape, transposed=turned))
            found.append(WeightSpec(f"{layer}.{part}_bias", f"{source}.bias", shape[:1]))
    if not spec.tied:
        found.append(WeightSpec("head", "output.weight" if gguf else "lm_head.weight", table))
    return layers.share_rows(found)


def _whole(spec: Gpt2Spec, name: str) -> str:
    gguf, hugging_face = _WHOLE[name]
    return gguf if spec.container == GGUF else spec.prefix + hugging_face


def _source(spec: Gpt2Spec, layer: int, part: str) -> str:
    gguf, hugging_face = _NAMES[part]
    return f"blk.{layer}.{gguf}" if spec.container == GGUF else f"{spec.prefix}h.{layer}.{hugging_face}"


def trace(spec: Gpt2Spec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)
    places = ops.embed(r.t, r.weight("places"), r.step["positions"], r.tokens())
    x = ops.add(r.t, layers.embed_tokens(r), places)
    for layer in range(spec.layers):
        qkv = layers.project_qkv(r, layer, _normed(r, spec, x, f"{layer}.attn_norm"))
        x = ops.add(r.t, layers.attend(r, spec, layer, qkv), x)
        inner = layers.project(r, _normed(r, spec, x, f"{layer}.mlp_norm"), f"{layer}.up")
        x = ops.add(r.t, layers.project(r, ops.activation(r.t, inner, act="gelu_tanh"), f"{layer}.down"), x)
    return layers.read_out(r, spec, _normed(r, spec, x, "norm"))


def _normed(r: Recording, spec: Gpt2Spec, x: Value, name: str) -> Value:
    return ops.layer_norm(r.t, x, r.weight(name), r.weight(f"{name}_bias"), eps=spec.eps)
