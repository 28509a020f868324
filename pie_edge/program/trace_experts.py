"""Recording mixtures of experts: a router's choice, matrices that each expert has its own of, and their weighted sum.

What a row's K experts give lies side by side in it, so that the step's rows stay the only rows there are."""

from __future__ import annotations

from dataclasses import dataclass

from pie_edge.program.encodings import DType
from pie_edge.program.ops import Value
from pie_edge.program.trace import Trace


@dataclass(frozen=True, slots=True)
class Routing:
    """What a router chose: ``experts`` and ``weights`` [T,K], and the same choices sorted, for kernels that take an
    expert's rows together."""

    experts: Value
    weights: Value
    order: Value
    starts: Value

    @property
    def chosen(self) -> int:
        return self.experts.shape[1]


def route(t: Trace, logits: Value, *, chosen: int, normalised: bool, scale: float = 1.0) -> Routing:
    """The ``chosen`` experts of each row of ``logits`` [T,E]."""
    rows, experts = logits.shape
    if not 0 < chosen <= experts:
        raise ValueError(f"route: {chosen} experts can't be chosen of {logits}")
    ids, weights = t.temp((rows, chosen), DType.U32), t.temp((rows, chosen))
    t.op("route", (logits,), (ids, weights), chosen=chosen, normalised=normalised, scale=scale)
    order, starts = t.temp((rows, chosen), DType.U32), t.temp((experts + 1,), DType.U32)
    t.op("sort_by_expert", (ids,), (order, starts), experts=experts)
    return Routing(ids, weights, order, starts)


def expert_linear(t: Trace, x: Value, routing: Routing, weight: Value, bias: Value | None = None) -> Value:
    """Each of a row's experts' product with ``x``: [T,columns] is for all of them, [T,K·columns] has one's own for each."""
    experts, columns = routing.starts.shape[0] - 1, weight.shape[1]
    if weight.shape[0] % experts or x.shape[1] not in (columns, routing.chosen * columns):
        raise ValueError(f"expert_linear: {weight} of {experts} experts, {routing.chosen} a row, doesn't fit {x}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"expert_linear: {bias} should have a value for each row of {weight}")
    y = t.temp((x.shape[0], routing.chosen * weight.shape[0] // experts))
    inputs = (x, routing.experts, routing.order, routing.starts, weight)
    t.op("expert_linear", inputs if bias is None else (*inputs, bias), (y,))
    return y


def combine_experts(t: Trace, x: Value, routing: Routing) -> Value:
    """The sum of what a row's experts gave, ``x`` [T,K·columns], by their weights."""
    if x.shape[1] % routing.chosen:
        raise ValueError(f"combine_experts: {x} doesn't have {routing.chosen} equal parts")
    y = t.temp((x.shape[0], x.shape[1] // routing.chosen))
    t.op("combine_experts", (x, routing.weights), (y,))
    return y


def clamped_glu(t: Trace, gate: Value, up: Value, *, slope: float, limit: float) -> Value:
    if gate.shape != up.shape:
        raise ValueError(f"clamped_glu wants equal shapes, got {gate} and {up}")
    y = t.temp(gate.shape)
    t.op("clamped_glu", (gate, up), (y,), slope=slope, limit=limit)
    return y
