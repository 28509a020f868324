"""The epilogues that every host needs, as traced epilogues like any other, and how to know them again.

A backend may run a preset with a kernel of its own: ``recognise`` looks at the structure of a lowered Program, so it
finds a preset whether a host built it here, the SDK's ``sample`` traced it, or an author wrote the nodes by hand.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pie_edge.errors import EpilogueError
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Op, Program, Role
from pie_edge.sampling.wire import VERSION

_THRESHOLDS = {"kth_largest": "top_k", "nucleus": "top_p", "min_p": "min_p"}
_FINALS = {"reduce_argmax": "argmax", "gumbel_max": "sample"}


@dataclass(frozen=True, slots=True)
class Stage:
    """One step from logits to token: ``mask``, ``temperature``, ``top_k``, ``top_p`` or ``min_p``.

    ``argument`` is the name of the Program's input that holds it for each pass, or a constant for all.
    """

    name: str
    argument: str | float


@dataclass(frozen=True, slots=True)
class Preset:
    """``argmax`` or ``sample`` over one row's logits after ``stages``, in their order."""

    name: str
    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(stage.name for stage in self.stages)})" if self.stages else self.name


@dataclass(frozen=True, slots=True)
class PresetCall:
    """An epilogue's wire form, and its parameters' bytes as a forward call takes them."""

    wire: str
    parameters: tuple[bytes, ...]


def argmax() -> PresetCall:
    """The likeliest token of the last row."""
    wire = Wire()
    return wire.call(wire.add("reduce_argmax", wire.add("logits"), axis=-1, keepdims=False))


def sample(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> PresetCall:
    """A token drawn from the last row, narrowed by top-k, then top-p, then min-p; ``argmax()`` at temperature 0.

    ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off. Raises EpilogueError for a value that means nothing.
    """
    check_settings(temperature, top_k, top_p, min_p)
    if temperature == 0:
        return argmax()
    wire = Wire()
    x = wire.add("div", wire.add("logits"), wire.parameter("<f", "f32", temperature))
    if top_k:
        x = wire.keep(x, "kth_largest", wire.parameter("<I", "u32", top_k))
    if top_p < 1:
        x = wire.keep(x, "nucleus", wire.parameter("<f", "f32", top_p))
    if min_p:
        x = wire.keep(x, "min_p", wire.parameter("<f", "f32", min_p))
    return wire.call(wire.add("gumbel_max", x))


def check_settings(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    if not 0 <= temperature < 1e6:
        raise EpilogueError(f"temperature is {temperature}; give 0 (the likeliest token) or more")
    if not 0 <= top_k < 2**31:
        raise EpilogueError(f"top_k is {top_k}; give 0 (off) or how many tokens to keep")
    if not 0 < top_p <= 1:
        raise EpilogueError(f"top_p is {top_p}; give a probability above 0, 1 is off")
    if not 0 <= min_p <= 1:
        raise EpilogueError(f"min_p is {min_p}; give a share of the likeliest token's probability, 0 is off")


def recognise(program: Program) -> Preset | None:
    """The preset that a lowered epilogue is, or None."""
    producers = {name: op for op in program.ops for name in op.outputs}
    last = producers.get("out0")
    name = _FINALS.get(_node(last))
    if last is None or name is None or len(program.by_role(Role.OUTPUT)) != 1 or not _on_last_row(last):
        return None
    stages: list[Stage] = []
    op = producers.get(last.inputs[0])
    while op is not None and _node(op) != "logits":
        stage = _stage(op, producers)
        if stage is None:
            return None
        stages.append(stage)
        # Every stage names the row it narrows; ``select`` has it second, after the condition.
        op = producers.get(op.inputs[1 if _node(op) == "select" else 0])
    return Preset(name, tuple(reversed(stages))) if op is not None and _on_last_row(op) else None


def _on_last_row(op: Op) -> bool:
    given = dict(op.attributes)
    return given.get("rows", 0) == 0 and given.get("axis", -1) == -1 and not given.get("keepdims", False)


def _stage(op: Op, producers: Mapping[str, Op]) -> Stage | None:
    match _node(op):
        case "select":
            return _narrowing(op, producers)
        case "div":
            return _named("temperature", op.inputs[1], producers)
        case "mask_logits":
            return _named("mask", op.inputs[1], producers)
    return None


def _narrowing(op: Op, producers: Mapping[str, Op]) -> Stage | None:
    """``select(x >= threshold(x, argument), x, -inf)``."""
    condition, x, rest = op.inputs
    compare, other = producers.get(condition), producers.get(rest)
    if _node(compare) != "ge" or _node(other) != "constant" or compare is None or other is None:
        return None
    threshold = producers.get(compare.inputs[1])
    name = _THRESHOLDS.get(_node(threshold))
    if threshold is None or name is None or other.number("value") != float("-inf"):
        return None
    if compare.inputs[0] != x or threshold.inputs[0] != x:
        return None
    return _named(name, threshold.inputs[1], producers)


def _named(name: str, argument: str, producers: Mapping[str, Op]) -> Stage | None:
    """A stage whose argument is an input of the Program or a constant, and not something computed."""
    op = producers.get(argument)
    if op is None:
        return Stage(name, argument)
    return Stage(name, op.number("value")) if _node(op) == "constant" else None


def _node(op: Op | None) -> str:
    return op.kind.removeprefix(PREFIX) if op else ""


class Wire:
    """Writes a wire form node by node."""

    def __init__(self) -> None:
        self._nodes: list[dict[str, Any]] = []
        self._parameters: list[bytes] = []

    def add(self, op: str, *inputs: int | list[int], **attributes: Any) -> int:
        """Operands are nodes, or one of a node's results: [node, result]."""
        self._nodes.append({"op": op, "in": list(inputs), "attrs": attributes})
        return len(self._nodes) - 1

    def parameter(self, layout: str, dtype: str, value: float) -> int:
        self._parameters.append(struct.pack(layout, value))
        return self.add("param", index=len(self._parameters) - 1, dtype=dtype, shape=[])

    def keep(self, x: int, threshold: str, argument: int) -> int:
        above = self.add("ge", x, self.add(threshold, x, argument, keepdims=True))
        return self.add("select", above, x, self.add("constant", value="-inf"))

    def call(self, *outputs: int | list[int]) -> PresetCall:
        result = "one" if len(outputs) == 1 else "tuple"
        document = {"v": VERSION, "nodes": self._nodes, "outputs": list(outputs), "result": result}
        return PresetCall(json.dumps(document, separators=(",", ":")), tuple(self._parameters))
