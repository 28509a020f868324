"""Recording a Program: a ``Trace`` and one function per op kind, each with its shape rule.

Model code calls these once per bucket; what it gets back are Values, never numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pie_edge.program.encodings import Dense, DType, Encoding
from pie_edge.program.ops import KINDS, Attribute, Op, Program, Role, Value
from pie_edge.program.step import StepLayout


class Trace:
    """Collects values and ops in order. A mistake in model code is a ValueError here, before any device sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._values: dict[str, Value] = {}
        self._ops: list[Op] = []
        self._temps = itertools.count()

    def declare(self, value: Value) -> Value:
        """Add a value; naming the same one again is fine, naming another by its name is not."""
        known = self._values.setdefault(value.name, value)
        if known != value:
            raise ValueError(f"{self.name}: {value} was declared before as {known}")
        return value

    def weight(self, name: str, shape: tuple[int, ...], encoding: Encoding) -> Value:
        dtype = encoding.dtype if isinstance(encoding, Dense) else DType.F32
        return self.declare(Value(name, Role.WEIGHT, dtype, shape, encoding))

    def state(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Value:
        return self.declare(Value(name, Role.STATE, dtype, shape))

    def step(self, layout: StepLayout) -> dict[str, Value]:
        """The step's fields as inputs; at run time they come as the one block ``step``."""
        return {
            field.name: self.declare(Value(field.name, Role.INPUT, field.dtype, field.shape))
            for field in layout.fields.values()
        }

    def temp(self, shape: tuple[int, ...], dtype: DType = DType.F32) -> Value:
        return self.declare(Value(f"t{next(self._temps)}", Role.TEMP, dtype, shape))

    def op(self, kind: str, inputs: Sequence[Value], outputs: Sequence[Value], **attributes: Attribute) -> None:
        row = KINDS[kind]
        least, most = len(row.inputs), len(row.inputs) + len(row.optional)
        if not least <= len(inputs) <= most:
            raise ValueError(f"{kind} takes {row.inputs + row.optional}, got {[str(v) for v in inputs]}")
        if set(attributes) != set(row.attributes):
            raise ValueError(f"{kind} takes attributes {row.attributes}, got {tuple(attributes)}")
        for value in (*inputs, *outputs):
            if self._values.get(value.name) != value:
                raise ValueError(f"{kind} uses {value}, which this trace doesn't know")
        ordered = tuple((name, attributes[name]) for name in row.attributes)
        self._ops.append(Op(kind, tuple(v.name for v in inputs), tuple(v.name for v in outputs), ordered))

    def build(self) -> Program:
        return Program(self.name, dict(self._values), tuple(self._ops))


def _same(kind: str, x: Value, y: Value) -> None:
    if x.shape != y.shape:
        raise ValueError(f"{kind} wants equal shapes, got {x} and {y}")


def _width(kind: str, what: Value, got: int, want: int) -> None:
    if got != want:
        raise ValueError(f"{kind}: {what} should have {want} values there, has {got}")


def embed(t: Trace, table: Value, token_src: Value, tokens: Value, *, scale: float = 1.0) -> Value:
    y = t.temp((token_src.shape[0], table.shape[1]))
    t.op("embed", (table, token_src, tokens), (y,), scale=scale)
    return y


def rms_norm(t: Trace, x: Value, weight: Value, *, eps: float, offset: float = 0.0, groups: int = 1) -> Value:
    _width("rms_norm", weight, weight.shape[0] * groups, x.shape[1])
    y = t.temp(x.shape)
    t.op("rms_norm", (x, weight), (y,), eps=eps, offset=offset, groups=groups)
    return y


def layer_norm(t: Trace, x: Value, weight: Value, bias: Value | None = None, *, eps: float) -> Value:
    for vector in (weight,) if bias is None else (weight, bias):
        _width("layer_norm", vector, vector.shape[0], x.shape[1])
    y = t.temp(x.shape)
    t.op("layer_norm", (x, weight) if bias is None else (x, weight, bias), (y,), eps=eps)
    return y


def add_rms_norm(
    t: Trace, x: Value, residual: Value, weight: Value, *, eps: float, offset: float = 0.0
) -> tuple[Value, Value]:
    """The sum and its norm."""
    _same("add_rms_norm", x, residual)
    total = t.temp(x.shape)
    y = t.temp(x.shape)
    t.op("add_rms_norm", (x, residual, weight), (total, y), eps=eps, offset=offset)
    return total, y


def linear(t: Trace, x: Value, weight: Value, bias: Value | None = None) -> Value:
    _width("linear", weight, weight.shape[1], x.shape[1])
    y = t.temp((x.shape[0], weight.shape[0]))
    t.op("linear", (x, weight) if bias is None else (x, weight, bias), (y,))
    return y


def adapter_linear(t: Trace, x: Value, matrices: Value, adapters: Value, base: Value | None = None) -> Value:
    """Each row times the matrix of its adapter, of ``matrices`` [N,rows,columns]; added to ``base``, if there is one."""
    _width("adapter_linear", matrices, matrices.shape[2], x.shape[1])
    y = t.temp((x.shape[0], matrices.shape[1]))
    if base is not None:
        _same("adapter_linear", y, base)
    t.op("adapter_linear", (x, matrices, adapters) if base is None else (x, matrices, adapters, base), (y,))
    return y


def rope(
    t: Trace,
    x: Value,
    positions: Value,
    *,
    heads: int,
    rotary: int,
    base: float,
    scale: float = 1.0,
    style: str = "neox",
    magnitude: float = 1.0,
    factors: Value | None = None,
) -> Value:
    if style not in ("neox", "interleaved"):
        raise ValueError(f"rope style is neox or interleaved, not {style}")
    if x.shape[1] % heads or rotary > x.shape[1] // heads or rotary % 2:
        raise ValueError(f"rope: {heads} heads with {rotary} rotary values don't fit {x}")
    y = t.temp(x.shape)
    inputs = (x, positions) if factors is None else (x, positions, factors)
    t.op("rope", inputs, (y,), heads=heads, rotary=rotary, base=base, scale=scale, style=style, magnitude=magnitude)
    return y


def kv_append(
    t: Trace,
    k: Value,
    v: Value,
    step: dict[str, Value],
    cache: tuple[Value, Value, Value],
    *,
    heads: int,
) -> None:
    """Write this pass's keys, values and positions; ``cache`` is the layer's (K, V, key_positions)."""
    _same("kv_append", k, v)
    page_size = cache[2].shape[1]
    t.op("kv_append", (k, v, step["positions"], step["write_slots"]), cache, heads=heads, page_size=page_size)


def attention(
    t: Trace,
    q: Value,
    step: dict[str, Value],
    cache: tuple[Value, Value, Value],
    *,
    heads: int,
    kv_heads: int,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Value | None = None,
) -> Value:
    """Attention of the step's rows over their sequences' pages in ``cache`` (K, V, key_positions)."""
    if heads % kv_heads:
        raise ValueError(f"attention: {heads} query heads don't share {kv_heads} key-value heads evenly")
    if sinks is not None:
        _width("attention", sinks, sinks.shape[0], heads)
    fields = ["positions", "row_index", "query_starts", "page_starts", "pages", "page_bits", "fresh_bits"]
    operands = [step[name] for name in fields] + ([] if sinks is None else [sinks])
    operands += [step[name] for name in ("mask_starts", "mask") if name in step]
    y = t.temp(q.shape)
    t.op(
        "attention",
        (q, *cache, *operands),
        (y,),
        heads=heads,
        kv_heads=kv_heads,
        scale=scale,
        window=window,
        softcap=softcap,
        page_size=cache[2].shape[1],
        sinks=sinks is not None,
    )
    return y


def glu(t: Trace, gate: Value, up: Value, *, act: str) -> Value:
    _same("glu", gate, up)
    y = t.temp(gate.shape)
    t.op("glu", (gate, up), (y,), act=act)
    return y


def activation(t: Trace, x: Value, *, act: str) -> Value:
    y = t.temp(x.shape)
    t.op("activation", (x,), (y,), act=act)
    return y


def scale(t: Trace, x: Value, *, factor: float) -> Value:
    y = t.temp(x.shape)
    t.op("scale", (x,), (y,), factor=factor)
    return y


def add(t: Trace, x: Value, y: Value) -> Value:
    _same("add", x, y)
    total = t.temp(x.shape)
    t.op("add", (x, y), (total,))
    return total


def softcap(t: Trace, x: Value, *, cap: float) -> Value:
    y = t.temp(x.shape)
    t.op("softcap", (x,), (y,), cap=cap)
    return y


def gather_rows(t: Trace, x: Value, rows: Value) -> Value:
    y = t.temp((rows.shape[0], x.shape[1]))
    t.op("gather_rows", (x, rows), (y,))
    return y


def mul(t: Trace, x: Value, y: Value) -> Value:
    if y.shape != (x.shape[0], 1):
        _same("mul", x, y)
    product = t.temp(x.shape)
    t.op("mul", (x, y), (product,))
    return product


def store(t: Trace, x: Value, state: Value) -> None:
    if x.shape[1:] != state.shape[1:] or x.shape[0] > state.shape[0]:
        raise ValueError(f"store: {x} doesn't fit {state}")
    t.op("store", (x,), (state,))


def copy_program(states: Sequence[Value], capacity: int, *, slots: bool) -> Program:
    """A small Program that duplicates up to ``capacity`` pages of every state, or tokens of the paged ones among them, which are
    called slots there; its inputs come by name."""
    t = Trace(f"copy-{'slots' if slots else 'pages'}-{capacity}")
    counts = t.declare(Value("counts", Role.INPUT, DType.U32, (1,)))
    sources = t.declare(Value("sources", Role.INPUT, DType.U32, (capacity,)))
    targets = t.declare(Value("targets", Role.INPUT, DType.U32, (capacity,)))
    for state in states:
        given = (counts, sources, targets)
        if slots:
            # Slots are the last axis but one in K and V, and the last one of the positions.
            axis = {5: 3, 4: 2, 2: 1}[len(state.shape)]
            page_size = state.shape[axis]
            t.op("copy_slots", given, (t.declare(state),), axis=axis, page_size=page_size)
        else:
            t.op("copy_pages", given, (t.declare(state),))
    return t.build()
