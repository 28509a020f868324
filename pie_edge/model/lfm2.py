"""The lfm2 family: short convolutions between two gates, and attention in some layers.

LFM2 technical report, arXiv:2511.23404. GGUF files say which layers attend by their counts of key-value heads: a layer with a
convolution has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pie_edge.errors import BadCheckpoint
from pie_edge.model import layers
from pie_edge.model.recurrent import HybridSpec, attending
from pie_edge.model.rope import Rope, read_rope
from pie_edge.model.spec import GGUF, Cache, Facts, Recording, WeightSpec, begin
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket
from pie_edge.program.trace_recurrent import short_conv

_IN = ("shortconv.in_proj", "conv.in_proj")
_NAMES = layers.NAMES | {
    "attn_norm": ("attn_norm", "operator_norm"),
    "o": ("attn_output", "self_attn.out_proj"),
    "q_norm": ("attn_q_norm", "self_attn.q_layernorm"),
    "k_norm": ("attn_k_norm", "self_attn.k_layernorm"),
    # The input's gate, the output's gate, and what is convolved are one tensor in the file.
    "before": _IN,
    "after": _IN,
    "x": _IN,
    "conv": ("shortconv.conv", "conv.conv"),
    "conv_out": ("shortconv.out_proj", "conv.out_proj"),
    "mlp_norm": ("ffn_norm", "ffn_norm"),
    "gate": ("ffn_gate", "feed_forward.w1"),
    "up": ("ffn_up", "feed_forward.w3"),
    "down": ("ffn_down", "feed_forward.w2"),
    "norm": ("token_embd_norm", "embedding_norm"),
}


@dataclass(frozen=True)
class Lfm2Spec(HybridSpec):
    rope: Rope
    kernel: int
    """Tokens that a convolution reaches over."""
    biased: bool
    """Whether convolutions and their projections have biases."""


def read(facts: Facts) -> Lfm2Spec:
    gguf = facts.container == GGUF
    facts, attended = _from_gguf(facts) if gguf else _from_config(facts)
    found = layers.dimensions(facts)
    rope, context = read_rope(facts, found["head_dim"], found["context"], base=1e6)
    if layers.window_of(facts):
        raise facts.refuse("a sliding window")
    return Lfm2Spec(
        **found | {"context": context},
        attends=attending(facts, found["layers"], "conv", lambda layer: layer in attended),
        rope=rope,
        kernel=facts.integer("shortconv.l_cache" if gguf else "conv_L_cache", None if gguf else 3),
        biased=facts.metadata.get("conv_bias") is True,
    )


def _from_gguf(facts: Facts) -> tuple[Facts, Sequence[int]]:
    """The facts with one count of key-value heads for all layers that attend, and which those are."""
    key = f"{facts.architecture}.attention.head_count_kv"
    counts = facts.metadata.get(key)
    if not isinstance(counts, Sequence) or len(set(counts) - {0}) != 1:
        raise BadCheckpoint(f"{facts.path}: {key} should be a count for each layer, is {counts!r}; convert it again")
    (count,) = set(counts) - {0}
    attended = [layer for layer, heads in enumerate(counts) if heads]
    return replace(facts, metadata={**facts.metadata, key: count}), attended


def _from_config(facts: Facts) -> tuple[Facts, Sequence[int]]:
    """The facts under their usual names, and which layers attend where ``layer_types`` doesn't say it."""
    count, attended = facts.integer("num_hidden_layers"), facts.metadata.get("full_attn_idxs")
    width = facts.integer("block_ff_dim", facts.integer("intermediate_size", 12288))
    if facts.metadata.get("block_auto_adjust_ff_dim", True):
        # Two thirds, so that a gated MLP has as many weights as a plain one.
        multiple = max(facts.integer("block_multiple_of", 256), 1)
        width = int(facts.number("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
        width = -(-width // multiple) * multiple
    usual = {"rms_norm_eps": facts.number("norm_eps", 1e-5), "intermediate_size": width}
    return replace(facts, metadata={**facts.metadata, **usual}), range(count) if attended is None else attended


def weights(spec: Lfm2Spec) -> tuple[WeightSpec, ...]:
    hidden, mlp = spec.hidden, layers.mlp_shapes(spec)
    square = dict.fromkeys(("before", "after", "x", "conv_out"), (hidden, hidden))
    convolution = {"attn_norm": (hidden,), **square, "conv": (hidden, spec.kernel), **mlp}
    if spec.biased:
        convolution |= {f"{part}_bias": (hidden,) for part in (*square, "conv")}
    attention = layers.attention_shapes(spec) | dict.fromkeys(("q_norm", "k_norm"), (spec.head_dim,)) | mlp
    listed = layers.decoder_weights(spec, lambda n: attention if spec.attends[n] else convolution, _NAMES)
    return layers.share_rows(listed) + spec.rope.weights()


def trace(spec: Lfm2Spec, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program:
    r = begin(spec, bucket, cache, weights(spec), encodings)

    def mix(layer: int, x: Value) -> Value:
        if not spec.attends[layer]:
            return _convolution(r, spec, layer, x)
        q, k, v = layers.project_qkv(r, layer, x)
        q, k = layers.norm_heads(r, spec, layer, q, k)
        q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
        return layers.attend(r, spec, layer, (q, k, v))

    def mlp(layer: int, x: Value) -> Value:
        return layers.gated_mlp(r, layer, x, act="silu")

    return layers.read_out(r, spec, layers.pre_norm(r, spec, layers.embed_tokens(r), mix, mlp))


def _convolution(r: Recording, spec: Lfm2Spec, layer: int, x: Value) -> Value:
    before, after, x = (layers.project(r, x, f"{layer}.{part}") for part in ("before", "after", "x"))
    tail, bias = r.tail(f"conv_tail.{layer}", spec.hidden), r.weight(f"{layer}.conv_bias") if spec.biased else None
    x = short_conv(r.t, ops.mul(r.t, before, x), r.weight(f"{layer}.conv"), r.step, tail, act="none", bias=bias)
    return layers.project(r, ops.mul(r.t, after, x), f"{layer}.conv_out")
