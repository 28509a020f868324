"""A traced epilogue's Program made ready for any device: what the engine adds to it apart, and a plan for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pie_edge.backends.shared.epilogue_presets import Sampler, sampler
from pie_edge.program.nodes import KEEP_TOKEN, PREFIX, TAKE_KEPT
from pie_edge.program.ops import Op, Program, Role
from pie_edge.sampling.dialects import kernel as plans
from pie_edge.sampling.dialects.planner import plan
from pie_edge.sampling.dialects.scalar import Memory


@dataclass(frozen=True)
class Prepared:
    program: Program
    """What the author wrote, with all parameters as inputs."""
    takes: tuple[Op, ...]
    keeps: tuple[Op, ...]
    sampler: Sampler | None
    """The one kernel that does it all, where there is one."""
    plan: plans.Plan

    @property
    def states(self) -> dict[Memory, str]:
        """What kernels are bound to. Where no hidden states are read the logits stand in their place, and nobody looks."""
        hidden = "hidden" if "hidden" in self.program.values else "logits"
        return {Memory.LOGITS: "logits", Memory.HIDDEN: hidden}

    @property
    def given(self) -> dict[str, str]:
        """Where each input lies: a parameter that is taken, in the place of what was given for it."""
        taken = {op.outputs[0]: op.inputs[0] for op in self.takes}
        return {value.name: taken.get(value.name, value.name) for value in self.program.by_role(Role.INPUT)}


def prepare(program: Program, presets: bool, round_bytes: int) -> Prepared:
    takes = tuple(op for op in program.ops if op.kind == PREFIX + TAKE_KEPT)
    keeps = tuple(op for op in program.ops if op.kind == PREFIX + KEEP_TOKEN)
    theirs = _without(program, takes, keeps)
    made = sampler(theirs) if presets else None
    planned = _sampler_plan(theirs, made, round_bytes) if made else plan(theirs, round_bytes)
    return Prepared(theirs, takes, keeps, made, planned)


def _without(program: Program, takes: Sequence[Op], keeps: Sequence[Op]) -> Program:
    """What the author wrote: without the engine's nodes, their slots and tokens, and with all parameters as inputs."""
    theirs = {name for op in (*takes, *keeps) for name in op.inputs[1:]} | {op.inputs[0] for op in takes}
    values = {name: value for name, value in program.values.items() if name not in theirs}
    values |= {op.outputs[0]: replace(values[op.outputs[0]], role=Role.INPUT) for op in takes}
    return replace(program, values=values, ops=tuple(op for op in program.ops if op not in takes and op not in keeps))


def _sampler_plan(program: Program, made: Sampler, round_bytes: int) -> plans.Plan:
    passes = program.values["out0"].shape[0]
    slots = max(1, min(passes, round_bytes // (4 * made.words)))
    return plans.Plan(passes, slots, (), (), slots * made.words, {"list": 0})
