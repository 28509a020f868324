"""Pieces that families share: facts under their usual names, weights by both containers' names, and parts of a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pie_edge.errors import BadCheckpoint
from pie_edge.model import adapters
from pie_edge.model.check import check_counts
from pie_edge.model.spec import GGUF, Facts, Recording, Spec, WeightSpec, brief
from pie_edge.program import trace as ops
from pie_edge.program.ops import Program, Value

Shapes = Mapping[str, tuple[int, ...]]
Names = Mapping[str, tuple[str, str]]
Block = Callable[[int, Value], Value]
"""What a layer adds to the residual: ``(layer, normed rows) → rows``."""

NAMES = {
    "attn_norm": ("attn_norm", "input_layernorm"),
    "q": ("attn_q", "self_attn.q_proj"),
    "k": ("attn_k", "self_attn.k_proj"),
    "v": ("attn_v", "self_attn.v_proj"),
    "o": ("attn_output", "self_attn.o_proj"),
    "q_norm": ("attn_q_norm", "self_attn.q_norm"),
    "k_norm": ("attn_k_norm", "self_attn.k_norm"),
    "mlp_norm": ("ffn_norm", "post_attention_layernorm"),
    "gate": ("ffn_gate", "mlp.gate_proj"),
    "up": ("ffn_up", "mlp.up_proj"),
    "down": ("ffn_down", "mlp.down_proj"),
    "norm": ("output_norm", "norm"),
}
"""A layer's parts, and the last norm, as llama.cpp and as Hugging Face name them. A part's bias is ``<part>_bias``."""
SANDWICH = {
    **NAMES,
    "post_attn_norm": ("post_attention_norm", "post_attention_layernorm"),
    "mlp_norm": ("ffn_norm", "pre_feedforward_layernorm"),
    "post_mlp_norm": ("post_ffw_norm", "post_feedforward_layernorm"),
}
"""Of layers with norms after their blocks as well."""


def dimensions(facts: Facts, *, head_dim: int = 0, prefix: str = "model.") -> dict[str, Any]:
    """The fields of ``Spec`` under their usual keys. ``head_dim`` is the family's own default; 0: hidden / heads."""
    gguf = facts.container == GGUF
    hidden = facts.integer("embedding_length" if gguf else "hidden_size")
    heads = facts.integer("attention.head_count" if gguf else "num_attention_heads")
    usual = head_dim or hidden // max(heads, 1)
    found = {
        "architecture": facts.architecture,
        "container": facts.container,
        "vocabulary": facts.rows("token_embd.weight" if gguf else f"{prefix}embed_tokens.weight"),
        "context": facts.integer("context_length" if gguf else "max_position_embeddings"),
        "hidden": hidden,
        "layers": facts.integer("block_count" if gguf else "num_hidden_layers"),
        "heads": heads,
        "kv_heads": facts.integer("attention.head_count_kv" if gguf else "num_key_value_heads", heads),
        "head_dim": facts.integer("attention.key_length" if gguf else "head_dim", usual),
        "mlp": facts.integer("feed_forward_length" if gguf else "intermediate_size"),
        "eps": facts.number("attention.layer_norm_rms_epsilon") if gguf else facts.number("rms_norm_eps", 1e-6),
        "tied": is_tied(facts, "output.weight" if gguf else head_name(prefix)),
    }
    check_counts(facts, found)
    return found


def expect_activation(facts: Facts, *known: str, key: str = "hidden_act") -> None:
    """A config.json must name one of the activations that the family computes. GGUF files name none."""
    if facts.container != GGUF and (act := facts.text(key, known[0])) not in known:
        raise facts.refuse(f"the activation {act!r}")


def window_of(facts: Facts, default: int = 0) -> int:
    """Tokens that a windowed layer sees; 0: all of them."""
    if facts.container == GGUF:
        return facts.integer("attention.sliding_window", default)
    # An explicit null means none, which is not the default.
    return 0 if facts.metadata.get("sliding_window", default) is None else facts.integer("sliding_window", default)


