"""What CUDA's self-test runs after that of all devices (``shared/examination.py``), whose few rows and narrow heads come to no
tensor core: products of many rows, prompts' attention, copies, and the nodes of epilogues. On a card these have what no emulator
has judged: ``mma``, ``wgmma``, TMA, and copies that go on their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.shared import examination_epilogues
from pie_edge.backends.shared.examination import Paper, precision
from pie_edge.backends.shared.selftest import Examination, Recorder, scattered, wave
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup
from pie_edge.program.ops import Role, Value
from pie_edge.program.step import StepInputs, StepLayout

ANSWERS = Path(__file__).with_name("examination.json")
TILED: tuple[Encoding, ...] = (
    Dense(DType.F16),
    Affine(4, 32, DType.F16, None),
    Affine(4, 64, DType.F16, 8),
    Affine(5, 32, DType.F16, 16),
    Affine(6, 64, DType.F32, None),
    Affine(8, 32, DType.F32, 128),
    Affine(8, 32, DType.F16, None),
    Lookup(32, DType.BF16, (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0)),
    Dense(DType.BF16),
    Affine(6, 16, DType.F32, 32),
    Affine(4, 16, DType.F16, 8),
)
"""Every format that tensor cores take, and every kind of scale."""
_PAGE, _HEADS, _KV_HEADS = 16, 4, 2
_EARLIER = (70, 0, 40)
"""Tokens that are there before this step, of three sequences: a prompt that goes on, a short one, and a decode."""
_NEW = (66, 3, 1)
_COLUMNS = {16: 368, 32: 352, 64: 384}
"""By groups: more stages of columns than any variant has in flight, the last one not always whole."""


def papers(halves: bool) -> Iterator[Paper]:
    """``halves``: keys and values are float16."""
    kind = precision(halves)
    yield Paper("tensor cores", many_rows(halves), ANSWERS, f"many rows {kind}")
    for slots in (False, True):
        yield Paper("copies", _copies(slots, halves), ANSWERS, f"copies {slots} {kind}", tolerance=0)
    yield from examination_epilogues.papers()


def many_rows(halves: bool) -> Examination:
    """More rows than a tile has, by matrices whose rows are no whole blocks."""
    rec, step = Recorder(), _step()
    t, layout = rec.trace, StepLayout(step.counts)
    fields, rows = t.step(layout), sum(_NEW)
    xs = {n: rec.state(f"x{n}", wave(rows * n, n).reshape(rows, n)) for n in sorted({*_COLUMNS.values(), 360})}
    for number, encoding in enumerate(TILED):
        columns = 360 if isinstance(encoding, Dense) else _COLUMNS[encoding.group]
        weight = rec.weight(f"w{number}", (150, columns), encoding)
        rec.show(ops.linear(t, xs[columns], weight, rec.weight(f"b{number}", (150,))))
    x = xs[_COLUMNS[32]]

    def product(name: str, outputs: int) -> Value:
        return ops.linear(t, x, rec.weight(name, (outputs, x.shape[1]), TILED[1]))

    rec.show(ops.glu(t, product("gate", 72), product("up", 72), act="silu"))
    together = [product(f"together{outputs}", outputs) for outputs in (96, 24, 40)]
    for one in together:
        rec.show(one)
    for head in (64, 128) if halves else ():
        shape: dict[str, Any] = {"heads": _HEADS, "kv_heads": _KV_HEADS, "scale": head**-0.5}
        q = rec.state(f"q{head}", wave(rows * _HEADS * head, head).reshape(rows, _HEADS * head))
        cache = _cache(rec, head)
        rec.show(ops.attention(t, q, fields, cache, **shape))
        sinks = rec.weight(f"sinks{head}", (_HEADS,))
        rec.show(ops.attention(t, q, fields, cache, **shape, window=37, softcap=4.0, sinks=sinks))
    return Examination(rec.program(), rec.sources, rec.states, {"step": layout.pack(step).tobytes()}, digest=scattered)


def _pages() -> list[int]:
    """Of each sequence."""
    return [-(-(earlier + new) // _PAGE) for earlier, new in zip(_EARLIER, _NEW, strict=True)]


def _step() -> StepInputs:
    lengths = [earlier + new for earlier, new in zip(_EARLIER, _NEW, strict=True)]
    positions = [p for length, new in zip(lengths, _NEW, strict=True) for p in range(length - new, length)]
    starts = [0, *np.cumsum(_pages()).tolist()]
    written = [range(length) for length in lengths]
    fresh = [range(earlier, length) for earlier, length in zip(_EARLIER, lengths, strict=True)]
    return StepInputs(
        token_src=[0] * len(positions),
        positions=positions,
        row_index=positions,
        write_slots=[0] * len(positions),
        query_starts=[0, *np.cumsum(_NEW).tolist()],
        page_starts=starts,
        pages=list(range(1, 1 + starts[-1])),
        page_bits=_bits(written),
        fresh_bits=_bits(fresh),
        sample_rows=[0],
        draw_keys=[0, 0],
    )


def _bits(tokens: list[range]) -> list[int]:
    """Of each page, which of these tokens of its sequence it has."""
    return [
        sum(1 << i for i in range(_PAGE) if page * _PAGE + i in of)
        for of, count in zip(tokens, _pages(), strict=True)
        for page in range(count)
    ]


def _cache(rec: Recorder, head: int) -> tuple[Value, Value, Value]:
    counts = _pages()
    pages = 1 + sum(counts)
    places = [[0] * _PAGE, *([page * _PAGE + i for i in range(_PAGE)] for count in counts for page in range(count))]
    size = pages * _KV_HEADS * head * _PAGE
    keys = wave(size, 1).reshape(pages, _KV_HEADS, head // 8, _PAGE, 8)
    values = wave(size, 2).reshape(pages, _KV_HEADS, _PAGE, head)
    return (
        rec.state(f"keys{head}", keys.astype(np.float16)),
        rec.state(f"values{head}", values.astype(np.float16)),
        rec.state(f"key_positions{head}", np.array(places, np.uint32)),
    )


def _copies(slots: bool, halves: bool) -> Examination:
    """Of pages, or of tokens within and between them, all at once."""
    kind, vector = (np.float16, 8) if halves else (np.float32, 4)
    states: dict[str, NDArray[Any]] = {
        "keys": wave(5 * 2 * 64 * 8, 3).reshape(5, 2, 64 // vector, 8, vector).astype(kind),
        "values": wave(5 * 2 * 64 * 8, 4).reshape(5, 2, 8, 64).astype(kind),
        "key_positions": np.arange(5 * 8, dtype=np.uint32).reshape(5, 8),
    }
    dtypes = {"float16": DType.F16, "float32": DType.F32, "uint32": DType.U32}
    values = [Value(name, Role.STATE, dtypes[str(a.dtype)], a.shape) for name, a in states.items()]
    pairs = [(8, 9), (9, 10), (10, 33), (33, 8)] if slots else [(1, 3), (1, 4)]
    sources, targets = (np.array(one, np.uint32).tobytes() for one in zip(*pairs, strict=True))
    inputs = {"counts": np.uint32(len(pairs)).tobytes(), "sources": sources, "targets": targets}
    program = ops.copy_program(values, len(pairs), slots=slots)
    return Examination(program, {}, states, inputs, kept=tuple(states), digest=scattered)
