"""Op cases that every backend is tested with: small Programs over awkward shapes, and what NumPy says they give.

A case is one op (or a few) whose results are outputs. ``ALL`` names them; ``expected`` asks the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.program import reference
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup
from pie_edge.program.ops import Program, Role, Value
from pie_edge.program.step import Bucket, StepInputs, StepLayout
from pie_edge.program.trace import Trace
from pie_edge.weights.widen import dequantise_planes

Array = NDArray[Any]


@dataclass(frozen=True)
class ArraySource:
    """A weight made up in memory, as a backend pulls it."""

    shape: tuple[int, ...]
    target: Encoding
    held: Mapping[str, Array]
    encoding: str = "planes"

    def raw(self, first: int, count: int) -> memoryview:
        raise AssertionError("this weight comes from no file")

    def planes(self, first: int, count: int) -> Mapping[str, Any]:
        return {name: plane[first : first + count] for name, plane in self.held.items()}

    def dense(self) -> Array:
        return np.asarray(dequantise_planes(self.target, dict(self.held)), np.float32).reshape(self.shape)


@dataclass
class Case:
    """A Program under construction, then ready: its results are the OUTPUT values and the states in ``written``."""

    trace: Trace
    rng: np.random.Generator
    sources: dict[str, ArraySource] = field(default_factory=dict)
    states: dict[str, Array] = field(default_factory=dict)
    by_row: set[str] = field(default_factory=set)
    """States whose first axis is the step's rows: past the true number they are padding."""
    block: bytes = b""
    rows: int = 0
    written: tuple[str, ...] = ()
    results: tuple[Value, ...] = ()
    tolerance: float = 2e-6
    """Of a row's largest value."""
    bound: Array | None = None
    """Instead: the largest error of each value."""

    def weight(self, name: str, shape: tuple[int, ...], encoding: Encoding) -> Value:
        self.sources[name] = random_weight(self.rng, shape, encoding)
        return self.trace.weight(name, shape, encoding)

    def state(self, name: str, values: Array) -> Value:
        self.states[name] = values
        return self.trace.state(name, DType.U32 if values.dtype == np.uint32 else DType.F32, values.shape)

    def row_state(self, name: str, values: Array) -> Value:
        self.by_row.add(name)
        return self.state(name, values)

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def step(self, inputs: StepInputs, bucket: Bucket) -> dict[str, Value]:
        layout = StepLayout(bucket)
        self.rows = inputs.counts.rows
        self.block = layout.pack(inputs).tobytes()
        return self.trace.step(layout)

    @property
    def program(self) -> Program:
        built = self.trace.build()
        outputs = {value.name: replace(value, role=Role.OUTPUT) for value in self.results}
        return replace(built, values={**built.values, **outputs})

    def expected(self) -> dict[str, Array]:
        """Every result, by name, from the reference; outputs have only their true rows."""
        states = {
            name: array[: self.rows if name in self.by_row else None].copy() for name, array in self.states.items()
        }
        weights = {name: source.dense() for name, source in self.sources.items()}
        found = reference.run(self.program, weights | states, self.block)
        return {name: found[name] for name in (*(value.name for value in self.results), *self.written)}


