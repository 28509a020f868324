"""Epilogues that are presets, by a kernel of their own: one launch samples a token for each pass.

Only what narrows the choice is worth one. ``argmax`` and plain sampling become one fused kernel from the planner, which does
the same work.
"""

from __future__ import annotations

from math import inf

from pie_edge.backends.shared.epilogue_algorithms import L, Run, Site, copies, lanes, mass_unit
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Program
from pie_edge.sampling.dialects.kernel import Place
from pie_edge.sampling.dialects.scalar import Memory
from pie_edge.sampling.presets import Preset, Stage, recognise

_NARROWING = {"top_k": 1, "top_p": 2, "min_p": 3}
_PREPARING = ("mask", "temperature")
_MOST_STAGES = 4
_NOWHERE = 0xFFFFFFFF
_OPERANDS = (Place("logits", Memory.LOGITS, 0, 0, True), Place("inputs", Memory.INPUTS, 0, 0, True))
_RESULTS = (Place("list", Memory.ARENA, 0, 0, False), Place("out0", Memory.OUTPUTS, 0, 1, True))


class Sampler:
    """A sampling preset's Program as one launch a round."""

    def __init__(self, program: Program, preset: Preset) -> None:
        self._program = program
        self._narrowing = [stage for stage in preset.stages if stage.name in _NARROWING]
        self._preparing = [stage for stage in preset.stages if stage.name in _PREPARING]
        self.extent = program.values["logits"].shape[1]
        self.words = 2 * self.extent
        """Of the arena, for a pass."""

    def launches(self, site: Site[L]) -> tuple[L, ...]:
        by_name = {stage.name: stage for stage in self._preparing}
        masked = 0 if "mask" not in by_name else 1 if self._preparing[0].name == "mask" else 2
        stages = [_NARROWING[stage.name] for stage in self._narrowing]
        constants = (
            lanes(site.facts, self.extent, (4 + 4 * len(stages)) * self.extent),
            copies(site.facts),
            masked,
            "temperature" in by_name,
            *(stages + [0] * _MOST_STAGES)[:_MOST_STAGES],
            self.extent % 4 == 0,
        )
        draw = next(op for op in self._program.ops if "out0" in op.outputs)
        push = (
            self.extent,
            draw.integer("pass_rows"),
            *(site.starts[name] for name in ("rows", "positions", "draw_keys")),
            draw.integer("draw"),
            mass_unit(self.extent),
            _argument(by_name.get("mask"), site)[0],
            *_argument(by_name.get("temperature"), site),
        )
        arguments = [*self._narrowing, *[None] * _MOST_STAGES][:_MOST_STAGES]
        push = (*push, *(word for stage in arguments for word in _argument(stage, site)))
        return (site.launch(Run("sample", _OPERANDS, _RESULTS, 1, constants, push)),)


def _argument(stage: Stage | None, site: Site[L]) -> tuple[int, int | float]:
    """Where a stage's argument begins in the inputs, or what it is for all passes."""
    if stage is None:
        return _NOWHERE, 0
    if isinstance(stage.argument, str):
        return site.starts[stage.argument], 0
    return _NOWHERE, int(stage.argument) if stage.name == "top_k" else stage.argument


def sampler(program: Program) -> Sampler | None:
    """The kernel of a preset that narrows the choice, or None."""
    preset = recognise(program)
    if preset is None or preset.name != "sample":
        return None
    names = [stage.name for stage in preset.stages]
    narrowing = [name for name in names if name in _NARROWING]
    preparing = names[: len(names) - len(narrowing)]
    fits = (
        0 < len(narrowing) <= _MOST_STAGES
        and narrowing != ["min_p"]
        and all(name in _PREPARING for name in preparing)
        and len(set(preparing)) == len(preparing)
        and all(_readable(program, stage) for stage in preset.stages)
    )
    return Sampler(program, preset) if fits else None


def _readable(program: Program, stage: Stage) -> bool:
    """The kernel takes a word for each pass, unsigned for top-k; and a mask for each pass."""
    if isinstance(stage.argument, float):
        return stage.name != "mask" and (stage.name != "top_k" or 0 <= stage.argument < inf)
    value = program.values[stage.argument]
    if stage.name == "mask":
        return len(value.shape) == 2
    return len(value.shape) == 1 and value.dtype is (DType.U32 if stage.name == "top_k" else DType.F32)
