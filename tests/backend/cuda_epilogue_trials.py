"""Trials of the kernels of epilogues' nodes, and of what the planner's kernels include."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pie_edge.backends.cuda.backend import CudaBackend
from pie_edge.program.node_reference import run_nodes
from pie_edge.sampling import Pool, parse
from tests.backend.cuda_bench import Trial
from tests.support.epilogue_device import Session
from tests.support.epilogues import Wire, check_results, random_arrays

Given = Sequence[tuple[str, Sequence[int], int]]
"""Parameters' types, shapes, and bounds of the whole numbers in them."""


def _epilogue(
    name: str,
    text: str,
    given: Given = (),
    vocabulary: int = 301,
    presets: bool = False,
    spare: int = 1,
    **changed: Any,
) -> Trial:
    """Of three passes; ``changed`` are inputs in place of random ones. What is last in the first pass's row matters, and so would
    what comes after it."""

    def run(backend: CudaBackend) -> None:
        program, arrays = random_arrays(parse(text, vocabulary=vocabulary, rows=1), given, 3, spare, seed=4)
        first, logits = int(arrays["rows"][0]), arrays["logits"]
        logits[first, -1], logits[(first + 1) % len(logits), 0] = 40, 50
        arrays |= changed
        session = Session(backend)
        try:
            found = session.run(program, arrays, presets=presets)
        finally:
            session.end()
        check_results(found, program, arrays)

    return Trial(f"epilogue {name}", run)


def _of_logits(op: str, parameter: str = "", results: int = 1, **attributes: Any) -> str:
    wire = Wire()
    node = wire.add(op, wire.add("logits"), *([wire.parameter(parameter, [])] if parameter else []), **attributes)
    return wire.text(*([node, result] for result in range(results)))


def _sorted() -> str:
    """By whole numbers, rising."""
    wire = Wire()
    node = wire.add("sort", wire.add("cast", wire.add("logits"), dtype="i32"), descending=False)
    return wire.text([node, 0], [node, 1])


def _scattered(mode: str) -> str:
    """Some indices twice, some outside."""
    wire = Wire()
    given = wire.parameter("u32", [40]), wire.parameter("f32", [40])
    return wire.text(wire.add("scatter", wire.add("logits"), *given, mode=mode))


def _bits() -> str:
    wire = Wire()
    kept = wire.add("gt", wire.add("logits"), wire.parameter("f32", []))
    return wire.text(kept, wire.add("pack_bits", kept))


def _reduced() -> str:
    """Of floats, of whole numbers, and to indices, of which several have the largest value."""
    wire = Wire()
    x, whole = wire.add("logits"), wire.parameter("u32", [150])
    ops = ("logsumexp", "reduce_sum", "reduce_argmax", "reduce_argmin", "reduce_max")
    sums = [wire.add("reduce_sum", value) for value in (whole, wire.add("mul", whole, whole))]
    return wire.text(*(wire.add(op, x) for op in ops), *sums, wire.add("reduce_argmax", whole))


def _sampled(*stages: str, mask: int = 0) -> str:
    """A draw of logits over a temperature, narrowed; with a mask of so many words."""
    wire = Wire()
    x = wire.add("logits")
    if mask:
        x = wire.add("mask_logits", x, wire.parameter("u32", [mask]))
    x = wire.add("div", x, wire.parameter("f32", []))
    for stage in stages:
        edge = wire.add(stage, x, wire.parameter("u32" if stage == "kth_largest" else "f32", []), keepdims=True)
        x = wire.add("select", wire.add("ge", x, edge), x, wire.add("constant", value="-inf"))
    return wire.text(wire.add("gumbel_max", x))


def _pooled(backend: CudaBackend) -> None:
    """A parameter is taken from the engine's tokens and a result is kept among them, where slots are theirs."""
    wire = Wire()
    x = wire.add("add", wire.parameter("f32", [3]), wire.parameter("f32", []))
    text = wire.text(wire.add("reduce_argmax", wire.add("logits")), x)
    epilogue, past = parse(text, vocabulary=65, rows=1), 4_000_000_000
    pool = Pool(9, kept=(1,), taken=(0,))
    program, (_, inputs) = (
        epilogue.program(5, 6, pool),
        random_arrays(epilogue, [("f32", (3,), 9), ("f32", (), 9)], 4, 1, seed=6),
    )
    arrays = inputs | {
        "given0": inputs["param0"],
        "slots0": np.asarray([[3, 4, 9], [past, past, 4], [8, 0, 1], [5, 4, 3], [1, 1, 1]], np.uint32),
        "kept1": np.asarray([[6, 7, 8], [past, past, 9], [0, 1, 2], [past, 3, 4], [5, 5, 5]], np.uint32),
    }
    del arrays["param0"]
    tokens = np.linspace(0.5, 4.5, 9, dtype=np.float32).view(np.uint32)
    session, expected = Session(backend), tokens.copy()
    try:
        found, kept = session.run_and_keep(program, arrays | {"tokens": tokens})
    finally:
        session.end()
    check_results(found, program, arrays | {"tokens": tokens.copy()})
    run_nodes(program, arrays | {"tokens": expected})
    assert kept.tolist() == expected.tolist()


