"""Adapters as the device has them: stacked, with their rows in the order of the model's own weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.weights.peft import Adapter

Floats = NDArray[np.float32]
RANK_STEP = 8
"""Ranks are padded to a multiple of this, so that kernels read whole vectors."""


class Target(Protocol):
    """A weight that a module reaches (``model.adapters.Target``)."""

    @property
    def weight(self) -> str: ...
    @property
    def runs(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def heads(self) -> int: ...


def stack(
    adapters: Mapping[str, Adapter], find: Callable[[str], Sequence[Target] | None]
) -> tuple[int, dict[str, Floats]]:
    """The rank that all are padded to; and of each weight that one of them reaches, ``lora_a.<weight>`` [adapters, rank,
    columns] and ``lora_b.<weight>`` [adapters, rows, rank].

    ``find`` gives what a module's matrix makes. Raises Unsupported for a module that the model hasn't, and BadCheckpoint for
    one of another shape.
    """
    count = len(adapters)
    rank = max(-(-adapter.rank // RANK_STEP) * RANK_STEP for adapter in adapters.values())
    stacked: dict[str, Floats] = {}

    def room(name: str, *shape: int) -> Floats:
        return stacked.setdefault(name, np.zeros((count, *shape), np.float32))

    for index, (name, adapter) in enumerate(adapters.items()):
        for module, (a, b) in adapter.modules.items():
            for target in _found(name, adapter, module, find(module)):
                room(f"lora_a.{target.weight}", rank, target.columns)[index, : len(a)] = a
                room(f"lora_b.{target.weight}", target.rows, rank)[index, :, : len(a)] = _own_rows(b, target)
    return rank, stacked


def _found(name: str, adapter: Adapter, module: str, found: Sequence[Target] | None) -> Sequence[Target]:
    if found is None:
        raise Unsupported(
            f"adapter {name} ({adapter.path}) changes {module}, which isn't a matrix of this model's layers; train it for this "
            "model, on its attention and MLP alone"
        )
    a, b = adapter.modules[module]
    rows, columns = sum(target.rows for target in found), found[0].columns
    if (len(b), a.shape[1]) != (rows, columns):
        raise BadCheckpoint(
            f"adapter {name} ({adapter.path}): {module} is {len(b)} × {a.shape[1]} there, and {rows} × {columns} in this "
            "model; take an adapter that was trained for it"
        )
    return found


def _own_rows(b: Floats, target: Target) -> Floats:
    rows = np.concatenate([b[first : first + count] for first, count in target.runs])
    if not target.heads:
        return rows
    # As llama.cpp's converter permutes queries and keys: the halves of a head become neighbouring pairs.
    paired = rows.reshape(target.heads, 2, -1, rows.shape[1]).swapaxes(1, 2)
    return np.ascontiguousarray(paired).reshape(rows.shape)
