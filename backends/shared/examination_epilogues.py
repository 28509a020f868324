"""The part of self-tests that runs epilogues on the device: nodes that are algorithms of their own, and the sampling preset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.shared.examination import ANSWERS, Paper
from pie_edge.backends.shared.selftest import Examination, scattered
from pie_edge.program.ops import Program, Role
from pie_edge.sampling import Pool, parse, presets

_VOCABULARY, _PASSES = 300, 2


def papers() -> Iterator[Paper]:
    for name, exam in (("nodes", _nodes()), ("sampling", _sampling())):
        yield Paper("epilogues", exam, ANSWERS, name, tolerance=0)


def _nodes() -> Examination:
    """Every node that is an algorithm. Logits are whole quarters, no two of them equal: sums are exact."""
    wire = presets.Wire()
    x = wire.add("logits")
    best = wire.add("top_k", x, k=5)
    above = wire.add("ge", x, wire.add("kth_largest", x, wire.parameter("<I", "u32", 9), keepdims=True))
    shown: list[Any] = [
        *([node, result] for node in (wire.add("sort", x, descending=False), best) for result in (0, 1)),
        wire.add("cumsum", x),
        wire.add("nucleus", x, wire.parameter("<f", "f32", 0.7), keepdims=True),
        wire.add("scatter", x, [best, 1], [best, 0], mode="add"),
        wire.add("pack_bits", above),
        above,
    ]
    return _epilogue(wire.call(*shown), Pool(0))


def _sampling() -> Examination:
    """The preset's kernel, and what takes its temperatures from the engine's tokens and keeps its own among them."""
    return _epilogue(presets.sample(0.8, 40, 0.9), Pool(4, kept=(0,), taken=(0,)))


def _epilogue(call: presets.PresetCall, pool: Pool) -> Examination:
    epilogue = parse(call.wire, vocabulary=_VOCABULARY, rows=1)
    program = epilogue.program(_PASSES, _PASSES, pool)
    order = np.arange(_PASSES * _VOCABULARY) * 7919 % _VOCABULARY
    logits = (order.reshape(_PASSES, _VOCABULARY) / 4 - 30).astype(np.float32)
    states: dict[str, NDArray[Any]] = {"logits": logits}
    if pool:
        states["tokens"] = np.linspace(0.5, 2.0, pool.slots, dtype=np.float32).view(np.uint32)
    return Examination(program, {}, states, _given(program, call), kept=("tokens",) if pool else (), digest=scattered)


def _given(program: Program, call: presets.PresetCall) -> Mapping[str, bytes]:
    """Each pass has a row of its own."""
    known = {"counts": np.uint32(_PASSES).tobytes()}
    known |= {f"{kind}{n}": data * _PASSES for n, data in enumerate(call.parameters) for kind in ("param", "given")}
    sizes = {value.name: value.size for value in program.by_role(Role.INPUT)}
    return {name: known.get(name, np.arange(size, dtype=np.uint32).tobytes()) for name, size in sizes.items()}
