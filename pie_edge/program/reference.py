"""What every op means, in plain NumPy and float32: the oracle that kernels are tested against. Written to be read.

``run`` takes the weights as dense float32 arrays, the states as arrays that it changes in place (keys and values in the
paged layout of the op table), and the step's block. Only the true counts of the block's header are computed; rows past
them come back as zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.program import reference_experts as mixture
from pie_edge.program import reference_recurrent as recurrent
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op, Program, Role
from pie_edge.program.step import HEADER_WORDS

Array = NDArray[Any]
NUMPY: Mapping[DType, np.dtype[Any]] = {
    DType.F32: np.dtype("<f4"),
    DType.F16: np.dtype("<f2"),
    DType.U32: np.dtype("<u4"),
    DType.I32: np.dtype("<i4"),
    DType.U8: np.dtype("u1"),
    DType.I8: np.dtype("i1"),
}


_WHOLE = ("mask", "mass_rows", "mass_starts", "mass_layers")
"""Fields whose true lengths the header doesn't have."""


def unpack(program: Program, block: bytes | memoryview) -> dict[str, Array]:
    """The step's fields, cut to the true counts."""
    words = np.frombuffer(block, "<u4")
    rows, sequences, sampled, entries = (int(n) for n in words[:HEADER_WORDS])
    true = {"query_starts": sequences + 1, "page_starts": sequences + 1, "counts": HEADER_WORDS}
    true |= dict.fromkeys(("pages", "page_bits", "fresh_bits"), entries)
    true |= dict.fromkeys(("sample_rows", "draw_keys"), sampled)
    true |= dict.fromkeys(("mask_starts", "state_slots", "state_spans"), sequences)
    found, offset = {}, 0
    for value in program.by_role(Role.INPUT):
        field = words[offset : offset + value.size].view(NUMPY[value.dtype]).reshape(value.shape)
        found[value.name] = field if value.name in _WHOLE else field[: true.get(value.name, rows)]
        offset += value.size
    return found


def run(program: Program, arrays: Mapping[str, Array], block: bytes | memoryview) -> dict[str, Array]:
    """Run a model Program. ``arrays`` holds weights and states by name; returns every value, temporaries included."""
    env: dict[str, Array] = dict(arrays) | unpack(program, block)
    for op in program.ops:
        results = _MEANING[op.kind](op, *(env[name] for name in op.inputs), *_written_states(program, op, env))
        for name, result in zip(op.outputs, results, strict=True):
            env[name] = result
    return env


def _written_states(program: Program, op: Op, env: Mapping[str, Array]) -> tuple[Array, ...]:
    return tuple(env[name] for name in op.outputs if program.values[name].role is Role.STATE)


def _embed(op: Op, table: Array, token_src: Array, tokens: Array) -> tuple[Array, ...]:
    token_src = token_src.astype(np.int64)  # learned positions are looked up too, and those have no sign
    pooled = np.minimum(tokens[np.maximum(-1 - token_src, 0)], len(table) - 1)
    ids = np.where(token_src < 0, pooled, token_src)
    return ((table[ids] * np.float32(op.number("scale"))).astype(np.float32),)


def norm(x: Array, weight: Array, eps: float, offset: float, groups: int) -> Array:
    parts = x.reshape(len(x), groups, -1)
    root = np.sqrt(np.mean(parts * parts, axis=-1, keepdims=True) + np.float32(eps))
    return np.asarray((parts / root * (weight + np.float32(offset))).reshape(x.shape), np.float32)


def _rms_norm(op: Op, x: Array, weight: Array) -> tuple[Array, ...]:
    return (norm(x, weight, op.number("eps"), op.number("offset"), op.integer("groups")),)


def _layer_norm(op: Op, x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, ...]:
    centred = x - x.mean(axis=-1, keepdims=True)
    root = np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + np.float32(op.number("eps")))
    y = np.asarray(centred / root * weight, np.float32)
    return (y if bias is None else y + bias,)


def _add_rms_norm(op: Op, x: Array, residual: Array, weight: Array) -> tuple[Array, ...]:
    total = x + residual
    return total, norm(total, weight, op.number("eps"), op.number("offset"), 1)


def _linear(op: Op, x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, ...]:
    y = x @ weight.T
    return (y if bias is None else y + bias,)


def _adapter_linear(op: Op, x: Array, matrices: Array, adapters: Array, base: Array | None = None) -> tuple[Array, ...]:
    y = np.zeros((len(x), matrices.shape[1]), np.float32) if base is None else base.copy()
    for t, number in enumerate(adapters):
        if number:
            y[t] += matrices[number - 1] @ x[t]
    return (y,)


