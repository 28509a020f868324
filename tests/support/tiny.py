"""A tiny random llama on any backend: quick enough to test everything above the kernels with real numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pie_edge.backend import Backend
from pie_edge.control.engine import Engine
from pie_edge.control.facts import ModelFacts
from pie_edge.control.parking import Spill
from pie_edge.control.plan import DeviceSettings
from pie_edge.model import llama
from pie_edge.model.adapters import Adapters
from pie_edge.model.llama import LlamaSpec
from pie_edge.model.rope import Rope
from pie_edge.program.encodings import Dense, DType

SPEC = LlamaSpec(
    architecture="llama",
    container="gguf",
    vocabulary=64,
    context=256,
    hidden=32,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    mlp=64,
    eps=1e-5,
    tied=True,
    rope=Rope(8, 10000.0),
)
PAGE = 8
ARGMAX = json.dumps(
    {
        "v": 1,
        "nodes": [
            {"op": "logits", "in": [], "attrs": {}, "line": "test:1"},
            {"op": "reduce_argmax", "in": [0], "attrs": {}, "line": "test:1"},
        ],
        "outputs": [1],
    }
)


@dataclass(frozen=True)
class ArrayWeight:
    """A weight that is an array; the file it would be in holds float32."""

    values: Any
    encoding: str = "F32"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def raw(self, first: int, count: int) -> memoryview:
        return memoryview(np.ascontiguousarray(self._rows(first, count))).cast("B")

    def planes(self, first: int, count: int) -> Mapping[str, Any]:
        return {"values": self._rows(first, count)}

    def _rows(self, first: int, count: int) -> Any:
        return self.values if self.values.ndim == 1 else self.values[first : first + count]


def random_weights(spec: LlamaSpec = SPEC, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found = {}
    for weight in llama.weights(spec):
        scale = 1.0 if len(weight.shape) == 1 else 2.0 / np.sqrt(weight.shape[-1])
        found[weight.name] = (rng.normal(size=weight.shape) * scale).astype(np.float32)
    return found


ADAPTERS = ("poet", "clerk")
RANK = 4


def random_adapters(seed: int = 1) -> Adapters:
    """Two that change much, on two matrices of the first layer."""
    rng = np.random.default_rng(seed)
    shapes = {weight.name: weight.shape for weight in llama.weights(SPEC)}
    matrices = {}
    for name in ("0.q", "0.down"):
        rows, columns = shapes[name]
        matrices[f"lora_a.{name}"] = rng.normal(size=(len(ADAPTERS), RANK, columns)).astype(np.float32)
        matrices[f"lora_b.{name}"] = rng.normal(size=(len(ADAPTERS), rows, RANK)).astype(np.float32)
    return Adapters(ADAPTERS, RANK, {name: memoryview(values).cast("B") for name, values in matrices.items()})


def adapted_weights(number: int) -> dict[str, Any]:
    """The weights with the adapter of this number, from 0, added in."""
    found, adapters = random_weights(), random_adapters()
    for name in ("0.q", "0.down"):
        rows, columns = found[name].shape
        a = np.frombuffer(adapters.matrices[f"lora_a.{name}"], "<f4").reshape(-1, RANK, columns)[number]
        b = np.frombuffer(adapters.matrices[f"lora_b.{name}"], "<f4").reshape(-1, rows, RANK)[number]
        found[name] = found[name] + b @ a
    return found


async def open_tiny(
    backend: Backend,
    spill: Spill | None = None,
    adapters: Adapters | None = None,
    spec: LlamaSpec = SPEC,
    **settings: Any,
) -> Engine:
    facts = ModelFacts("tiny", "llama", SPEC.vocabulary, SPEC.context, PAGE)
    weights = {name: (Dense(DType.F32), ArrayWeight(values)) for name, values in random_weights().items()}
    chosen = DeviceSettings(**({"page_size": PAGE, "kv_memory": 1 << 20, "rows": 32, "sequences": 8} | settings))
    return await Engine.open(facts, spec, llama, weights, backend, chosen, spill=spill, adapters=adapters)
