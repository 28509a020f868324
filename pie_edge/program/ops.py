"""Values, ops and the op table: what a Program is made of, and what each kind of op means.

A Program is an ordered list of ``Op(kind, inputs, outputs, attributes)`` over named Values. It is plain data: it hashes,
prints, runs in NumPy (``reference.py``) and ships to JavaScript.

Shapes below use ``T`` rows of a step, ``R`` sampled rows, ``S`` sequences, ``N`` page entries, ``P`` tokens a page,
``H``/``G`` query/key-value heads, ``D`` values a head, ``C`` columns, ``W`` a convolution's width. ``v`` is 16 bytes' worth of
values. A recurrent state has a *slot* a context; the inputs of the last ``L`` tokens are kept beside it, its *tail*: those of
token n of the context in row n mod L. State ops (``kv_append``, ``store``, ``tail_append``, …) name the state they write as their
output; no other op's output aliases an input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from pie_edge.program.encodings import Dense, DType, Encoding

Attribute = int | float | str | bool


class Role(StrEnum):
    WEIGHT = "weight"
    STATE = "state"
    INPUT = "input"
    TEMP = "temp"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Value:
    """A named array. A weight has an encoding; everything else is dense, row-major, of ``dtype``."""

    name: str
    role: Role
    dtype: DType
    shape: tuple[int, ...]
    encoding: Encoding | None = None

    @property
    def size(self) -> int:
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.nbytes

    def __str__(self) -> str:
        kind = self.dtype if self.encoding is None or isinstance(self.encoding, Dense) else self.encoding
        return f"{self.role} {self.name}: {kind}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Op:
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()

    def attribute(self, name: str) -> Attribute:
        for key, value in self.attributes:
            if key == name:
                return value
        raise KeyError(f"{self.kind} has no attribute {name}")

    def integer(self, name: str) -> int:
        return int(self.attribute(name))

    def number(self, name: str) -> float:
        return float(self.attribute(name))

    @property
    def named(self) -> dict[str, str]:
        """Its inputs by their names in the op table. An optional input that shares its name with an attribute is there where
        that attribute is true."""
        kind, given = KINDS[self.kind], dict(self.attributes)
        names = (*kind.inputs, *(name for name in kind.optional if given.get(name, True)))
        return dict(zip(names, self.inputs, strict=False))

    def __str__(self) -> str:
        attributes = "".join(f" {key}={value}" for key, value in self.attributes)
        return f"{', '.join(self.outputs)} = {self.kind}({', '.join(self.inputs)}){attributes}"


@dataclass(frozen=True)
class Program:
    """An ordered list of ops over values. ``str(program)`` is its golden text and ``digest`` hashes that."""

    name: str
    values: Mapping[str, Value]
    ops: tuple[Op, ...]

    def by_role(self, role: Role) -> tuple[Value, ...]:
        return tuple(value for value in self.values.values() if value.role is role)

    def __str__(self) -> str:
        lines = [f"program {self.name}"]
        lines += [f"  {value}" for value in self.values.values()]
        lines += [f"  {op}" for op in self.ops]
        return "\n".join(lines) + "\n"

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(str(self).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the op table. ``fused`` kinds have a decomposition in ``expand.py``; ``optional`` inputs come last."""

    name: str
    inputs: tuple[str, ...]
    attributes: tuple[str, ...]
    meaning: str
    optional: tuple[str, ...] = ()
    fused: bool = False
    slotted: bool = False
    """The states it writes have a slot a context on their first axis, not a page."""


