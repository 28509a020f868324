"""The arithmetic of a model split over two devices: each has half of its heads, its intermediate columns and its vocabulary, and
what they add up is what one computes alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support import family_oracle
from tests.support.oracle_run import Floats, Loaded, forwarded, load, moved, part_pass, together, whole_pass
from tests.support.tensor_parallel import local, split_logits

RANKS = 2
FAMILIES = [
    *("llama", "gemma", "gemma2", "gemma3", "qwen2", "qwen3", "phi3", "granite", "smollm3", "mistral", "olmo2", "gpt2"),
    *("mixtral", "qwen3-moe", "gpt-oss"),
]
ROUNDING = 1e-5
"""Of the largest logit: sums of float32 in another order."""


def opened(name: str, folder: Path) -> tuple[Loaded, list[int]]:
    oracle = family_oracle.read(name)
    return load(oracle.write(folder, "safetensors"), oracle.context), oracle.tokens


def differ(found: Floats, expected: Floats) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("name", FAMILIES)
def test_two_halves_of_a_model_give_the_logits_of_the_whole(tmp_path: Path, name: str) -> None:
    model, tokens = opened(name, tmp_path)
    step = whole_pass(tokens)
    found, _ = split_logits(model, step, RANKS)
    assert differ(found, forwarded(model, [step])) < ROUNDING


def test_sequences_that_share_a_step_are_split_alike(tmp_path: Path) -> None:
    model, tokens = opened("llama", tmp_path)
    step = together([whole_pass(tokens), moved(whole_pass(tokens[5:12]), 4), moved(part_pass(tokens[:1], 0), 8)])
    found, _ = split_logits(model, step, RANKS)
    assert differ(found, forwarded(model, [step])) < ROUNDING


@pytest.mark.parametrize(("name", "more"), [("llama", 0), ("gemma3", 0), ("mixtral", 0), ("olmo2", 2)])
def test_ranks_add_up_twice_a_layer_and_once_for_the_embedding(tmp_path: Path, name: str, more: int) -> None:
    """After the attention's last product and after the MLP's; and ``more``, a number a row, for norms over all heads."""
    model, tokens = opened(name, tmp_path)
    _, plan = split_logits(model, whole_pass(tokens), RANKS)
    assert len(plan.sums) == 1 + (2 + more) * model.spec.layers


@pytest.mark.parametrize("name", ["llama", "mixtral", "olmo2"])
def test_without_any_one_of_the_sums_the_logits_are_others(tmp_path: Path, name: str) -> None:
    model, tokens = opened(name, tmp_path)
    step = whole_pass(tokens)
    whole = forwarded(model, [step])
    _, plan = split_logits(model, step, RANKS)
    for number, wanted in enumerate(plan.sums):
        if isinstance(wanted, str):  # a norm that isn't made at all leaves nothing to go on with
            assert differ(split_logits(model, step, RANKS, skipped=[number])[0], whole) > 100 * ROUNDING


def test_each_rank_has_half_of_every_matrix_but_for_routers_and_the_only_key_head(tmp_path: Path) -> None:
    for name, whole in (("mixtral", {"router"}), ("gemma3", {"k", "v"})):
        model, tokens = opened(name, tmp_path / name)
        _, plan = split_logits(model, whole_pass(tokens), RANKS)
        mine = local(plan, model.weights, 1)
        for weight, array in model.weights.items():
            if array.ndim == 2:
                halved = array.size == RANKS * mine[weight].size
                assert halved != (weight.rpartition(".")[2] in whole), weight
