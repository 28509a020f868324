"""Which launches a step runs: always the same ones, or those of its shape."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pie_edge.backends.shared.shapes import StepShape, likely_counts, page_size, step_shape
from pie_edge.program.ops import Program

LaunchT = TypeVar("LaunchT")
LaunchT_co = TypeVar("LaunchT_co", covariant=True)


class Plan(Protocol[LaunchT_co]):
    def shape_of(self, counts: Mapping[str, int]) -> Hashable:
        """What of a step with these true counts decides what it runs."""

    def launches(self, shape: Hashable) -> Sequence[LaunchT_co]: ...

    def likely(self) -> Sequence[Hashable]:
        """Shapes that a Program is made ready for when it is compiled."""


@dataclass(frozen=True)
class FixedPlan(Generic[LaunchT]):
    """The same launches for every step."""

    fixed: Sequence[LaunchT]

    def shape_of(self, counts: Mapping[str, int]) -> Hashable:
        return None

    def launches(self, shape: Hashable) -> Sequence[LaunchT]:
        return self.fixed

    def likely(self) -> Sequence[Hashable]:
        return (None,)


@dataclass(frozen=True)
class ModelPlan(Generic[LaunchT]):
    """Launches by the shape of the step. ``tokens`` and ``split`` are the tuning's."""

    program: Program
    tokens: Callable[[int], int]
    split: int
    lower: Callable[[StepShape], Sequence[LaunchT]]

    def shape_of(self, counts: Mapping[str, int]) -> Hashable:
        return step_shape(counts, self.tokens, page_size(self.program), self.split)

    def launches(self, shape: Hashable) -> Sequence[LaunchT]:
        assert isinstance(shape, StepShape)
        return self.lower(shape)

    def likely(self) -> Sequence[Hashable]:
        return tuple(dict.fromkeys(map(self.shape_of, likely_counts(self.program))))
