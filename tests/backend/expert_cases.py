"""Mixtures of experts that every backend is tested with: a router's choice, products by expert, and their sum.

Rows past the true ones choose an expert that isn't there, and hold no numbers: whoever looked at them would show it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pie_edge.program import trace as ops
from pie_edge.program import trace_experts as mixture
from pie_edge.program.encodings import Affine, Dense, DType, Encoding
from pie_edge.program.ops import Value
from pie_edge.program.trace import Trace
from pie_edge.program.trace_experts import Routing
from tests.backend.cases import F32, MXFP4, Array, ArraySource, Builder, Case, linear_bound, rows_step


@dataclass(frozen=True)
class Mixture:
    """``rows`` of a bucket of ``bucket``, each with ``chosen`` of ``experts``; ``only`` are the experts that rows choose from."""

    rows: int
    bucket: int
    chosen: int
    experts: int
    only: tuple[int, ...] = ()
    outputs: int = 24
    columns: int = 64
    own: bool = False
    """Each of a row's experts has a part of x of its own."""
    bias: bool = True


def _choices(rng: np.random.Generator, shape: Mixture) -> Array:
    found = np.full((shape.bucket, shape.chosen), 0xFFFFFFFF, np.uint32)
    among = np.array(shape.only or range(shape.experts), np.uint32)
    for row in range(shape.rows):
        found[row] = rng.permutation(among)[: shape.chosen]
    return found


def _padded(case: Case, name: str, shape: Mixture, width: int) -> Value:
    x = case.row_state(name, case.normal(shape.bucket, width))
    case.states[name][shape.rows :] = np.nan
    return x


def _routing(t: Trace, experts: Value, count: int) -> Routing:
    order, starts = t.temp(experts.shape, DType.U32), t.temp((count + 1,), DType.U32)
    t.op("sort_by_expert", (experts,), (order, starts), experts=count)
    return Routing(experts, experts, order, starts)


def _product(shape: Mixture, encoding: Encoding) -> Builder:
    def make(case: Case) -> None:
        case.step(*rows_step(shape.rows, shape.bucket))
        choices = _choices(case.rng, shape)
        routing = _routing(case.trace, case.row_state("experts", choices), shape.experts)
        x = _padded(case, "x", shape, shape.columns * (shape.chosen if shape.own else 1))
        weight = case.weight("w", (shape.experts * shape.outputs, shape.columns), encoding)
        bias = case.weight("b", (shape.experts * shape.outputs,), F32) if shape.bias else None
        case.results = (mixture.expert_linear(case.trace, x, routing, weight, bias),)
        case.bound = _bound(case.states["x"], choices, case.sources["w"], shape)

    return make


def _bound(x: Array, choices: Array, weight: ArraySource, shape: Mixture) -> Array:
    parts = np.broadcast_to(x.reshape(len(x), -1, shape.columns), (*choices.shape, shape.columns))[: shape.rows]
    found = np.zeros((*parts.shape[:2], shape.outputs))
    for expert in range(shape.experts):
        planes = {name: plane.reshape(shape.experts, shape.outputs, -1)[expert] for name, plane in weight.held.items()}
        own = ArraySource((shape.outputs, shape.columns), weight.target, planes)
        mine = choices[: shape.rows] == expert
        if mine.any():
            found[mine] = linear_bound(parts[mine], own)
    return found.reshape(shape.rows, -1)


_QUANTISED = Affine(4, 32, DType.F16, None)
PRODUCTS = {
    "one row": Mixture(1, 1, 2, 5),
    "a decode of four": Mixture(4, 4, 8, 32, outputs=16),
    "rows past the true ones": Mixture(5, 8, 3, 6, own=True),
    "all rows to one expert": Mixture(9, 12, 1, 7, only=(4,)),
    "experts without rows": Mixture(33, 40, 2, 9, only=(1, 2, 8), own=True),
    "every expert": Mixture(6, 6, 4, 4, outputs=40),
    "a single expert": Mixture(3, 4, 1, 1),
    "a prefill": Mixture(61, 64, 2, 3, outputs=72, columns=128, bias=False),
    # More than fit into a workgroup's memory at once.
    "many columns": Mixture(3, 4, 2, 2, outputs=8, columns=4128),
}
ENCODINGS: tuple[Encoding, ...] = (
    *(F32, Dense(DType.F16), Dense(DType.BF16)),
    *(Affine(8, 32, DType.F32, 128), Affine(4, 16, DType.F16, 8), Affine(8, 64, DType.F16, None)),
)
ALL: dict[str, Builder] = {f"expert_linear, {name}": _product(shape, _QUANTISED) for name, shape in PRODUCTS.items()}
for _encoding in ENCODINGS:
    for _name in ("one row", "rows past the true ones", "a prefill"):
        ALL[f"expert_linear {_encoding}, {_name}"] = _product(PRODUCTS[_name], _encoding)
