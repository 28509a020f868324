"""What hybrid families share: which layers attend, and Qwen's gated delta net and gated attention.

Gated Delta Networks, arXiv:2412.06464; as used since Qwen3-Next, whose output gates on attention are of arXiv:2505.06708.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pie_edge.errors import BadCheckpoint
from pie_edge.model import layers
from pie_edge.model.rope import Rope
from pie_edge.model.spec import GGUF, Facts, Recording, Spec, WeightSpec
from pie_edge.program import trace as ops
from pie_edge.program.ops import Program, Value
from pie_edge.program.trace_recurrent import Delta, gated_delta, short_conv

NAMES = layers.NAMES | {
    "mlp_norm": ("post_attention_norm", "post_attention_layernorm"),
    "q_gate": layers.NAMES["q"],
    "qkv": ("attn_qkv", "linear_attn.in_proj_qkv"),
    "z": ("attn_gate", "linear_attn.in_proj_z"),
    "a": ("ssm_alpha", "linear_attn.in_proj_a"),
    "b": ("ssm_beta", "linear_attn.in_proj_b"),
    "conv": ("ssm_conv1d", "linear_attn.conv1d"),
    "decay": ("ssm_a.", "linear_attn.A_log."),
    "dt": ("ssm_dt", "linear_attn.dt_bias."),
    "delta_norm": ("ssm_norm", "linear_attn.norm"),
    "delta_out": ("ssm_out", "linear_attn.out_proj"),
}
INTERVAL = 4
"""Every fourth layer attends unless the checkpoint says otherwise."""
_LARGEST = 1 << 20
"""Of any count that shapes are made of: a damaged one must not become a list of billions."""
_PREFIXES = ("model.language_model.", "language_model.model.", "model.")
_GGUF = {
    "kernel": "ssm.conv_kernel",
    "key_dim": "ssm.state_size",
    "key_heads": "ssm.group_count",
    "value_heads": "ssm.time_step_rank",
    "values": "ssm.inner_size",
}
_CONFIG = {
    "kernel": "linear_conv_kernel_dim",
    "key_dim": "linear_key_head_dim",
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "value_dim": "linear_value_head_dim",
}


@dataclass(frozen=True)
class HybridSpec(Spec):
    attends: tuple[bool, ...]
    """Whether a layer has keys and values; the others have recurrent state."""

    @property
    def attention_layers(self) -> int:
        return sum(self.attends)

    @property
    def recurrent(self) -> bool:
        return True


@dataclass(frozen=True)
class DeltaSpec(HybridSpec):
    """Of Qwen's hybrids."""

    rope: Rope
    kernel: int
    """Tokens that the convolution reaches over."""
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    tiled: bool
    """Value heads that share a key head lie ``key_heads`` apart, not side by side."""
    shifted: bool
    """Weights of norms have 1 added already."""
    decoder: str
    """``decoder_prefix``."""
    ignored: tuple[str, ...]
    """``unread``."""

    @property
    def decoder_prefix(self) -> str:
        return self.decoder

    @property
    def unread(self) -> tuple[str, ...]:
        return self.ignored

    @property
    def reordered(self) -> tuple[str, ...]:
        return ("qkv", "z", "a", "b", "delta_out") if self.tiled else ()

    @property
    def keys(self) -> int:
        """Columns of queries, and of keys."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def norm_offset(self) -> float:
        return 0.0 if self.shifted else 1.0


def attending(facts: Facts, count: int, other: str, usual: Callable[[int], bool]) -> tuple[bool, ...]:
    """Whether each layer attends, by ``layer_types`` (whose other kind is ``other``) or else where ``usual(layer)`` holds.

    Raises Unsupported for other kinds, and where no layer attends.
    """
    kinds = facts.metadata.get("layer_types")
    if kinds is None:
        kinds = ["full_attention" if usual(layer) else other for layer in range(count)]
    kinds = layers.listed_kinds(facts, kinds)
    if len(kinds) != count or set(kinds) - {"full_attention", other} or "full_attention" not in kinds:
        found = sorted(set(map(str, kinds)))
        raise facts.refuse(f"a layer_types of {len(kinds)} entries, {found}, for {count} layers")
    return tuple(kind == "full_attention" for kind in kinds)


def delta_facts(facts: Facts, count: int, rope: Rope) -> dict[str, Any]:
    """The fields of ``DeltaSpec`` beside those of every Spec. Raises BadCheckpoint for counts that don't fit each other."""
    gguf = facts.container == GGUF
    found = {fact: facts.integer(key) for fact, key in (_GGUF if gguf else _CONFIG).items()}
    if not all(0 < value <= _LARGEST for value in found.values()) or found["value_heads"] % found["key_heads"]:
        raise BadCheckpoint(f"{facts.path}: the {facts.architecture} model states {found}, which don't fit each other")
    if gguf:
        found["value_dim"] = found.pop("values") // found["value_heads"]
    attends = attending(facts, count, "linear_attention", _usual(facts, count))
    prefix = prefix_of(facts)
    # MLX turns convolutions round, [columns, width, 1], and adds the 1 of norms when it does.
    convolution = next(
        (shape for name, shape in facts.tensors.items() if name.endswith("linear_attn.conv1d.weight")), ()
    )
    turned = len(convolution) == 3 and convolution[2] == 1 < found["kernel"]
    return found | {
        "attends": attends,
        "rope": rope,
        "shifted": gguf or turned,
        "decoder": prefix,
        "ignored": _ahead(facts, count) if gguf else ("mtp.", "model.mtp.", "model.visual.", "vision_tower."),
    }


