"""Families with recurrent state on the reference: beside strangers, and with tokens taken back, they say what they say alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.model import qwen3_5
from pie_edge.model.adapters import find_module, targets
from pie_edge.model.spec import WeightSpec
from pie_edge.program.encodings import DType
from pie_edge.weights.adapters import stack
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.peft import Adapter
from pie_edge.weights.source import weight_sources
from pie_edge.weights.widen import dequantise_planes
from tests.support import family_oracle, hybrid_configs
from tests.support.family_checkpoints import make_weights, write_gguf, write_snapshot
from tests.support.mixture_checkpoints import as_converted
from tests.support.oracle_run import (
    TAIL,
    Loaded,
    forwarded,
    in_parts,
    load,
    moved,
    part_pass,
    together,
    whole_pass,
)
from tests.support.recurrent_context import RecurrentContext

TOLERANCE = 1e-4
NAMES = list(hybrid_configs.CONFIGS)
QWEN, LFM2 = hybrid_configs.CONFIGS["qwen3.5"], hybrid_configs.CONFIGS["lfm2"]


def loaded(name: str, folder: Path) -> tuple[family_oracle.Oracle, Loaded]:
    oracle = family_oracle.read(name)
    return oracle, load(oracle.write(folder, "safetensors"))


@pytest.mark.parametrize("name", NAMES)
def test_a_sequence_says_the_same_beside_strangers(name: str, tmp_path: Path) -> None:
    oracle, model = loaded(name, tmp_path)
    tokens, other = oracle.tokens, oracle.prompt[::-1]
    found = forwarded(
        model,
        [
            together([part_pass(tokens[:20], 0), moved(whole_pass(other), 8)]),
            together([moved(part_pass([*other, 5], len(other)), 8), part_pass(tokens[:21], 20)]),
            together([part_pass(tokens, 21), moved(part_pass([*other, 5, 7, 9], len(other) + 1), 8)]),
        ],
    )
    own = [*range(20), 20 + len(other) + 1, *range(20 + len(other) + 2, len(found) - 2)]
    np.testing.assert_allclose(found[own], oracle.logits, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_taken_back_leave_no_trace(name: str, tmp_path: Path) -> None:
    """Drafts of up to as many tokens as the tail lets go of, in the middle of chunks and of single tokens."""
    oracle, model = loaded(name, tmp_path)
    tokens, context = oracle.tokens, RecurrentContext(TAIL - 3)
    steps, kept = [], []

    def run(start: int, end: int, drafted: int = 0) -> None:
        wrong = [(token + 11) % 96 for token in tokens[end : end + drafted]]
        steps.append(context.step(part_pass([*tokens[:end], *wrong], start)))
        kept.append(end - start)

    for start, end, drafted in ((0, 5, 9), (5, 6, 4), (6, 7, 0), (7, 30, 19), (30, 31, 0), (31, 33, 16), (33, 49, 0)):
        run(start, end, drafted)
    logits, at, found = forwarded(model, steps), 0, []
    for step, count in zip(steps, kept, strict=True):
        found.append(logits[at : at + count])
        at += len(step.token_src)
    np.testing.assert_allclose(np.concatenate(found), oracle.logits, rtol=0, atol=TOLERANCE)


def test_keys_and_values_are_those_of_layers_that_attend(tmp_path: Path) -> None:
    _, model = loaded("qwen3.5", tmp_path)
    assert (model.spec.layers, model.spec.attention_layers, model.spec.recurrent) == (4, 1, True)
    assert model.spec.kv_bytes_per_token(DType.F16) == 2 * 2 * 32 * 2
    _, plain = loaded("llama", tmp_path / "llama")
    assert (plain.spec.attention_layers, plain.spec.recurrent) == (3, False)


def rewritten(folder: Path, change: Any) -> Path:
    """The tiny Qwen3.5 with other names, shapes or weights."""
    path = write_snapshot(folder, QWEN, make_weights(QWEN))
    held = load_file(path / "model.safetensors")
    save_file({new: np.ascontiguousarray(w) for name, weight in held.items() for new, w in change(name, weight)},
              path / "model.safetensors", metadata={"format": "pt"})  # fmt: skip
    return path


def test_a_text_model_inside_one_that_sees_is_read_and_its_eyes_and_drafters_are_not(tmp_path: Path) -> None:
    def renamed(name: str, weight: Any) -> Any:
        yield name.replace("model.", "model.language_model.", 1), weight
        if name == "model.norm.weight":
            yield "model.visual.blocks.0.attn.qkv.weight", np.zeros((4, 4), np.float32)
            yield "mtp.norm.weight", weight

    path = rewritten(tmp_path, renamed)
    config = {"model_type": "qwen3_5", "text_config": QWEN, "vision_config": {}, "tie_word_embeddings": False}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    oracle = family_oracle.read("qwen3.5")
    found = in_parts(load(path), oracle.tokens, [len(oracle.tokens)])
    np.testing.assert_allclose(found, oracle.logits, rtol=0, atol=TOLERANCE)


def test_a_snapshot_as_mlx_turns_it_says_the_same(tmp_path: Path) -> None:
    """Convolutions are [columns, width, 1] there, and norms have their 1."""

    def turned(name: str, weight: Any) -> Any:
        shown = f"language_model.{name}"
        weight = weight.swapaxes(1, 2) if weight.ndim == 3 else weight
        yield shown, weight + np.float32(1) if hybrid_configs.is_shifted(QWEN, name) else weight

    oracle = family_oracle.read("qwen3.5")
    found = in_parts(load(rewritten(tmp_path, turned)), oracle.tokens, [len(oracle.tokens)])
    np.testing.assert_allclose(found, oracle.logits, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("name", "kind"), [("lfm2", "LFM2"), ("qwen3.5", "QWEN35"), ("qwen3-next", "QWEN3NEXT")])
def test_our_gguf_files_name_tensors_as_the_format_s_own_package_does(name: str, kind: str) -> None:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[kind], 4)
    for held in as_converted(make_weights(hybrid_configs.CONFIGS[name])):
        # The converter renames these before it looks them up.
        asked = held.replace(".dt_bias", ".dt_proj.bias")
        assert names.get_name(asked, try_suffixes=(".weight", ".bias")) == hybrid_configs.gguf_name(held)


def test_older_gguf_files_of_qwen3_next_keep_its_fused_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid_configs, "unfused", lambda config, weights: weights)
    oracle = family_oracle.read("qwen3-next")
    model = load(write_gguf(tmp_path / "m.gguf", oracle.config, make_weights(oracle.config)))
    assert model.spec.fused
    np.testing.assert_allclose(in_parts(model, oracle.tokens, [49]), oracle.logits, rtol=0, atol=TOLERANCE)


def test_layers_without_experts_are_refused(tmp_path: Path) -> None:
    config = hybrid_configs.CONFIGS["qwen3-next"] | {"mlp_only_layers": [1]}
    with pytest.raises(Unsupported, match="a layer without experts"):
        load(write_snapshot(tmp_path, config, make_weights(config)))


def test_drafting_layers_of_a_gguf_are_left_out(tmp_path: Path) -> None:
    weights = make_weights(QWEN)
    weights["model.layers.4.input_layernorm.weight"] = np.ones(64, np.float32)
    path = write_gguf(tmp_path / "m.gguf", QWEN, weights, block_count=5, nextn_predict_layers=1)
    assert load(path).spec.layers == 4


def test_a_layer_that_a_gguf_doesn_t_count_is_not_passed_over(tmp_path: Path) -> None:
    config = hybrid_configs.CONFIGS["qwen3.5"]
    path = write_gguf(tmp_path / "m.gguf", config, make_weights(config), block_count=config["num_hidden_layers"] - 1)
    with pytest.raises(Unsupported, match="has no place in the qwen3_5 family"):
        load(path)


def test_layers_that_attend_may_be_listed(tmp_path: Path) -> None:
    weights, oracle = make_weights(QWEN), family_oracle.read("qwen3.5")
    marks = {"full_attention_interval": None, "attention.recurrent_layers": [True, True, False, True]}
    model = load(write_gguf(tmp_path / "m.gguf", QWEN, weights, **marks))
    np.testing.assert_allclose(in_parts(model, oracle.tokens, [49]), oracle.logits, rtol=0, atol=TOLERANCE)
    kinds = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
    config = QWEN | {"layer_types": kinds, "full_attention_interval": 2}
    assert load(write_snapshot(tmp_path / "a", config, weights)).spec.attends == (False, False, True, False)
    for wrong, says in (
        ([*kinds, kinds[0]], "layer_types of 5 entries"),
        (["linear_attention"] * 4, "'linear_attention'"),
    ):
        with pytest.raises(Unsupported, match=says):
            load(write_snapshot(tmp_path / says[:9], QWEN | {"layer_types": wrong}, weights))


def test_facts_that_no_hybrid_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="'key_heads': 3"):
        load(write_snapshot(tmp_path / "a", QWEN | {"linear_num_key_heads": 3}, make_weights(QWEN)))
    with pytest.raises(BadCheckpoint, match="head_count_kv should be a count for each layer, is 2"):
        load(write_gguf(tmp_path / "b.gguf", LFM2, make_weights(LFM2), **{"attention.head_count_kv": 2}))
    with pytest.raises(Unsupported, match="a sliding window"):
        load(write_gguf(tmp_path / "c.gguf", LFM2, make_weights(LFM2), **{"attention.sliding_window": 8}))


def test_queries_and_their_gates_are_told_apart(tmp_path: Path) -> None:
    weights = make_weights(QWEN)
    model = load(write_gguf(tmp_path / "m.gguf", QWEN, weights))
    held = weights["model.layers.2.self_attn.q_proj.weight"].reshape(4, 2, 32, 64)
    np.testing.assert_array_equal(model.weights["2.q"], held[:, 0].reshape(128, 64))
    np.testing.assert_array_equal(model.weights["2.q_gate"], held[:, 1].reshape(128, 64))


def test_an_adapter_of_queries_and_gates_is_told_apart_and_one_of_tiled_heads_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    module = "model.layers.{}.{}".format
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 64), (256, 2)))
    spec = load(write_gguf(tmp_path / "m.gguf", QWEN, make_weights(QWEN))).spec
    known = targets(qwen3_5, spec)
    query = Adapter(tmp_path, {module(2, "self_attn.q_proj"): (a, b)})
    _, stacked = stack({"one": query}, lambda name: find_module(name, known))
    by_head = b.reshape(4, 2, 32, 2)
    np.testing.assert_array_equal(stacked["lora_b.2.q"][0, :, :2], by_head[:, 0].reshape(128, 2))
    np.testing.assert_array_equal(stacked["lora_b.2.q_gate"][0, :, :2], by_head[:, 1].reshape(128, 2))
    gates = {module(0, "linear_attn.in_proj_z"): (a, b[:64])}
    with pytest.raises(Unsupported, match="in_proj_z, which isn't a matrix of this model's layers"):
        stack({"one": Adapter(tmp_path, gates)}, lambda name: find_module(name, known))
    snapshot = load(write_snapshot(tmp_path / "s", QWEN, make_weights(QWEN))).spec
    known = targets(qwen3_5, snapshot)
    _, stacked = stack({"one": Adapter(tmp_path, gates)}, lambda name: find_module(name, known))
    np.testing.assert_array_equal(stacked["lora_b.0.z"][0, :, :2], b[:64])


def test_rows_that_do_not_lie_together_stay_as_they_are_encoded(tmp_path: Path) -> None:
    """A device asks for any of a weight's rows, as the file has them or as planes."""
    matrix = np.random.default_rng(1).standard_normal((12, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    held = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("w", held, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    order = [1, 2, 7, 8, 9, 4]
    wanted = WeightSpec("w", "w", (6, 64), runs=((1, 2), (7, 3), (4, 1)))
    with open_checkpoint(tmp_path / "m.gguf") as checkpoint:
        source = weight_sources(checkpoint.tensors, [wanted], lambda encoding: True)["w"]
        for first, count in ((0, 6), (0, 2), (1, 3), (4, 2), (5, 1)):
            rows = order[first : first + count]
            assert bytes(source.raw(first, count)) == held[rows].tobytes()
            values = dequantise_planes(source.target, source.planes(first, count))
            np.testing.assert_array_equal(values, gguf.quants.dequantize(held[rows], gguf.GGMLQuantizationType.Q8_0))