def random_weight(rng: np.random.Generator, shape: tuple[int, ...], encoding: Encoding) -> ArraySource:
    rows, columns = shape if len(shape) == 2 else (1, shape[0])
    if isinstance(encoding, Dense):
        values = rng.standard_normal((rows, columns)).astype(np.float32)
        held = values.astype(np.float16) if encoding.dtype is DType.F16 else values
        if encoding.dtype is DType.BF16:
            held = (values.view(np.uint32) >> 16).astype(np.uint16)
        return ArraySource(shape, encoding, {"values": held})
    groups = (rows, columns // encoding.group)
    if isinstance(encoding, Lookup) and encoding.scale is DType.BF16:
        codes = rng.integers(0, 16, (rows, columns), dtype=np.uint8)
        # Powers of two, the smallest and the largest that scales of MXFP4 are among them.
        powers = rng.choice([0, 1, 30, 120, 125, 128, 140], groups).astype(np.uint16)
        return ArraySource(shape, encoding, {"codes": codes, "scales": powers << np.uint16(7)})
    scale = np.float16 if encoding.scale is DType.F16 else np.float32
    planes: dict[str, Array] = {
        "codes": rng.integers(0, 1 << encoding.bits, (rows, columns), dtype=np.uint8),
        # Negative, zero and subnormal scales happen in real files.
        "scales": (rng.standard_normal(groups) * rng.choice([0.1, 1e-6, 0], groups, p=[0.8, 0.1, 0.1])).astype(scale),
    }
    if isinstance(encoding, Affine) and encoding.zero is None:
        planes["minima"] = rng.standard_normal(groups).astype(scale)
    return ArraySource(shape, encoding, planes)


def rows_step(true: int, bucket: int, *, sampled: Sequence[int] = (0,), seed: int = 0) -> tuple[StepInputs, Bucket]:
    """A step of ``true`` rows in a bucket with room for more; only its rows matter."""
    rng = np.random.default_rng(seed)
    step = StepInputs(
        token_src=[0] * true,
        positions=[int(p) for p in rng.integers(0, 100_000, true)],
        row_index=list(range(true)),
        write_slots=[8 + i for i in range(true)],
        query_starts=[0, true],
        page_starts=[0, 0],
        pages=[],
        page_bits=[],
        fresh_bits=[],
        sample_rows=list(sampled),
        draw_keys=[0] * (2 * len(sampled)),
    )
    return step, Bucket(bucket, 2, max(len(sampled), 1) + 1, 4)


F32 = Dense(DType.F32)
ENCODINGS: tuple[Encoding, ...] = (
    F32,
    Dense(DType.F16),
    Dense(DType.BF16),
    *(
        Affine(bits, group, scale, zero)
        for bits in (4, 8)
        for group in (16, 32)
        for scale in (DType.F16, DType.F32)
        for zero in (None, 1 << (bits - 1))
    ),
    Affine(8, 32, DType.F16, 16),
    Affine(4, 64, DType.F16, None),
    Affine(4, 128, DType.F32, 8),
)

FOUR_BIT_FLOATS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0)
MXFP4 = Lookup(32, DType.BF16, FOUR_BIT_FLOATS)
ODD_ENCODINGS: tuple[Encoding, ...] = (
    Affine(5, 32, DType.F16, 16),
    Affine(5, 32, DType.F16, None),
    Affine(5, 16, DType.F32, None),
    Affine(6, 16, DType.F32, 32),
    Affine(6, 64, DType.F16, None),
    MXFP4,
)
TABLES: tuple[Encoding, ...] = (
    Lookup(32, DType.F32, FOUR_BIT_FLOATS),
    Lookup(64, DType.F16, tuple(float(n * n // 2 - 127) for n in range(16))),
)

Builder = Callable[[Case], None]
ALL: dict[str, Builder] = {}
ODD: dict[str, Builder] = {}
"""Of weights with codes of five and six bits and those of tables, for backends that don't widen them."""


def build(name: str) -> Case:
    case = Case(Trace(name), np.random.default_rng(sum(name.encode())))
    ALL[name](case)
    return case


def _add(name: str, builder: Builder) -> None:
    ALL[name] = builder


def _linear(rows: int, bucket: int, outputs: int, columns: int, encoding: Encoding, bias: bool) -> Builder:
    def make(case: Case) -> None:
        case.step(*rows_step(rows, bucket))
        x = case.row_state("x", case.normal(bucket, columns))
        case.states["x"][:, ::7] *= 30  # some columns are much larger, as in real models
        weight = case.weight("w", (outputs, columns), encoding)
        extra = case.weight("b", (outputs,), F32) if bias else None
        case.results = (ops.linear(case.trace, x, weight, extra),)
        case.bound = linear_bound(case.states["x"][:rows], case.sources["w"])

    return make


def linear_bound(x: Array, weight: ArraySource) -> Array:
    """What a sum may lose in float32; and beside affine weights x may be rounded to 16 bits, by groups of 32 at most."""
    size = np.abs(x.astype(np.float64))
    magnitudes = np.abs(weight.dense().astype(np.float64)).T
    lost = 1e-6 * size @ magnitudes
    if isinstance(weight.target, Affine):
        group = min(weight.target.group, 32)
        largest = size.reshape(len(x), -1, group).max(axis=2)
        lost += np.repeat(largest, group, axis=1) / 65534 @ magnitudes
    return np.asarray(lost) + 1e-30


_SIZES = ((1, 1, 41, 384), (2, 4, 8, 128), (3, 4, 7, 256), (7, 8, 130, 128))
for _encoding in ENCODINGS:
    for _rows, _bucket, _outputs, _columns in _SIZES:
        _add(f"linear {_encoding} {_rows} rows", _linear(_rows, _bucket, _outputs, _columns, _encoding, _rows != 2))
for _encoding in ODD_ENCODINGS:
    for _rows, _bucket, _outputs, _columns in (*_SIZES, (61, 64, 70, 192)):
        ODD[f"linear {_encoding} {_rows} rows"] = _linear(_rows, _bucket, _outputs, _columns, _encoding, _rows != 2)
for _encoding in TABLES:
    ODD[f"linear {_encoding} 7 rows"] = _linear(*_SIZES[3], _encoding, True)
for _rows, _bucket in ((1, 1), (5, 8), (64, 64), (61, 64)):
    _add(f"linear 576 {_rows} rows", _linear(_rows, _bucket, 192, 576, Affine(4, 32, DType.F16, None), False))
_add("linear of 48 columns", _linear(1, 1, 24, 48, Affine(8, 16, DType.F32, 32), False))
_add("linear of 16 columns", _linear(5, 8, 1, 16, Affine(4, 16, DType.F16, 8), False))
_add("linear of a vocabulary", _linear(2, 2, 70_001, 32, Affine(8, 32, DType.F16, 128), False))
_add("linear of a dense vocabulary", _linear(1, 1, 70_001, 8, Dense(DType.BF16), False))


def _adapter_linear(rows: int, outputs: int, columns: int, base: bool) -> Builder:
    def make(case: Case) -> None:
        step, bucket = rows_step(rows, 8)
        numbers = [(3 * t + 2) % 4 for t in range(rows)]
        fields = case.step(replace(step, adapters=numbers), replace(bucket, adapters=1))
        x = case.row_state("x", case.normal(8, columns))
        matrices = case.state("m", case.normal(3, outputs, columns))
        added = case.row_state("y", case.normal(8, outputs)) if base else None
        case.results = (ops.adapter_linear(case.trace, x, matrices, fields["adapters"], added),)
        case.tolerance = 1e-5

    return make


for _rows, _outputs, _columns, _base in ((1, 8, 576, False), (7, 70, 16, True), (8, 33, 67, True), (5, 16, 7, False)):
    _add(f"adapter_linear {_outputs}x{_columns} {_rows} rows", _adapter_linear(_rows, _outputs, _columns, _base))


def _embed(encoding: Encoding) -> Builder:
    def make(case: Case) -> None:
        step, bucket = rows_step(7, 8)
        fields = case.step(replace(step, token_src=[0, 36, -1, 8, -3, 7, 15]), bucket)
        tokens = case.state("tokens", np.array([5, 36, 9, 0], np.uint32))
        table = case.weight("table", (37, 128), encoding)
        case.results = (ops.embed(case.trace, table, fields["token_src"], tokens, scale=25.3),)

    return make


for _encoding in ENCODINGS:
    _add(f"embed {_encoding}", _embed(_encoding))
for _encoding in (*ODD_ENCODINGS, *TABLES):
    ODD[f"embed {_encoding}"] = _embed(_encoding)


def _norm(width: int, groups: int, offset: float, rows: int, fused: bool) -> Builder:
    def make(case: Case) -> None:
        case.step(*rows_step(rows, 8))
        x = case.row_state("x", case.normal(8, width * groups, scale=3))
        weight = case.weight("w", (width,), F32)
        if fused:
            residual = case.row_state("r", case.normal(8, width))
            case.results = ops.add_rms_norm(case.trace, x, residual, weight, eps=1e-5, offset=offset)
        else:
            case.results = (ops.rms_norm(case.trace, x, weight, eps=1e-6, offset=offset, groups=groups),)

    return make


for _width, _groups, _offset, _rows in ((576, 1, 0.0, 1), (64, 9, 0.0, 7), (7, 3, 1.0, 8), (256, 1, 1.0, 5)):
    _add(f"rms_norm {_width}x{_groups} {_rows} rows", _norm(_width, _groups, _offset, _rows, False))
for _width, _rows in ((576, 1), (10, 7)):
    _add(f"add_rms_norm {_width} {_rows} rows", _norm(_width, 1, 0.5, _rows, True))


def _layer_norm(width: int, rows: int, bias: bool) -> Builder:
    def make(case: Case) -> None:
        case.step(*rows_step(rows, 8))
        x = case.row_state("x", case.normal(8, width, scale=3) + np.float32(40))
        weight, shift = case.weight("w", (width,), F32), case.weight("b", (width,), F32) if bias else None
        case.results = (ops.layer_norm(case.trace, x, weight, shift, eps=1e-5),)
        # The mean is a dozen times the deviation: what it loses in float32 is that much larger.
        case.tolerance = 2e-5

    return make


for _width, _rows, _bias in ((768, 1, True), (13, 7, True), (64, 5, False)):
    _add(f"layer_norm {_width} {_rows} rows", _layer_norm(_width, _rows, _bias))


def _rope(heads: int, width: int, rotary: int, style: str, factors: bool, rows: int, magnitude: float) -> Builder:
    def make(case: Case) -> None:
        fields = case.step(*rows_step(rows, 8))
        x = case.row_state("x", case.normal(8, heads * width))
        extra = case.weight("f", (rotary // 2,), F32) if factors else None
        if factors:
            held = np.abs(case.sources["f"].held["values"]) + 1
            case.sources["f"] = ArraySource((rotary // 2,), F32, {"values": held.astype(np.float32)})
        case.results = (
            ops.rope(
                case.trace,
                x,
                fields["positions"],
                heads=heads,
                rotary=rotary,
                base=1e5,
                scale=0.125,
                style=style,
                magnitude=magnitude,
                factors=extra,
            ),
        )

    return make


for _style in ("neox", "interleaved"):
    _add(f"rope {_style}", _rope(9, 64, 64, _style, False, 7, 1.0))
    _add(f"rope {_style} in part", _rope(2, 20, 12, _style, True, 1, 1.19))


def _elementwise(kind: str, width: int, rows: int) -> Builder:
    def make(case: Case) -> None:
        case.step(*rows_step(rows, 8))
        x = case.row_state("x", case.normal(8, width, scale=8))
        case.states["x"][0, :5] = 0, 1e-20, -90, 90, -3
        y = case.row_state("y", case.normal(8, width))
        t = case.trace
        case.results = (
            ops.add(t, x, y)
            if kind == "add"
            else ops.softcap(t, x, cap=30.0)
            if kind == "softcap"
            else ops.scale(t, x, factor=0.22)
            if kind == "scale"
            else ops.activation(t, x, act=kind.removeprefix("activation "))
            if kind.startswith("activation ")
            else ops.glu(t, x, y, act=kind),
        )

    return make


for _kind in (
    *("add", "scale", "softcap", "silu", "gelu_tanh", "gelu", "relu", "sigmoid", "activation silu"),
    *("activation gelu_tanh", "activation gelu", "activation relu", "activation sigmoid"),
):
    for _width, _rows in ((1536, 1), (13, 7)):
        _add(f"{_kind} {_width} {_rows} rows", _elementwise(_kind, _width, _rows))


def _gather(case: Case) -> None:
    fields = case.step(*rows_step(7, 8, sampled=(6, 0, 3)))
    x = case.row_state("x", case.normal(8, 70))
    case.results = (ops.gather_rows(case.trace, x, fields["sample_rows"]),)


def _store(case: Case) -> None:
    case.step(*rows_step(3, 8))
    x = case.row_state("x", case.normal(8, 33))
    ops.store(case.trace, x, case.state("target", case.normal(16, 33)))
    case.written = ("target",)


def _store_linear(case: Case) -> None:
    """A head's usual end: what it stores may be computed in place."""
    fields = case.step(*rows_step(7, 8, sampled=(6, 2)))
    x = case.row_state("x", case.normal(8, 64))
    weight = case.weight("w", (50, 64), F32)
    rows = ops.gather_rows(case.trace, x, fields["sample_rows"])
    ops.store(case.trace, ops.linear(case.trace, rows, weight), case.state("target", case.normal(5, 50)))
    case.written, case.tolerance = ("target",), 1e-5


_add("gather_rows", _gather)
_add("store", _store)
_add("store of a linear", _store_linear)


@dataclass(frozen=True)
class Talk:
    """A sequence of an attention case: keys written before, rows of this pass, whether some are masked or dropped."""

    past: int
    rows: int
    holes: bool = False


@dataclass(frozen=True)
class Attend:
    talks: tuple[Talk, ...]
    heads: int = 4
    kv_heads: int = 2
    width: int = 64
    page: int = 16
    window: int = 0
    softcap: float = 0.0
    masked: tuple[int, ...] = ()
    """Sequences with a random custom mask."""
    blind: bool = False
    """The first row of a masked sequence sees nothing."""
    sinks: bool = False


def _masks(rng: np.random.Generator, shape: Attend, counts: list[int]) -> tuple[list[int], list[int]]:
    starts, words = [], []
    for index, (talk, entries) in enumerate(zip(shape.talks, counts, strict=True)):
        starts.append(len(words) + 1 if index in shape.masked else 0)
        if index in shape.masked:
            words += [int(word) for word in rng.integers(0, 1 << shape.page, talk.rows * entries)]
            if shape.blind:
                words[starts[-1] - 1 : starts[-1] - 1 + entries] = [0] * entries
    return (starts, words) if words else ([], [])


def _pages(
    rng: np.random.Generator, talk: Talk, page: int, free: Iterator[int]
) -> tuple[list[int], list[int], list[int]]:
    """Page ids, bits and fresh bits of a sequence whose keys are 0 … past + rows − 1 of its table."""
    total = talk.past + talk.rows
    ids = [next(free) for _ in range(-(-total // page))]
    bits = [(1 << min(page, total - i * page)) - 1 for i in range(len(ids))]
    fresh = [sum(1 << s for s in range(page) if talk.past <= i * page + s < total) for i in range(len(ids))]
    if talk.holes:
        bits = [b & int(rng.integers(0, 1 << page)) | f for b, f in zip(bits, fresh, strict=True)]
        if len(bits) > 2:
            bits[1] = 0
    return ids, bits, fresh


def _attention(shape: Attend) -> Builder:
    def make(case: Case) -> None:
        rng, page = case.rng, shape.page
        counts = [-(-(talk.past + talk.rows) // page) for talk in shape.talks]
        total_pages = sum(counts) + 3
        free = iter([int(p) for p in rng.permutation(np.arange(1, total_pages))])  # pages out of order
        tables = [_pages(rng, talk, page, free) for talk in shape.talks]
        rows = [talk.past + i for talk in shape.talks for i in range(talk.rows)]
        slots = [
            ids[(talk.past + i) // page] * page + (talk.past + i) % page
            for talk, (ids, _, _) in zip(shape.talks, tables, strict=True)
            for i in range(talk.rows)
        ]
        starts, words = _masks(rng, shape, counts)
        step = StepInputs(
            token_src=[0] * len(rows),
            positions=[position + 100 for position in rows],
            row_index=rows,
            write_slots=slots,
            query_starts=[sum(t.rows for t in shape.talks[:i]) for i in range(len(shape.talks) + 1)],
            page_starts=[sum(counts[:i]) for i in range(len(counts) + 1)],
            pages=[p for ids, _, _ in tables for p in ids],
            page_bits=[b for _, bits, _ in tables for b in bits],
            fresh_bits=[f for _, _, fresh in tables for f in fresh],
            sample_rows=[0],
            draw_keys=[0, 0],
            mask_starts=starts,
            mask=words,
        )
        spare = 3 if words else 0
        fields = case.step(step, Bucket(len(rows) + 2, len(counts) + 1, 1, sum(counts) + 5, len(words) + spare))
        _record_attention(case, shape, fields, total_pages, tables)

    return make


def _sinks(case: Case, heads: int) -> Value:
    """From one that takes nothing to one that takes everything."""
    sinks = case.weight("sinks", (heads,), F32)
    case.sources["sinks"] = ArraySource((heads,), F32, {"values": np.linspace(-99, 99, heads, dtype=np.float32)[None]})
    case.sources["sinks"].held["values"][0, 1:-1] = case.normal(heads - 2, scale=3)
    return sinks


def _record_attention(case: Case, shape: Attend, fields: dict[str, Value], pages: int, tables: list[Any]) -> None:
    page, kv, width = shape.page, shape.kv_heads, shape.width
    keys = case.normal(pages, kv, width // 4, page, 4)
    values = case.normal(pages, kv, page, width)
    values[0] = np.nan  # what no row sees must not reach a result
    positions = np.zeros((pages, page), np.uint32)
    for ids, _, _ in tables:
        for place, page_id in enumerate(ids):
            positions[page_id] = 100 + place * page + np.arange(page)
    cache = case.state("k", keys), case.state("v", values), case.state("key_positions", positions)
    rows = fields["token_src"].shape[0]
    q = case.row_state("q", case.normal(rows, shape.heads * width, scale=2))
    k, v = (case.row_state(name, case.normal(rows, kv * width)) for name in ("new_k", "new_v"))
    ops.kv_append(case.trace, k, v, fields, cache, heads=kv)
    case.results = (
        ops.attention(
            case.trace,
            q,
            fields,
            cache,
            heads=shape.heads,
            kv_heads=kv,
            scale=width**-0.5,
            window=shape.window,
            softcap=shape.softcap,
            sinks=_sinks(case, shape.heads) if shape.sinks else None,
        ),
    )
    case.written = ("k", "v", "key_positions")
    case.tolerance = 5e-6


ATTENTIONS = {
    "one token": Attend((Talk(0, 1),)),
    "decode": Attend((Talk(37, 1),)),
    "long decode": Attend((Talk(700, 1),), heads=9, kv_heads=3),
    "prefill": Attend((Talk(0, 45),), heads=9, kv_heads=3),
    "prefill after past": Attend((Talk(290, 19),)),
    "batch": Attend((Talk(5, 1), Talk(300, 1), Talk(0, 9), Talk(40, 2), Talk(512, 1))),
    "holes": Attend((Talk(90, 1, holes=True), Talk(280, 5, holes=True))),
    "window": Attend((Talk(90, 1), Talk(0, 70)), window=24),
    "window of one": Attend((Talk(9, 3),), window=1),
    "softcap": Attend((Talk(60, 1), Talk(0, 12)), softcap=5.0),
    "one head each": Attend((Talk(30, 1), Talk(2, 5)), heads=3, kv_heads=3),
    "eight heads share": Attend((Talk(30, 1), Talk(2, 5)), heads=8, kv_heads=1),
    "width 96": Attend((Talk(30, 1), Talk(2, 5)), width=96),
    "width 128": Attend((Talk(30, 1), Talk(2, 5)), width=128),
    "width 256": Attend((Talk(30, 1), Talk(2, 5)), heads=4, kv_heads=1, width=256),
    "width 20": Attend((Talk(30, 1), Talk(2, 5)), width=20),
    "masked": Attend((Talk(40, 1), Talk(300, 1), Talk(90, 12), Talk(3, 2)), masked=(1, 2)),
    "masked, window": Attend((Talk(300, 1), Talk(20, 30)), window=24, masked=(0, 1)),
    "blind": Attend((Talk(4, 1), Talk(40, 3)), masked=(0, 1), blind=True),
    "sinks": Attend((Talk(37, 1), Talk(290, 19), Talk(1100, 1), Talk(0, 9)), sinks=True),
    "sinks, masked, window": Attend(
        (Talk(4, 1), Talk(300, 1), Talk(20, 30), Talk(9, 1)), window=24, masked=(0, 1, 2), blind=True, sinks=True
    ),
    "whole pages": Attend((Talk(31, 1), Talk(16, 16))),
    "page 8": Attend((Talk(300, 1), Talk(2, 35)), page=8),
    "page 32": Attend((Talk(300, 1, holes=True), Talk(2, 35)), page=32),
}
for _name, _shape in ATTENTIONS.items():
    _add(f"attention {_name}", _attention(_shape))