def _rope(op: Op, x: Array, positions: Array, factors: Array | None = None) -> tuple[Array, ...]:
    rotary = op.integer("rotary")
    half = rotary // 2
    frequencies = op.number("base") ** (-2.0 * np.arange(half) / rotary)
    if factors is not None:
        frequencies = frequencies / factors
    angles = positions[:, None, None] * op.number("scale") * frequencies  # [T, 1, half], in float64
    cosine, sine = ((op.number("magnitude") * f(angles)).astype(np.float32) for f in (np.cos, np.sin))
    heads = x.reshape(len(x), op.integer("heads"), -1)
    neox = op.attribute("style") == "neox"
    first, second = (slice(0, half), slice(half, rotary)) if neox else (slice(0, rotary, 2), slice(1, rotary, 2))
    y = heads.copy()
    y[..., first] = heads[..., first] * cosine - heads[..., second] * sine
    y[..., second] = heads[..., first] * sine + heads[..., second] * cosine
    return (y.reshape(x.shape),)


def _kv_append(
    op: Op, k: Array, v: Array, positions: Array, write_slots: Array, keys: Array, values: Array, key_positions: Array
) -> tuple[Array, ...]:
    heads, vector = op.integer("heads"), keys.shape[-1]
    pages, slots = np.divmod(write_slots, op.integer("page_size"))
    # [T, G, D/v, v]: a vector of v values stays together, so that neighbouring slots are neighbouring addresses.
    keys[pages, :, :, slots, :] = k.reshape(len(k), heads, -1, vector)
    values[pages, :, slots, :] = v.reshape(len(v), heads, -1)
    key_positions[pages, slots] = positions
    return keys, values, key_positions


def visible(
    window: int, bits: Array, fresh: Array, index: Array, position: Array, key_positions: Array, page_size: int
) -> Array:
    """[rows, keys] of one sequence: the visibility rule of the op table."""
    slots = np.arange(page_size, dtype=np.uint32)
    written = ((bits[:, None] >> slots) & 1).astype(bool).reshape(-1)
    is_fresh = ((fresh[:, None] >> slots) & 1).astype(bool).reshape(-1)
    causal = ~is_fresh[None, :] | (np.arange(len(written))[None, :] <= index[:, None])
    seen = written[None, :] & causal
    if window:
        seen &= position[:, None].astype(np.int64) - key_positions[None, :].astype(np.int64) < window
    return np.asarray(seen, bool)


def allowed(words: Array, rows: int, entries: int, page_size: int) -> Array:
    """[rows, keys] of one sequence's custom mask: a word for each row and page entry in turn."""
    bits = words[: rows * entries].reshape(rows, entries, 1) >> np.arange(page_size, dtype=np.uint32)
    return np.asarray((bits & 1).astype(bool).reshape(rows, -1))


def _sequence(s: int, step: Mapping[str, Array]) -> tuple[slice, slice]:
    """The rows and the page entries of sequence ``s``."""
    rows, entries = step["query_starts"], step["page_starts"]
    return slice(rows[s], rows[s + 1]), slice(entries[s], entries[s + 1])


def _weights(op: Op, s: int, q: Array, keys: Array, step: Mapping[str, Array]) -> Array:
    """[rows, G, H/G, keys] of sequence ``s``: the softmax over what each of its rows sees, zeros for a row that sees nothing."""
    heads, kv_heads, cap = op.integer("heads"), op.integer("kv_heads"), op.number("softcap")
    rows, entries = _sequence(s, step)
    queries, table = q[rows].reshape(-1, kv_heads, heads // kv_heads, q.shape[1] // heads), step["pages"][entries]
    # K pages [n,G,D/v,P,v] -> [G, n·P, D]
    k = keys[table].transpose(1, 0, 3, 2, 4).reshape(kv_heads, -1, queries.shape[-1]).astype(np.float32)
    seen = visible(
        op.integer("window"),
        step["page_bits"][entries],
        step["fresh_bits"][entries],
        step["row_index"][rows],
        step["positions"][rows],
        step["key_positions"][table].reshape(-1),
        op.integer("page_size"),
    )
    if "mask" in step and step["mask_starts"][s]:
        seen &= allowed(step["mask"][step["mask_starts"][s] - 1 :], len(seen), len(table), op.integer("page_size"))
    scores = np.einsum("tghd,gkd->tghk", queries, k) * np.float32(op.number("scale"))
    if cap > 0:
        scores = np.float32(cap) * np.tanh(scores / np.float32(cap))
    scores = np.where(seen[:, None, None, :], scores, -np.inf)
    peak = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), np.float32(-1e30))
    sinks = step["sinks"].reshape(kv_heads, -1, 1) if "sinks" in step else np.float32(-np.inf)
    peak = np.maximum(peak, sinks)
    weights = np.exp(scores - peak)
    total = weights.sum(axis=-1, keepdims=True) + np.exp(sinks - peak)
    return np.asarray(weights / np.maximum(total, np.float32(1e-30)))


def _attention(op: Op, q: Array, keys: Array, values: Array, *fields: Array) -> tuple[Array, ...]:
    step = _named(op, ("q", "K", "V"), fields)
    y = np.zeros_like(q)
    for s in range(len(step["query_starts"]) - 1):
        rows, entries = _sequence(s, step)
        weights = _weights(op, s, q, keys, step)
        # V pages [n,G,P,D] -> [G, n·P, D]
        v = values[step["pages"][entries]].transpose(1, 0, 2, 3)
        v = v.reshape(op.integer("kv_heads"), -1, v.shape[-1]).astype(np.float32)
        y[rows] = np.einsum("tghk,gkd->tghd", weights, v).reshape(-1, q.shape[1])
    return (y,)


