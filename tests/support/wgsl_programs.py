"""The Programs of the tests that wgpu's shaders are made for: op cases, copies, tiny models of each family, epilogues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pie_edge.backends.shared.weights import supports
from pie_edge.model import registry
from pie_edge.program.encodings import DType
from pie_edge.program.expand import expand
from pie_edge.program.ops import Program
from pie_edge.sampling import Pool, parse, presets
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.source import weight_sources
from tests.backend import copy_cases, device_cases
from tests.pure.test_sampling_nodes import RUNS, of_one_node
from tests.support import family_oracle
from tests.support.epilogues import Wire
from tests.support.family_configs import CONFIGS
from tests.support.oracle_run import cache_for, whole_pass, with_states
from tests.support.wide_epilogues import TEXTS

Made = tuple[Program, Mapping[str, Any]]
"""A Program, and where its weights come from."""
_SAMPLING: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {},
    {"top_k": 40},
    {"top_p": 0.9},
    {"min_p": 0.1},
    {"top_k": 40, "top_p": 0.9, "min_p": 0.1},
)


def op_cases() -> Iterator[Made]:
    for name in device_cases.NAMES:
        case = device_cases.build(name)
        yield case.program, case.sources
    for slots in (True, False):
        yield copy_cases.program(slots), {}


def models(folder: Path, kinds: frozenset[str], odd: bool) -> Iterator[Made]:
    """Every family's tiny model, with keys and values in half precision and in exact mode. ``kinds`` have kernels, and ``odd``
    is whether codes of five and six bits do."""
    for name in CONFIGS:
        oracle = family_oracle.read(name)
        checkpoint = open_checkpoint(oracle.write(folder / name, "safetensors"))
        facts = registry.facts(checkpoint, oracle.context)
        spec, family = registry.read(facts), registry.family(facts)
        found = weight_sources(checkpoint.tensors, family.weights(spec), partial(supports, odd=odd))
        step = whole_pass(oracle.tokens)
        step = with_states(step) if spec.recurrent else step
        encodings = {name: source.target for name, source in found.items()}
        for dtype in (DType.F16, DType.F32):
            program = family.trace(spec, step.counts, cache_for((step,), dtype), encodings)
            yield expand(program, kinds), found


def drawing() -> list[str]:
    """Presets that draw tokens, as text."""
    return [presets.sample(**settings).wire for settings in _SAMPLING]


def epilogues() -> Iterator[Program]:
    """Each node of the table, presets, and rows as wide as vocabularies."""
    for run in RUNS:
        epilogue, _ = of_one_node(run)
        yield epilogue.program(3 * epilogue.rows, 3 * epilogue.rows)
    for vocabulary in (301, 49152, 262144):
        for text in (*drawing(), *(TEXTS.values() if vocabulary > 301 else ())):
            yield parse(text, vocabulary=vocabulary, rows=1).program(7, 7)
    wire = Wire()
    drawn = wire.add("gumbel_max", wire.add("div", wire.add("logits"), wire.parameter("f32", [])))
    yield parse(wire.text(drawn), vocabulary=301, rows=1).program(5, 7, Pool(9, kept=(0,), taken=(0,)))