for _rows in (1, 9):
    # Over a megabyte, and the megabytes end inside an expert.
    ALL[f"expert_linear of large matrices {_rows} rows"] = _product(
        Mixture(_rows, 10, 2, 5, outputs=1720, columns=256, bias=False), Affine(8, 32, DType.F16, 128)
    )
ODD: dict[str, Builder] = {
    f"expert_linear, {name}": _product(shape, _QUANTISED)
    for name, shape in (
        ("one of seven", Mixture(1, 12, 3, 8, outputs=7)),
        ("some of seven", Mixture(11, 12, 3, 8, outputs=7)),
        ("some of 65", Mixture(3, 4, 1, 1, outputs=65)),
    )
}
"""Of experts whose rows aren't whole eights, for backends that take them."""
for _encoding in (Affine(5, 32, DType.F16, 16), Affine(6, 16, DType.F32, 32), MXFP4):
    ODD[f"expert_linear {_encoding}, rows past the true ones"] = _product(
        PRODUCTS["rows past the true ones"], _encoding
    )
    ODD[f"expert_linear {_encoding}, a prefill"] = _product(PRODUCTS["a prefill"], _encoding)


def _route(rows: int, experts: int, chosen: int, normalised: bool) -> Builder:
    def make(case: Case) -> None:
        shape = Mixture(rows, 12, chosen, experts)
        case.step(*rows_step(rows, 12))
        logits = _padded(case, "logits", shape, experts)
        values = case.states["logits"]
        values[:rows] *= 3
        values[:rows, 1::3] = values[:rows, ::3][:, : len(values[0, 1::3])]  # equal ones: the lower is chosen first
        routing = mixture.route(case.trace, logits, chosen=chosen, normalised=normalised, scale=2.5)
        case.results = (routing.experts, routing.weights, routing.starts)

    return make


for _experts, _chosen in ((8, 2), (5, 5), (128, 8), (13, 1)):
    for _rows in (1, 11):
        _plain = _experts in (5, 128)
        ALL[f"route {_chosen} of {_experts} {_rows} rows"] = _route(_rows, _experts, _chosen, not _plain)


def _combine(width: int, chosen: int) -> Builder:
    def make(case: Case) -> None:
        shape = Mixture(7, 8, chosen, chosen)
        case.step(*rows_step(7, 8))
        x = _padded(case, "x", shape, chosen * width)
        weights = _padded(case, "weights", shape, chosen)
        routing = Routing(weights, weights, weights, weights)
        case.results = (mixture.combine_experts(case.trace, x, routing),)

    return make


def _clamped(width: int) -> Builder:
    def make(case: Case) -> None:
        shape = Mixture(7, 8, 1, 1)
        case.step(*rows_step(7, 8))
        gate, up = (_padded(case, name, shape, width) for name in ("gate", "up"))
        for name in ("gate", "up"):
            case.states[name] *= 6
        case.results = (mixture.clamped_glu(case.trace, gate, up, slope=1.702, limit=7.0),)

    return make


for _width in (64, 13):
    ALL[f"combine_experts {_width} of 3"] = _combine(_width, 3)
    ALL[f"clamped_glu {_width}"] = _clamped(_width)


def _layer(case: Case, x: Value, name: str = "") -> Value:
    """Rows are routed, and what their experts give is summed."""
    t, experts, width, inner = case.trace, 6, x.shape[1], 32
    logits = ops.linear(t, x, case.weight(f"{name}router", (experts, width), F32))
    routing = mixture.route(t, logits, chosen=2, normalised=True)
    gate, up = (
        mixture.expert_linear(t, x, routing, case.weight(f"{name}{side}", (experts * inner, width), _QUANTISED))
        for side in ("gate", "up")
    )
    down = case.weight(f"{name}down", (experts * width, inner), _QUANTISED)
    y = mixture.expert_linear(t, ops.glu(t, gate, up, act="silu"), routing, down)
    return mixture.combine_experts(t, y, routing)


def _whole(case: Case) -> None:
    case.step(*rows_step(29, 32))
    case.results = (_layer(case, _padded(case, "x", Mixture(29, 32, 2, 6), 64)),)
    case.tolerance = 1e-3


def layered(layers: int) -> Case:
    """A layer after another, few rows each."""
    case = Case(Trace("layers of experts"), np.random.default_rng(1))
    case.step(*rows_step(5, 6))
    x = _padded(case, "x", Mixture(5, 6, 2, 6), 64)
    for layer in range(layers):
        weight = case.weight(f"{layer}.norm", (64,), F32)
        x = _layer(case, ops.rms_norm(case.trace, x, weight, eps=1e-5), f"{layer}.")
    case.results = (x,)
    return case


ALL["a mixture of experts"] = _whole


def build(name: str) -> Case:
    case = Case(Trace(name), np.random.default_rng(sum(name.encode())))
    ALL[name](case)
    return case