def _rows(values: Mapping[int, float], other: float = 0.0) -> Any:
    """Logits of all rows: these values at their places."""
    row = np.full(301, other, np.float32)
    row[list(values)] = list(values.values())
    return np.broadcast_to(row, (5, 301)).copy()


def _ties() -> Any:
    """Of whole numbers, the largest twice: by threads side by side, and by threads of two warps."""
    found = np.ones((4, 150), np.uint32)
    for row, places in zip(found, ((0, 1), (63, 64), (149, 3), (7, 40)), strict=True):
        row[list(places)] = 9
    return found


_INDICES = np.random.default_rng(7).integers(0, 320, (4, 40)).astype(np.uint32)
_INDICES[:, :3] = 300, 301, 0
_SHARES = np.float32([0.3, 0.7, 0.95, 0.5])
_HEAT = {"param0": np.float32([0.5, 5.0, 20.0, 2.0])}
_COUNTS: Given = [("f32", (), 3), ("u32", (), 40)]
_SAMPLED = _sampled("kth_largest")
EPILOGUES = (
    _epilogue("kth-largest", _of_logits("kth_largest", "u32"), [("u32", (), 40)], param0=np.uint32([1, 7, 40, 2])),
    _epilogue("nucleus", _of_logits("nucleus", "f32"), [("f32", (), 1)], param0=_SHARES),
    _epilogue(
        "nucleus of all",
        _of_logits("nucleus", "f32"),
        [("f32", (), 1)],
        param0=np.ones(4, np.float32),
        logits=_rows({300: -5}),
    ),
    _epilogue("top-5", _of_logits("top_k", results=2, k=5)),
    _epilogue("top-3 of four", _of_logits("top_k", results=2, k=3), logits=_rows({7: 5, 9: 4, 20: 4, 100: 4})),
    _epilogue("top-90", _of_logits("top_k", results=2, k=90)),
    _epilogue("top-1030", _of_logits("top_k", results=2, k=1030), vocabulary=1100),
    _epilogue("sort of integers", _sorted()),
    _epilogue("sort", _of_logits("sort", results=2, descending=True), vocabulary=64),
    _epilogue("cumsum", _of_logits("cumsum")),
    *(
        _epilogue(f"scatter {mode}", _scattered(mode), [("u32", (40,), 320), ("f32", (40,), 5)], param0=_INDICES)
        for mode in ("add", "max", "min")
    ),
    _epilogue("bits", _bits(), [("f32", (), 5)], spare=0),
    _epilogue("reductions", _reduced(), [("u32", (150,), 9)], param0=_ties()),
    *(
        _epilogue(f"sample by k of {vocabulary}", _SAMPLED, _COUNTS, vocabulary, True, **_HEAT)
        for vocabulary in (301, 304)
    ),
    # The least key that is left is where a digit begins; the last entry is the only one that is left; the later of two is.
    *(
        _epilogue(
            f"sample of {name}",
            _SAMPLED,
            _COUNTS,
            presets=True,
            logits=logits,
            param0=np.full(4, heat, np.float32),
            param1=np.full(4, count, np.uint32),
        )
        for name, logits, heat, count in (
            ("two", _rows({50: 8, 60: 8}, 7), 1, 2),
            ("the last", _rows({**dict.fromkeys(range(50, 80), 10), 300: 40}), 100, 1),
            ("the later", _rows({50: 10, 60: 10.5}), 1, 1),
        )
    ),
    _epilogue(
        "sample by p of the last",
        _sampled("nucleus", mask=10),
        [("u32", (10,), 9), ("f32", (), 3), ("f32", (), 1)],
        presets=True,
        logits=_rows({**dict.fromkeys(range(50, 80), 0.1), 300: 0.4}),
        param0=np.full((4, 10), 2**32 - 1, np.uint32),
        param1=np.ones(4, np.float32),
        param2=np.full(4, 0.004, np.float32),
    ),
    _epilogue(
        "sample by k, p and a share",
        _sampled("kth_largest", "nucleus", "min_p"),
        [*_COUNTS, ("f32", (), 1), ("f32", (), 1)],
        presets=True,
        **_HEAT,
        param2=_SHARES,
        param3=np.float32([0.1, 0.0, 1e-39, 0.5]),
    ),
    _epilogue(
        "sample by p of what a mask leaves",
        _sampled("nucleus", mask=10),
        [("u32", (10,), 2**32 - 2), ("f32", (), 3), ("f32", (), 1)],
        presets=True,
        param1=_HEAT["param0"],
        param2=_SHARES,
    ),
    Trial("epilogue with the engine's tokens", _pooled),
)
