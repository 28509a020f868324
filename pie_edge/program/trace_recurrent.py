"""Recording what has recurrent state: short convolutions, the gated delta rule, and the tails that make them reversible."""

from __future__ import annotations

from dataclasses import dataclass

from pie_edge.program.ops import Value
from pie_edge.program.trace import Trace

_FIELDS = ("query_starts", "state_slots", "state_spans")


def short_conv(
    t: Trace, x: Value, weight: Value, step: dict[str, Value], tail: Value, *, act: str, bias: Value | None = None
) -> Value:
    """The convolution of ``x`` [T,C] by ``weight`` [C,W] over each sequence. Afterwards ``x`` is appended to its ``tail``
    [slots,L,C], which must reach back W − 1 tokens before the first that can be taken back."""
    _columns("short_conv", x, weight.shape[0])
    _columns("short_conv", x, tail.shape[2])
    if tail.shape[1] < weight.shape[1]:
        raise ValueError(f"short_conv: a tail of {tail.shape[1]} tokens is too short for {weight}")
    y = t.temp(x.shape)
    inputs = (x, weight, tail, *(step[name] for name in _FIELDS))
    t.op("short_conv", inputs if bias is None else (*inputs, bias), (y,), act=act)
    tail_append(t, x, step, tail)
    return y


def tail_append(t: Trace, x: Value, step: dict[str, Value], tail: Value) -> None:
    """Keep the last rows of each sequence for passes that follow."""
    _columns("tail_append", x, tail.shape[2])
    t.op("tail_append", (x, *(step[name] for name in _FIELDS)), (tail,))


@dataclass(frozen=True, slots=True)
class Delta:
    """A layer's gated delta rule: what it reads beside the rows. ``state`` is [slots,heads,key_dim,v] in float32."""

    decay: Value
    dt_bias: Value
    state: Value
    qkv_tail: Value
    a_tail: Value
    b_tail: Value
    key_heads: int
    log_decay: bool
    tiled: bool = False
    """Value heads that share a key head lie ``key_heads`` apart, not side by side."""
    eps: float = 1e-6


def gated_delta(t: Trace, qkv: Value, a: Value, b: Value, step: dict[str, Value], delta: Delta) -> Value:
    """The rule over ``qkv`` [T, 2·key_heads·key_dim + heads·v], gated by ``a`` and ``b`` [T,heads]: [T,heads·v].

    After it the three are appended to their tails.
    """
    _, heads, key_dim, width = delta.state.shape
    _columns("gated_delta", qkv, 2 * delta.key_heads * key_dim + heads * width)
    for gate in (a, b):
        _columns("gated_delta", gate, heads)
    if heads % delta.key_heads:
        raise ValueError(f"gated_delta: {heads} value heads don't share {delta.key_heads} key heads evenly")
    y = t.temp((qkv.shape[0], heads * width))
    tails = {"qkv": (qkv, delta.qkv_tail), "a": (a, delta.a_tail), "b": (b, delta.b_tail)}
    t.op(
        "gated_delta",
        (
            *(qkv, a, b, delta.decay, delta.dt_bias),
            *(tail for _, tail in tails.values()),
            *(step[name] for name in _FIELDS),
        ),
        (y, delta.state),
        key_heads=delta.key_heads,
        value_heads=heads,
        key_dim=key_dim,
        tiled=delta.tiled,
        log_decay=delta.log_decay,
        eps=delta.eps,
    )
    for rows, tail in tails.values():
        tail_append(t, rows, step, tail)
    return y


def _columns(kind: str, x: Value, want: int) -> None:
    if x.shape[1] != want:
        raise ValueError(f"{kind}: {x} should have {want} columns there")
