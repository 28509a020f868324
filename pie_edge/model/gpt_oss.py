"""The gpt-oss family: mixtures of experts with biases and a clamped gate, attention with sinks, a window in every other layer.

gpt-oss-120b & gpt-oss-20b model card, arXiv:2508.10925. Hugging Face checkpoints keep the experts in MXFP4 as blocks and scales,
or, where somebody multiplied them out, transposed; either way rows of the gate and of what it lets through take turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pie_edge.model import experts, layers
from pie_edge.model.experts import ExpertSpec
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, WeightSpec, begin
from pie_edge.program import trace_experts as mixture
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket

_NAMES = experts.NAMES | {
    "sinks": ("attn_sinks", "self_attn.sinks"),
    "mlp_norm": ("post_attention_norm", "post_attention_layernorm"),
    "router": ("ffn_gate_inp", "mlp.router"),
}
_BIASED = ("q", "k", "v", "o", "router", "expert_gate", "expert_up", "expert_down")
_FUSED = {"expert_gate": ("gate_up_proj", 0), "expert_up": ("gate_up_proj", 1), "expert_down": ("down_proj", None)}
"""Of an expert's parts, Hugging Face's tensor, and which of its rows it begins at where two take turns."""


@dataclass(frozen=True)
class GptOssSpec(ExpertSpec):
    rope: Rope
    windows: tuple[int, ...]
    """Each layer's window; 0 sees the whole context."""
    slope: float
    limit: float
    packed: bool
    """Whether a Hugging Face checkpoint has its experts in MXFP4."""


def read(facts: Facts) -> GptOssSpec:
    layers.expect_activation(facts, "silu")
    gguf = facts.container == GGUF
    found = layers.dimensions(facts, head_dim=64)
    rope, context = read_rope(facts, found["head_dim"], found["context"], base=150000.0, whole=False)
    found |= {"context": context} | experts.counts(facts, "num_local_experts")
    found["mlp"] = facts.integer("expert_feed_forward_length", found["mlp"]) if gguf else found["mlp"]
    window = layers.window_of(facts, 128)
    return GptOssSpec(
        **found,
        rope=rope,
        windows=layers.windows(facts, found["layers"], window, lambda layer: layer % 2 == 0),
        slope=1.702 if gguf else facts.number("swiglu_alpha", 1.702),
        limit=7.0 if gguf else facts.number("swiglu_limit", 7.0),
        packed="model.layers.0.mlp.experts.down_proj.weight" in facts.tensors,
    )


def weights(spec: GptOssSpec) -> tuple[WeightSpec, ...]:
    parts = layers.attention_shapes(spec) | experts.shapes(spec)
    parts |= {f"{part}_bias": parts[part][:1] for part in _BIASED} | {"sinks": (spec.heads,)}
    listed = experts.weights(spec, parts, _NAMES)
    if spec.container != GGUF:
        listed = tuple(_from_hugging_face(spec, weight) for weight in listed)
    return listed + spec.rope.weights()


def _from_hugging_face(spec: GptOssSpec, weight: WeightSpec) -> WeightSpec:
    layer, _, part = weight.name.partition(".")
    if part == "sinks":
        return replace(weight, source=weight.source.removesuffix(".weight"))
    if not weight.matrices:
        return weight
    tensor, turn = _FUSED[part.removesuffix("_bias")]
    source = f"model.layers.{layer}.mlp.experts.{tensor}"
    own = weight if turn is None else replace(weight, first=turn, step=2)
    if part.endswith("_bias"):
        return replace(own, source=f"{source}_bias")
    return replace(own, source=f"{source}.weight" if spec.packed else source, transposed=not spec.packed)


def trace(spec: GptOssSpec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        sinks = r.weight(f"{layer}.sinks")
        return layers.attend(r, spec, layer, (q, k, v), window=spec.windows[layer], sinks=sinks)

    def mlp(layer: int, x: Value) -> Value:
        routing = experts.choose(r, spec, layer, x, normalised=True)
        gate, up = (experts.project(r, x, routing, f"{layer}.expert_{side}") for side in ("gate", "up"))
        inner = mixture.clamped_glu(r.t, gate, up, slope=spec.slope, limit=spec.limit)
        y = experts.project(r, inner, routing, f"{layer}.expert_down")
        return mixture.combine_experts(r.t, y, routing)

    return layers.read_out(r, spec, layers.pre_norm(r, spec, layers.embed_tokens(r), attention, mlp))