def _attention_mass(op: Op, q: Array, keys: Array, *fields: Array) -> tuple[Array, ...]:
    step, layer = _named(op, ("q", "K"), fields), op.integer("layer")
    starts = step["mass_starts"]
    y = np.zeros((1, int(starts.max())), np.float32)
    for i, row in enumerate(step["mass_rows"]):
        chosen = np.unpackbits(step["mass_layers"][i].view("u1"), bitorder="little")
        if starts[i + 1] <= starts[i] or not chosen[layer]:
            continue
        s = int(np.searchsorted(step["query_starts"], row, side="right")) - 1
        weights = _weights(op, s, q, keys, step)[row - step["query_starts"][s]]
        by_page = weights.reshape(op.integer("heads"), -1, op.integer("page_size")).sum(axis=-1)
        y[0, starts[i] : starts[i + 1]] = by_page.mean(axis=0) / chosen.sum(dtype=np.float32)
    return (y,)


def _named(op: Op, before: tuple[str, ...], arrays: Sequence[Array]) -> dict[str, Array]:
    """The op's inputs after those, by their names in the op table."""
    return dict(zip(list(op.named)[len(before) :], arrays, strict=True))


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1.0 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2.0))), np.float32)


def _gelu_tanh(x: Array) -> Array:
    inner = np.float32(math.sqrt(2.0 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.asarray(np.float32(0.5) * x * (np.float32(1.0) + np.tanh(inner)), np.float32)


def _silu(x: Array) -> Array:
    return np.asarray(x / (1.0 + np.exp(-x.astype(np.float64))), np.float32)


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "silu": _silu,
    "gelu_tanh": _gelu_tanh,
    "gelu": _gelu,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "sigmoid": lambda x: np.asarray(1.0 / (1.0 + np.exp(-x.astype(np.float64))), np.float32),
}


def _glu(op: Op, gate: Array, up: Array) -> tuple[Array, ...]:
    return (ACTIVATIONS[str(op.attribute("act"))](gate) * up,)


def _activation(op: Op, x: Array) -> tuple[Array, ...]:
    return (ACTIVATIONS[str(op.attribute("act"))](x),)


def _scale(op: Op, x: Array) -> tuple[Array, ...]:
    return (np.float32(op.number("factor")) * x,)


def _add(op: Op, x: Array, y: Array) -> tuple[Array, ...]:
    return (x + y,)


def _mul(op: Op, x: Array, y: Array) -> tuple[Array, ...]:
    return (x * y,)


def _short_conv(op: Op, *arrays: Array) -> tuple[Array, ...]:
    act = str(op.attribute("act"))
    return recurrent.short_conv(ACTIVATIONS.get(act, lambda x: x), *arrays)


def _softcap(op: Op, x: Array) -> tuple[Array, ...]:
    cap = np.float32(op.number("cap"))
    return (cap * np.tanh(x / cap),)


def _gather_rows(op: Op, x: Array, rows: Array) -> tuple[Array, ...]:
    return (x[rows],)


def _copy_pages(op: Op, counts: Array, sources: Array, targets: Array, state: Array) -> tuple[Array, ...]:
    count = int(counts[0])
    state[targets[:count]] = state[sources[:count]]
    return (state,)


def _copy_slots(op: Op, counts: Array, sources: Array, targets: Array, state: Array) -> tuple[Array, ...]:
    count, size = int(counts[0]), op.integer("page_size")
    by_slot = np.moveaxis(state, op.integer("axis"), 1)
    by_slot[targets[:count] // size, targets[:count] % size] = by_slot[sources[:count] // size, sources[:count] % size]
    return (state,)


def _store(op: Op, x: Array, state: Array) -> tuple[Array, ...]:
    state[: len(x)] = x
    return (state,)


_MEANING: Mapping[str, Callable[..., tuple[Array, ...]]] = {
    "embed": _embed,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "add_rms_norm": _add_rms_norm,
    "linear": _linear,
    "adapter_linear": _adapter_linear,
    "rope": _rope,
    "kv_append": _kv_append,
    "attention": _attention,
    "attention_mass": _attention_mass,
    "short_conv": _short_conv,
    "tail_append": recurrent.tail_append,
    "gated_delta": recurrent.gated_delta,
    "route": mixture.route,
    "sort_by_expert": mixture.sort_by_expert,
    "expert_linear": mixture.expert_linear,
    "combine_experts": mixture.combine_experts,
    "clamped_glu": mixture.clamped_glu,
    "glu": _glu,
    "activation": _activation,
    "add": _add,
    "mul": _mul,
    "scale": _scale,
    "softcap": _softcap,
    "gather_rows": _gather_rows,
    "copy_pages": _copy_pages,
    "copy_slots": _copy_slots,
    "store": _store,
}
