"""What an op may look at beside its operands: the step, its Program, and how ops are run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.metal.device import Mode
from pie_edge.backends.metal.launch import LEAST, Launch, Launcher
from pie_edge.backends.metal.tuning import Tuning
from pie_edge.program.ops import Op, Program

T = TypeVar("T")
Array = NDArray[Any]
Arrays = tuple[mx.array, ...]


@dataclass(frozen=True)
class Context:
    """Of one run. Inputs are there twice: on the host, where shapes follow from them, and as arrays of the device."""

    program: Program
    mode: Mode
    inputs: Mapping[str, Array]
    """By name, cut to the true counts."""
    vectors: Mapping[str, Array]
    """Weights of one axis, on the host."""
    launcher: Launcher
    """Of kernels by hand."""
    tuning: Tuning
    kept: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, which is the same for all ops of this run that ask by this key."""
        if key not in self.kept:
            self.kept[key] = make()
        found: T = self.kept[key]
        return found

    def device(self, name: str) -> mx.array:
        """An input as an array of the device."""
        return self.once(("input", name), lambda: mx.array(np.ascontiguousarray(self.inputs[name])))

    def words(self, name: str) -> mx.array:
        """An input as kernels take it: flat, and of no fewer entries than keep it in one address space."""

        def made() -> mx.array:
            flat = self.inputs[name].reshape(-1)
            return mx.array(np.pad(flat, (0, max(LEAST - flat.size, 0))))

        return self.once(("words", name), made)

    def numbers(self, *values: float) -> mx.array:
        """Constants of an op, as kernels take them: the same array in every step."""
        return _numbers(values)

    def fields(self, op: Op) -> dict[str, Array]:
        """The op's inputs that the step gives, by their names in the op table."""
        return {role: self.inputs[name] for role, name in op.named.items() if name in self.inputs}

    def launch(self, launch: Launch) -> Arrays:
        return tuple(self.launcher(launch))

    def vector(self, name: str | None) -> Array | None:
        return None if name is None else self.vectors[name]


@cache
def _numbers(values: tuple[float, ...]) -> mx.array:
    return mx.array(np.array((*values, *(0.0,) * (LEAST - len(values))), np.float32))
