"""Tiny random models with recurrent state on any backend: as ``tiny``, with a layer of it before one of attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from pie_edge.backend import Backend
from pie_edge.control.engine import Engine
from pie_edge.control.facts import ModelFacts
from pie_edge.control.parking import Spill
from pie_edge.control.plan import DeviceSettings
from pie_edge.model import lfm2, qwen3_5
from pie_edge.model.lfm2 import Lfm2Spec
from pie_edge.model.recurrent import DeltaSpec
from pie_edge.model.rope import Rope
from pie_edge.program.encodings import Dense, DType
from tests.support.oracle_run import Loaded
from tests.support.tiny import PAGE, ArrayWeight

_COMMON: dict[str, Any] = {
    "container": "safetensors",
    "vocabulary": 64,
    "context": 256,
    "hidden": 32,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "mlp": 64,
    "eps": 1e-5,
    "tied": True,
    "attends": (False, True),
    "rope": Rope(8, 10000.0),
    "kernel": 4,
}
DELTA = DeltaSpec(
    **_COMMON,
    architecture="qwen3_5",
    key_heads=2,
    key_dim=8,
    value_heads=4,
    value_dim=4,
    shifted=False,
    decoder="model.",
    ignored=(),
    tiled=False,
)
"""Its state follows from all tokens."""
CONVOLVED = Lfm2Spec(**_COMMON, architecture="lfm2", biased=False)
"""Its state is what its convolutions see."""
KV_PAGE_BYTES = 2 * 2 * 8 * 4 * PAGE
"""Of a page, in float32: of the one layer that attends."""


def random_weights(spec: DeltaSpec | Lfm2Spec, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found = {}
    for weight in family(spec).weights(spec):
        scale = 1.0 if len(weight.shape) == 1 else 2.0 / np.sqrt(weight.shape[-1])
        found[weight.name] = (rng.normal(size=weight.shape) * scale).astype(np.float32)
        if weight.name.endswith(".decay"):
            # Tokens of long ago still count.
            found[weight.name] = np.linspace(-6, -3, *weight.shape, dtype=np.float32)
    return found


def family(spec: DeltaSpec | Lfm2Spec) -> Any:
    return qwen3_5 if isinstance(spec, DeltaSpec) else lfm2


def loaded(spec: DeltaSpec | Lfm2Spec = DELTA) -> Loaded:
    return Loaded(spec, family(spec), random_weights(spec))


async def open_hybrid(
    backend: Backend, spec: DeltaSpec | Lfm2Spec = DELTA, spill: Spill | None = None, **settings: Any
) -> Engine:
    facts = ModelFacts("tiny-hybrid", spec.architecture, spec.vocabulary, spec.context, PAGE)
    weights = {name: (Dense(DType.F32), ArrayWeight(values)) for name, values in random_weights(spec).items()}
    chosen = DeviceSettings(**({"page_size": PAGE, "kv_memory": 1 << 20, "rows": 32, "sequences": 8} | settings))
    return await Engine.open(facts, spec, family(spec), weights, backend, chosen, spill=spill)
