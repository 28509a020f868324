"""Whole models from MLX, GPTQ and AWQ snapshots: what the same weights say unpacked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from pie_edge.backends.cpu.backend import open_cpu
from tests.backend.device import LoadedModel
from tests.support.family_checkpoints import Weights, make_weights, write_snapshot
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
    ("qwen3-moe", Variant("AWQ", 4, 32)),
    ("qwen3-moe", Variant("GPTQ", 4, 32)),
    ("qwen3-moe", Variant("MLX", 4, 32)),
    ("mixtral", Variant("MLX", 8, 32)),
]
WIDE = {"qwen3-moe": {"moe_intermediate_size": 32}, "mixtral": {"intermediate_size": 32}}
"""Sizes that groups fill."""


_MLX = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def mlx_experts(tensors: Weights) -> Weights:
    """As MLX has them: all experts' matrices in one."""
    found, stacks = {}, dict[str, list[np.ndarray]]()
    for name, held in tensors.items():
        stem, experts, rest = name.partition(".experts.")
        if not experts:
            found[name] = held
            continue
        _, part, piece = rest.split(".")
        stacks.setdefault(f"{stem}.switch_mlp.{_MLX.get(part, part)}.{piece}", []).append(held)
    return found | {name: np.stack(matrices) for name, matrices in stacks.items()}


@pytest.mark.parametrize(("family", "variant"), CASES, ids=str)
def test_a_quantised_snapshot_says_what_it_says_unpacked(tmp_path: Path, family: str, variant: Variant) -> None:
    config = CONFIGS[family] | WIDE.get(family, {})
    packed = make_weights(config)
    dense = dict(packed)
    for index, (name, weight) in enumerate(make_weights(config).items()):
        # GPTQ and AWQ leave embeddings as they are; MLX quantises them too. None touches convolutions, or a gate of few rows.
        if weight.ndim != 2 or len(weight) < 8 or (variant.method != "MLX" and ("embed" in name or "lm_head" in name)):
            continue
        pieces, dense[name] = quantised(variant, *weight.shape, seed=index)
        del packed[name]
        packed |= {f"{name.removesuffix('.weight')}.{piece}": values for piece, values in pieces.items()}
    packed = mlx_experts(packed) if variant.method == "MLX" else packed
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
