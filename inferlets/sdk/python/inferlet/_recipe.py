"""An epilogue that is traced once and used for many passes, with other numbers each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inferlet import model
from inferlet._host import Source
from inferlet.eta.tensor import CASES, Elements, Tensor, apply, dtype, param
from inferlet.eta.trace import Traced, trace

CAPACITIES = (8, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
"""Lengths of sparse tables. A table that outgrows one takes the next: only then is it another epilogue."""

NOWHERE = 2**32 - 1
"""An index that no row has: it reads zero and writes nothing."""


def capacity(count: int) -> int:
    """The shortest table that holds ``count`` entries."""
    return next(length for length in CAPACITIES if length >= count)


def padded(ids: list[int], length: int) -> list[int]:
    return ids + [NOWHERE] * (length - len(ids))


def zeros(values: list[float], length: int) -> list[float]:
    return values + [0.0] * (length - len(values))


class Slots:
    """The parameters of an epilogue that is being traced, by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.masks: set[str] = set()

    def number(self, name: str) -> Tensor:
        return self._add(name, 1.0, dtype.f32)

    def whole(self, name: str) -> Tensor:
        return self._add(name, 1, dtype.u32)

    def numbers(self, name: str, length: int) -> Tensor:
        return self._add(name, [0.0] * length, dtype.f32)

    def ids(self, name: str, length: int) -> Tensor:
        return self._add(name, [NOWHERE] * length, dtype.u32)

    def mask(self, name: str) -> Tensor:
        """A mask over the vocabulary. Its value is a matcher's number: the mask itself never comes through the program."""
        words = -(-model.vocabulary_size() // 32)
        tensor = self.tensors[name] = apply("param", dtype=dtype.u32.value, shape=[words])
        tensor.node.parameter = (CASES[dtype.u32], [])
        self.masks.add(name)
        return tensor

    def _add(self, name: str, value: Any, kind: dtype) -> Tensor:
        tensor = self.tensors[name] = param(value, kind)
        return tensor


class Recipe:
    """``build`` says what to compute, taking its parameters from the slots; ``with_values`` fills them for one pass."""

    def __init__(self, build: Callable[[Slots], Any]) -> None:
        slots = Slots()
        self._traced = trace(lambda: build(slots))
        # Only parameters that the result needs come with a pass.
        self._places: dict[str, int] = {}
        self._masks = slots.masks
        for name, tensor in slots.tensors.items():
            for place, value in enumerate(self._traced.parameters):
                if value is tensor.node.parameter:
                    self._places[name] = place

    def with_values(self, values: Mapping[str, Any]) -> Traced:
        """The epilogue of one pass: ``values`` are numbers or flat lists, by the names of the slots."""
        parameters: list[Elements] = list(self._traced.parameters)
        fetches: list[tuple[int, Source]] = []
        for name, place in self._places.items():
            value = values[name]
            if name in self._masks:
                fetches.append((place, ("allowed", value, 0)))
            else:
                parameters[place] = (parameters[place][0], value if isinstance(value, list) else [value])
        return self._traced.with_parameters(parameters, fetches)
