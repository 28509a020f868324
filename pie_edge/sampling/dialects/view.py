"""A decomposed epilogue as the planner looks at it: what makes each value, its type in one pass, and how dear it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from pie_edge.program.encodings import DType
from pie_edge.program.node_types import Element
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Op, Program, Role
from pie_edge.sampling.dialects.scalar import Memory

Shape = tuple[int, ...]

REDUCTIONS = frozenset(
    {
        "reduce_max",
        "reduce_min",
        "reduce_sum",
        "reduce_argmax",
        "reduce_argmin",
        "reduce_any",
        "reduce_all",
        "gumbel_max",
    }
)
ALGORITHMS = frozenset({"cumsum", "top_k", "sort", "kth_largest", "nucleus", "scatter", "pack_bits"})
"""Nodes that a backend has a kernel of its own for."""

_OPERATIONS = {
    "exp": 25,
    "log": 35,
    "log1p": 45,
    "tanh": 45,
    "sigmoid": 30,
    "pow": 80,
    "floordiv": 15,
    "mod": 15,
    "uniform": 130,
    "gumbel": 190,
    "gather": 5,
    "take_along": 5,
    "cast": 4,
}
"""Scalar operations that a node's expression takes, where they are more than a few."""


def kind(op: Op) -> str:
    return op.kind.removeprefix(PREFIX)


@dataclass(frozen=True)
class View:
    program: Program

    @cached_property
    def producers(self) -> dict[str, Op]:
        return {name: op for op in self.program.ops for name in op.outputs}

    @cached_property
    def consumers(self) -> dict[str, list[Op]]:
        found: dict[str, list[Op]] = {}
        for op in self.program.ops:
            for name in dict.fromkeys(op.inputs):
                found.setdefault(name, []).append(op)
        return found

    def shape(self, name: str) -> Shape:
        """Of one pass."""
        return self.program.values[name].shape[1:]

    def size(self, name: str) -> int:
        return prod(self.shape(name))

    def element(self, name: str) -> Element:
        dtype = self.program.values[name].dtype
        return Element.BOOL if dtype is DType.U8 else Element(dtype.value)

    def is_output(self, name: str) -> bool:
        return self.program.values[name].role is Role.OUTPUT

    def is_given(self, name: str) -> bool:
        """An input or a state: nothing of the epilogue makes it."""
        return name not in self.producers

    def memory(self, name: str) -> Memory:
        """Where a made value lies. Outputs that are bools are words in the arena until they are packed."""
        return Memory.OUTPUTS if self.is_output(name) and self.element(name) is not Element.BOOL else Memory.ARENA

    @staticmethod
    def operations(op: Op) -> int:
        return _OPERATIONS.get(kind(op), 2)