def windows(facts: Facts, layers: int, window: int, usual: Callable[[int], bool]) -> tuple[int, ...]:
    """Each layer's window, 0 for one that sees the whole context: by the ``layer_types`` that newer configurations list,
    or else where ``usual(layer)`` holds."""
    kinds = facts.metadata.get("layer_types")
    if kinds is None:
        return tuple(window if usual(layer) else 0 for layer in range(layers))
    kinds = listed_kinds(facts, kinds)
    if len(kinds) != layers or set(kinds) - {"full_attention", "sliding_attention"}:
        raise facts.refuse(f"a layer_types of {len(kinds)} entries, {sorted(set(kinds))}, for {layers} layers")
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def listed_kinds(facts: Facts, kinds: Any) -> list[str]:
    """A ``layer_types`` that is there. Raises BadCheckpoint."""
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise BadCheckpoint(
            f"{facts.path}: layer_types should be a list of names, is {brief(kinds)}; fetch the file again"
        )
    return kinds


def is_tied(facts: Facts, head: str) -> bool:
    """Whether the embedding is the head too: where the file has no ``head``. Raises BadCheckpoint if it should be there."""
    if head in facts.tensors:
        return False
    if facts.container != GGUF and facts.metadata.get("tie_word_embeddings") is False:
        raise BadCheckpoint(
            f"{facts.path}: tensor {head} is missing, and the model is not tied (tie_word_embeddings); fetch the file again"
        )
    return True


def attention_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    return {
        "attn_norm": (spec.hidden,),
        "q": (q_width, spec.hidden),
        "k": (kv_width, spec.hidden),
        "v": (kv_width, spec.hidden),
        "o": (spec.hidden, q_width),
    }


def mlp_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    return {
        "mlp_norm": (spec.hidden,),
        "gate": (spec.mlp, spec.hidden),
        "up": (spec.mlp, spec.hidden),
        "down": (spec.hidden, spec.mlp),
    }


def layer_weight(spec: Spec, layer: int, part: str, names: Names) -> str:
    """The file's name of a layer's part. One that ends in a dot is written as it is, without it."""
    stem = part.removesuffix("_bias")
    gguf, hugging_face = names[stem]
    name = f"blk.{layer}.{gguf}" if spec.container == GGUF else f"{spec.decoder_prefix}layers.{layer}.{hugging_face}"
    if name.endswith("."):
        return name[:-1]
    return name + (".bias" if stem != part else ".weight")


def decoder_weights(
    spec: Spec, parts: Shapes | Callable[[int], Shapes], names: Names = NAMES
) -> tuple[WeightSpec, ...]:
    """The embedding, every layer's ``parts``, the last norm, and the head where it isn't the embedding."""
    gguf, table = spec.container == GGUF, (spec.vocabulary, spec.hidden)
    found = [WeightSpec("embed", "token_embd.weight" if gguf else f"{spec.decoder_prefix}embed_tokens.weight", table)]
    for layer in range(spec.layers):
        shapes = parts(layer) if callable(parts) else parts
        found += [
            WeightSpec(f"{layer}.{part}", layer_weight(spec, layer, part, names), shapes[part]) for part in shapes
        ]
    norm = names["norm"][0] if gguf else f"{spec.decoder_prefix}{names['norm'][1]}"
    found.append(WeightSpec("norm", f"{norm}.weight", (spec.hidden,)))
    if not spec.tied:
        found.append(WeightSpec("head", "output.weight" if gguf else head_name(spec.decoder_prefix), table))
    return tuple(found)


def head_name(prefix: str) -> str:
    """Of a Hugging Face checkpoint whose decoder's names begin so: MLX keeps the head beside a decoder inside a model."""
    return f"{prefix.removesuffix('model.') if prefix.endswith('.model.') else ''}lm_head.weight"


def share_rows(listed: Iterable[WeightSpec]) -> tuple[WeightSpec, ...]:
    """The same, with weights of one source as its rows, in their order: how fused tensors are read."""
    ends: dict[str, int] = {}
    found = []
    for weight in listed:
        first = ends.get(weight.source, 0)
        ends[weight.source] = first + weight.shape[0]
        found.append(replace(weight, first=first))
    return tuple(found)


