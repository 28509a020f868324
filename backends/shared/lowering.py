"""What lowering an op may look at, whatever the API: the Program, where its values lie, the variants, and the step's shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from pie_edge.backends.shared.fuse import FUSED
from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.region import B, Region
from pie_edge.backends.shared.rope import frequencies
from pie_edge.backends.shared.shapes import HEADER, StepShape, counted_rows
from pie_edge.backends.shared.weights import Matrix, Vector, Weight
from pie_edge.program.ops import KINDS, Op, Program

ACTIVATIONS = {"none": 0, "silu": 1, "gelu_tanh": 2, "gelu": 3, "relu": 4, "sigmoid": 5}
"""As kernels number them that are told."""
Lower = Callable[[Any, Op], list[Any]]
"""Of a lowering, the launches of an op."""


def by_kind(*modules: ModuleType) -> dict[str, Lower]:
    """The functions of these modules that are called like a kind of op, which they lower."""
    kinds = (*KINDS, *FUSED)
    return {kind: getattr(module, kind) for module in modules for kind in kinds if hasattr(module, kind)}


class Variants(Protocol):
    """What an API chooses its kernels by; it has more."""

    def tokens(self, rows: int) -> int:
        """Tokens that a piece of ``linear`` computes in a step of this many rows."""


VariantsT = TypeVar("VariantsT", bound=Variants)


@dataclass(frozen=True)
class BaseLowering(Generic[B, VariantsT]):
    """One Program's lowering. ``place`` has states, temporaries and outputs; weights are by themselves."""

    program: Program
    place: Mapping[str, Region[B]]
    weights: Mapping[str, Weight]
    scratch: Region[B] | None
    """For what an op's launches leave each other."""
    tuning: VariantsT
    shape: StepShape
    constant: Callable[[bytes], Region[B]]
    """A region that holds these bytes."""

    def shaped(self, shape: StepShape) -> Self:
        return replace(self, shape=shape)

    @cached_property
    def _counted(self) -> dict[str, str]:
        return counted_rows(self.program)

    def rows_of(self, name: str) -> Extent:
        """How many rows of a value are true."""
        count = self._counted.get(name)
        return self.capacity(name) if count is None else Count(count)

    def counter_word(self, name: str) -> int | None:
        """The word of the step's header that has the number of a value's true rows, if it is counted."""
        count = self._counted.get(name)
        return None if count is None else HEADER.index(count)

    def tokens_of(self, name: str) -> int:
        """Tokens that an invocation of ``linear`` computes of this value."""
        count = self._counted.get(name)
        if count is None:
            return self.tuning.tokens(self.capacity(name))
        return self.shape.sampled if count == "sampled" else self.shape.rows

    def capacity(self, name: str) -> int:
        return self.program.values[name].shape[0]

    def width(self, name: str) -> int:
        return self.program.values[name].shape[-1]

    def vector(self, name: str) -> Vector:
        """A weight of one axis."""
        vector = self.weights[name]
        assert isinstance(vector, Vector)
        return vector

    def matrix(self, name: str) -> Matrix:
        """A weight of two."""
        matrix = self.weights[name]
        assert isinstance(matrix, Matrix)
        return matrix

    def frequencies(self, op: Op, factors: Sequence[str]) -> Region[B]:
        """Of a ``rope``; the names are none, or that of a weight that divides them."""
        divisors = [float(factor) for factor in self.vector(factors[0]).values] if factors else None
        table = frequencies(op.number("base"), op.number("scale"), op.integer("rotary"), divisors)
        return self.constant(table.ljust(-(-len(table) // 16) * 16, b"\0"))

    def gates(self, decay: str, dt_bias: str, log_decay: bool) -> Region[B]:
        """Of a ``gated_delta``: each head's rate, which is never above zero, and then what is added before it applies."""
        rate, shift = (self.vector(name).values for name in (decay, dt_bias))
        rate = -np.exp(rate, dtype=np.float32) if log_decay else rate
        return self.constant(np.concatenate([rate, shift]).astype(np.float32).tobytes())

    @property
    def room(self) -> Region[B]:
        """The scratch of an op that has some."""
        assert self.scratch is not None
        return self.scratch