def _ahead(facts: Facts, count: int) -> tuple[str, ...]:
    """Layers behind the model's own that a GGUF says predict further tokens."""
    stated = min(facts.integer("nextn_predict_layers", 0), len(facts.tensors))
    return tuple(f"blk.{count + n}." for n in range(stated))


def _usual(facts: Facts, count: int) -> Callable[[int], bool]:
    marks = facts.metadata.get(f"{facts.architecture}.attention.recurrent_layers")
    if facts.container == GGUF and isinstance(marks, list) and len(marks) >= count:
        return lambda layer: not marks[layer]
    interval = max(facts.integer("full_attention_interval", INTERVAL), 1)
    return lambda layer: (layer + 1) % interval == 0


def prefix_of(facts: Facts) -> str:
    """Of a model inside one that sees, or by itself."""
    return next((prefix for prefix in _PREFIXES if f"{prefix}embed_tokens.weight" in facts.tensors), _PREFIXES[-1])


def with_partial_rotary(facts: Facts) -> Facts:
    """Rope turns a quarter of a head unless the configuration says otherwise."""
    return replace(facts, metadata={"partial_rotary_factor": 0.25, **facts.metadata})


def attention_shapes(spec: DeltaSpec) -> dict[str, tuple[int, ...]]:
    found = layers.attention_shapes(spec)
    return found | {"q_gate": found["q"], "q_norm": (spec.head_dim,), "k_norm": (spec.head_dim,)}


def delta_shapes(spec: DeltaSpec) -> dict[str, tuple[int, ...]]:
    hidden, heads, columns = spec.hidden, spec.value_heads, 2 * spec.keys + spec.values
    return {
        "attn_norm": (hidden,),
        "qkv": (columns, hidden),
        "z": (spec.values, hidden),
        "a": (heads, hidden),
        "b": (heads, hidden),
        "conv": (columns, spec.kernel),
        "decay": (heads,),
        "dt_bias": (heads,),
        "delta_norm": (spec.value_dim,),
        "delta_out": (hidden, spec.values),
    }


def interleaved(first: int, size: int, stride: int, count: int) -> tuple[tuple[int, int], ...]:
    """Runs of ``size`` rows, ``stride`` from one's first row to the next one's."""
    return tuple((first + index * stride, size) for index in range(count))


def with_gates(spec: DeltaSpec, listed: tuple[WeightSpec, ...]) -> tuple[WeightSpec, ...]:
    """Each head's query is followed by its gate in the file's tensor: here they are weights of their own."""
    width, found = spec.head_dim, []
    for weight in listed:
        part = weight.name.partition(".")[2]
        first = {"q": 0, "q_gate": width}.get(part)
        runs = () if first is None else interleaved(first, width, 2 * width, spec.heads)
        found.append(replace(weight, runs=runs) if runs else weight)
    return tuple(found)


def trace(r: Recording, spec: DeltaSpec, mlp: layers.Block) -> Program:
    """All of a model whose layers' second halves are ``mlp``."""

    def mix(layer: int, x: Value) -> Value:
        return _attention(r, spec, layer, x) if spec.attends[layer] else _delta(r, spec, layer, x)

    x = layers.embed_tokens(r)
    return layers.read_out(r, spec, layers.pre_norm(r, spec, x, mix, mlp, offset=spec.norm_offset))


def _attention(r: Recording, spec: DeltaSpec, layer: int, x: Value) -> Value:
    q, k, v = layers.project_qkv(r, layer, x)
    gate = layers.project(r, x, f"{layer}.q_gate")
    q, k = layers.norm_heads(r, spec, layer, q, k, offset=spec.norm_offset)
    q, k = spec.rope.turn(r, q, spec.heads), spec.rope.turn(r, k, spec.kv_heads)
    return layers.attend(r, spec, layer, (q, k, v), gate=gate)


def _delta(r: Recording, spec: DeltaSpec, layer: int, x: Value) -> Value:
    heads, columns = spec.value_heads, 2 * spec.keys + spec.values
    qkv, z, a, b = (layers.project(r, x, f"{layer}.{part}") for part in ("qkv", "z", "a", "b"))
    conv = r.weight(f"{layer}.conv")
    qkv = short_conv(r.t, qkv, conv, r.step, r.tail(f"conv_tail.{layer}", columns), act="silu")
    delta = Delta(
        decay=r.weight(f"{layer}.decay"),
        dt_bias=r.weight(f"{layer}.dt_bias"),
        state=r.slotted(f"delta.{layer}", heads, spec.key_dim, spec.value_dim),
        key_heads=spec.key_heads,
        # llama.cpp's converter stores −exp of it.
        log_decay=spec.container != GGUF,
        tiled=spec.tiled,
        qkv_tail=r.tail(f"qkv_tail.{layer}", columns),
        a_tail=r.tail(f"a_tail.{layer}", heads),
        b_tail=r.tail(f"b_tail.{layer}", heads),
    )
    y = gated_delta(r.t, qkv, a, b, r.step, delta)
    y = ops.rms_norm(r.t, y, r.weight(f"{layer}.delta_norm"), eps=spec.eps, groups=heads)
    return layers.project(r, ops.glu(r.t, z, y, act="silu"), f"{layer}.delta_out")
