"""Whole models from MLX, GPTQ and AWQ snapshots: what the same weights say unpacked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from pie_edge.backends.cpu.backend import open_cpu
from tests.backend.device import LoadedModel
from tests.support.family_checkpoints import make_weights, write_snapshot
from tests.support.family_configs import CONFIGS
from tests.support.oracle_run import in_parts, load, whole_pass
from tests.support.quantised_snapshots import Variant, quantised

TOKENS = [(7 * i * i + 5) % 96 for i in range(20)]
DEFAULT_TOLERANCE = 0.02
CASES = [
    ("llama", Variant("MLX", 4, 32)),
    ("llama", Variant("GPTQ", 4, 32)),
    ("qwen3", Variant("GPTQ", 8, 32, symmetric=True)),
    ("qwen2", Variant("AWQ", 4, 32)),
    ("phi3", Variant("AWQ", 4, 32)),
    ("lfm2", Variant("GPTQ", 4, 32)),
    ("qwen3.5", Variant("MLX", 4, 32)),
    ("qwen3.5", Variant("AWQ", 4, 32)),
]


@pytest.mark.parametrize(("family", "variant"), CASES, ids=str)
def test_a_quantised_snapshot_says_what_it_says_unpacked(tmp_path: Path, family: str, variant: Variant) -> None:
    config = CONFIGS[family]
    packed = make_weights(config)
    dense = dict(packed)
    for index, (name, weight) in enumerate(make_weights(config).items()):
        # GPTQ and AWQ leave embeddings as they are; MLX quantises them too. None touches convolutions, or a gate of few rows.
        if weight.ndim != 2 or len(weight) < 8 or (variant.method != "MLX" and ("embed" in name or "lm_head" in name)):
            continue
        pieces, dense[name] = quantised(variant, *weight.shape, seed=index)
        del packed[name]
        packed |= {f"{name.removesuffix('.weight')}.{piece}": values for piece, values in pieces.items()}
    whole = in_parts(load(write_snapshot(tmp_path / "dense", config, dense)), TOKENS, [len(TOKENS)])
    path = write_snapshot(tmp_path / "packed", config | variant.config, packed)
    np.testing.assert_allclose(in_parts(load(path), TOKENS, [len(TOKENS)]), whole, rtol=0, atol=1e-5)

    async def on_cpu() -> np.ndarray:
        backend = await open_cpu(threads=1)
        model = await LoadedModel.from_file(backend, path)
        logits = await model.logits(whole_pass(TOKENS))
        await backend.close()
        return logits

    np.testing.assert_allclose(asyncio.run(on_cpu()), whole, rtol=0, atol=DEFAULT_TOLERANCE)