def project(r: Recording, x: Value, name: str) -> Value:
    """x · weightᵀ, plus the bias where the family lists one, and what the rows' adapters add."""
    bias = r.weight(f"{name}_bias") if f"{name}_bias" in r.shapes else None
    return adapters.adapt(r, name, x, ops.linear(r.t, x, r.weight(name), bias))


def project_qkv(r: Recording, layer: int, x: Value) -> tuple[Value, Value, Value]:
    q, k, v = (project(r, x, f"{layer}.{part}") for part in ("q", "k", "v"))
    return q, k, v


def norm_heads(r: Recording, spec: Spec, layer: int, q: Value, k: Value, *, offset: float = 0.0) -> tuple[Value, Value]:
    """Queries and keys, each head of them normalised."""
    norm = {"eps": spec.eps, "offset": offset}
    q = ops.rms_norm(r.t, q, r.weight(f"{layer}.q_norm"), groups=spec.heads, **norm)
    return q, ops.rms_norm(r.t, k, r.weight(f"{layer}.k_norm"), groups=spec.kv_heads, **norm)


def attend(
    r: Recording,
    spec: Spec,
    layer: int,
    qkv: tuple[Value, Value, Value],
    *,
    scale: float | None = None,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Value | None = None,
    gate: Value | None = None,
) -> Value:
    """Keys and values into the cache, attention over it, times sigmoid(``gate``) if there is one, and that projected.
    ``scale`` is 1/√head_dim by default."""
    q, k, v = qkv
    cache = r.kv(layer, spec.kv_heads, spec.head_dim)
    ops.kv_append(r.t, k, v, r.step, cache, heads=spec.kv_heads)
    scale = spec.head_dim**-0.5 if scale is None else scale
    heads: dict[str, Any] = {"heads": spec.heads, "kv_heads": spec.kv_heads}
    y = ops.attention(r.t, q, r.step, cache, **heads, scale=scale, window=window, softcap=softcap, sinks=sinks)
    return project(r, y if gate is None else ops.glu(r.t, gate, y, act="sigmoid"), f"{layer}.o")


def gated_mlp(r: Recording, layer: int, x: Value, *, act: str) -> Value:
    """down(act(gate(x)) · up(x)): GLU variants, arXiv:2002.05202."""
    gate, up = project(r, x, f"{layer}.gate"), project(r, x, f"{layer}.up")
    return project(r, ops.glu(r.t, gate, up, act=act), f"{layer}.down")


def pre_norm(r: Recording, spec: Spec, x: Value, attention: Block, mlp: Block, *, offset: float = 0.0) -> Value:
    """All layers of ``x + attention(norm(x))``, ``x + mlp(norm(x))``, and the last norm."""
    residual, x = x, ops.rms_norm(r.t, x, r.weight("0.attn_norm"), eps=spec.eps, offset=offset)
    for layer in range(spec.layers):
        following = "norm" if layer == spec.layers - 1 else f"{layer + 1}.attn_norm"
        for block, norm in ((attention, f"{layer}.mlp_norm"), (mlp, following)):
            residual, x = ops.add_rms_norm(r.t, block(layer, x), residual, r.weight(norm), eps=spec.eps, offset=offset)
    return x


def embed_tokens(r: Recording, *, scale: float = 1.0) -> Value:
    return ops.embed(r.t, r.weight("embed"), r.step["token_src"], r.tokens(), scale=scale)


def read_out(r: Recording, spec: Spec, x: Value, *, scale: float = 1.0, softcap: float = 0.0) -> Program:
    """The hidden states and the logits of the rows that are read out, into their states: the end of every trace. ``x`` is what
    the last norm gave."""
    if "hidden_rows" in r.step:
        ops.store(r.t, ops.gather_rows(r.t, x, r.step["hidden_rows"]), r.hidden(spec.hidden))
    x = ops.gather_rows(r.t, x, r.step["sample_rows"])
    x = x if scale == 1 else ops.scale(r.t, x, factor=scale)
    logits = ops.linear(r.t, x, r.weight("embed" if spec.tied else "head"))
    ops.store(r.t, ops.softcap(r.t, logits, cap=softcap) if softcap else logits, r.logits(spec.vocabulary))
    return r.t.build()