_TABLE = (
    Kind(
        "embed",
        ("table", "token_src", "tokens"),
        ("scale",),
        "y[T,·] = scale · table[id]; id = token_src[t], or tokens[−1−token_src[t]] where it is negative. For an id from the "
        "pool that the table hasn't y[t] may be anything",
    ),
    Kind(
        "rms_norm",
        ("x", "weight"),
        ("eps", "offset", "groups"),
        "each of `groups` equal parts of a row, divided by its root mean square (eps inside), times (weight + offset)",
    ),
    Kind(
        "layer_norm",
        ("x", "weight"),
        ("eps",),
        "a row less its mean, divided by its standard deviation (eps inside the root), times weight (+ bias)",
        optional=("bias",),
    ),
    Kind(
        "add_rms_norm",
        ("x", "residual", "weight"),
        ("eps", "offset"),
        "sum = x + residual; y = rms_norm(sum): outputs (sum, y)",
        fused=True,
    ),
    Kind("linear", ("x", "weight"), (), "y[T,rows] = x[T,columns] · weightᵀ (+ bias[rows])", optional=("bias",)),
    Kind(
        "adapter_linear",
        ("x", "matrices", "adapters"),
        (),
        "y[T,rows] = matrices[n−1] · x[t] of a state [N,rows,columns], n = adapters[t] (+ base[T,rows]); nothing where n = 0",
        optional=("base",),
    ),
    Kind(
        "rope",
        ("x", "positions"),
        ("heads", "rotary", "base", "scale", "style", "magnitude"),
        "turn the first `rotary` of each head's values by position·scale·base^(−2i/rotary), and multiply those by `magnitude`: "
        "style neox pairs (i, i+rotary/2), interleaved pairs (2i, 2i+1); `factors` divides each frequency",
        optional=("factors",),
    ),
    Kind(
        "kv_append",
        ("k", "v", "positions", "write_slots"),
        ("heads", "page_size"),
        "write row t's keys and values into slot write_slots[t] = page·P + slot of the layer's K [pages,G,D/v,P,v] and "
        "V [pages,G,P,D], and its position into key_positions[pages,P]: outputs (K, V, key_positions)",
    ),
    Kind(
        "attention",
        (
            *("q", "K", "V", "key_positions", "positions", "row_index", "query_starts", "page_starts"),
            *("pages", "page_bits", "fresh_bits"),
        ),
        ("heads", "kv_heads", "scale", "window", "softcap", "page_size", "sinks"),
        "softmax(scale·q·k)·v over a sequence's visible keys. Key j of its page table is visible to row t if its bit is set in "
        "page_bits, and it is not in fresh_bits or j ≤ row_index[t], and window = 0 or "
        "positions[t] − key_positions[j] < window, and the row's word of a custom mask (step.py) allows it; scores pass "
        "softcap·tanh(score/softcap) where softcap > 0. With the attribute `sinks` there is an input `sinks`[H]: a score "
        "that each head gives to a key without a value, which takes its share of the softmax and adds nothing",
        optional=("sinks", "mask_starts", "mask"),
    ),
    Kind(
        "attention_mass",
        (
            *("q", "K", "key_positions", "positions", "row_index", "query_starts", "page_starts"),
            *("pages", "page_bits", "fresh_bits", "mass_rows", "mass_starts", "mass_layers"),
        ),
        ("heads", "kv_heads", "scale", "window", "softcap", "page_size", "sinks", "layer"),
        "how the attention of observed rows is spread over pages: y[1,W], of row o = mass_rows[i] and its sequence's e-th page "
        "entry at mass_starts[i] + e. It is the sum of the weights that `attention` gives to that page's keys, as a mean over "
        "heads and over the layers that the row chose: 0 unless `layer` is one of them (its bit of mass_layers[i]), else "
        "divided by their number. Masses past mass_starts' last are anything",
        optional=("sinks", "mask_starts", "mask"),
    ),
    Kind(
        "short_conv",
        ("x", "weight", "tail", "query_starts", "state_slots", "state_spans"),
        ("act",),
        "a causal convolution of each column over its sequence: y[t,c] = act(Σ_j weight[c,W−1−j] · x(n−j, c) (+ bias[c])), n "
        "being t's place in its context, and x(m) the step's row of place m or else tail[home, m mod L], 0 for m < 0. act is "
        "none, or one of glu's",
        optional=("bias",),
    ),
    Kind(
        "tail_append",
        ("x", "query_starts", "state_slots", "state_spans"),
        (),
        "write the last L rows of each sequence over their places of tail[home]: output (tail [slots,L,C])",
        slotted=True,
    ),
    Kind(
        "gated_delta",
        (
            *("qkv", "a", "b", "decay", "dt_bias", "qkv_tail", "a_tail", "b_tail"),
            *("query_starts", "state_slots", "state_spans"),
        ),
        ("key_heads", "value_heads", "key_dim", "tiled", "log_decay", "eps"),
        "the gated delta rule: for each token and value head h, with q and k of key head h // (value_heads / key_heads), or "
        "h mod key_heads where tiled, both divided by their lengths (eps inside the root), q by √key_dim too, "
        "S ← exp(rate · softplus(a + dt_bias)) · S; S ← S + k ⊗ (sigmoid(b) · (v − kᵀS)); y = qᵀS. rate is decay, or "
        "−exp(decay) with log_decay. S starts as state[source], zeros for slot 0; the `replayed` tokens before the step's rows "
        "run first, from the tails of home. S goes to state[fold] after `folded` tokens of all those, unless fold is 0, and "
        "after the last to state[home]: outputs (y [T,value_heads·v], "
        "state [slots,value_heads,key_dim,v])",
        slotted=True,
    ),
    Kind(
        "route",
        ("logits",),
        ("chosen", "normalised", "scale"),
        "the `chosen` experts of the largest logits of each row, in falling order, of equal ones the lower first, and what each "
        "weighs: its share of the softmax over all of them, or with `normalised` over the chosen, times `scale`: outputs "
        "(experts [T,K] of u32, weights [T,K])",
    ),
    Kind(
        "sort_by_expert",
        ("experts",),
        ("experts",),
        "the places t·K + j of experts[T,K] by their expert, those of one in rising order, and where each expert's begin: "
        "outputs (order [T,K] of u32, starts [experts+1] of u32)",
    ),
    Kind(
        "expert_linear",
        ("x", "experts", "order", "starts", "weight"),
        (),
        "y[T,K·rows]: of each row t and its j-th expert e, the j-th part of y[t] = x' · weight[e]ᵀ (+ bias[e]), weight being "
        "[E·rows,columns], one expert's below another's. x' is x[t], or its j-th part where x is [T,K·columns]. order and "
        "starts are sort_by_expert's of experts",
        optional=("bias",),
    ),
    Kind("combine_experts", ("x", "weights"), (), "y[t] = Σ_j weights[t,j] · the j-th of the K equal parts of x[t]"),
    Kind(
        "clamped_glu",
        ("gate", "up"),
        ("slope", "limit"),
        "g · sigmoid(slope · g) · (u + 1), g being gate but limit at most, and u up within ±limit",
    ),
    Kind("glu", ("gate", "up"), ("act",), "act(gate) · up; act is silu, gelu_tanh, gelu, relu or sigmoid"),
    Kind("activation", ("x",), ("act",), "act(x), as in glu"),
    Kind("add", ("x", "y"), (), "x + y"),
    Kind("mul", ("x", "y"), (), "x · y; y may have one column, for all of x's"),
    Kind("scale", ("x",), ("factor",), "factor · x"),
    Kind("softcap", ("x",), ("cap",), "cap · tanh(x / cap)"),
    Kind("gather_rows", ("x", "rows"), (), "y[R,·] = x[rows[r],·]"),
    Kind(
        "copy_pages",
        ("counts", "sources", "targets"),
        (),
        "page targets[i] = page sources[i] of a state, for i < counts[0]; targets are distinct and never sources: output (state)",
    ),
    Kind(
        "copy_slots",
        ("counts", "sources", "targets"),
        ("axis", "page_size"),
        "tokens of a paged state, whose axis 0 is pages and axis `axis` slots: slot targets[i] = slot sources[i] (page·P + slot) "
        "for i < counts[0], as if all were read before any is written; targets are distinct: output (state)",
    ),
    Kind("store", ("x",), (), "write x over the first rows of a state value: output (state)"),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _TABLE}
