"""Checkpoints of mixtures of experts: how their files keep the experts, and what is refused by name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from pie_edge.backend import Backend
from pie_edge.backends.cpu.backend import open_cpu
from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.model import registry
from pie_edge.program.encodings import DType, Lookup
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.recipes import native_encoding
from pie_edge.weights.repack import unpack
from pie_edge.weights.source import PartOfEach, weight_sources
from pie_edge.weights.widen import dequantise_planes
from tests.backend import openers
from tests.backend.device import LoadedModel
from tests.backend.test_family_oracle import greedy, opened
from tests.support import family_oracle, mxfp4
from tests.support.family_checkpoints import Weights, make_weights, write_gguf, write_snapshot
from tests.support.family_configs import CONFIGS
from tests.support.oracle_run import dense, load, whole_pass

MIXTRAL, QWEN, OSS, PACKED = (CONFIGS[name] for name in ("mixtral", "qwen3-moe", "gpt-oss", "gpt-oss-mxfp4"))
FIRST = "model.layers.0.block_sparse_moe.experts"


@pytest.mark.parametrize("container", ["safetensors", "gguf"])
def test_packed_experts_are_four_bits_and_exactly_what_the_format_says(tmp_path: Path, container: str) -> None:
    weights = make_weights(PACKED)
    write = write_gguf if container == "gguf" else write_snapshot
    checkpoint = open_checkpoint(write(tmp_path / ("m.gguf" if container == "gguf" else "m"), PACKED, weights))
    facts = registry.facts(checkpoint)
    wanted = registry.family(facts).weights(registry.read(facts))
    sources = weight_sources(checkpoint.tensors, wanted, lambda encoding: True)
    held = weights["model.layers.1.mlp.experts.gate_up_proj"].swapaxes(1, 2)
    for turn, part in enumerate(("gate", "up")):
        source = sources[f"1.expert_{part}"]
        assert isinstance(source.target, Lookup)
        assert (source.target.bits, source.target.scale) == (4, DType.BF16)
        expected = held[:, turn::2].reshape(-1, held.shape[2])
        assert np.array_equal(dense(source), expected)


def test_mxfp4_reads_every_code_and_scale() -> None:
    """One value for each code, at the ends of the exponents that bfloat16 has and in between."""
    scales = np.array([[0, 1, 2, 100, 127, 128, 200, 250]], np.uint8)
    codes = np.tile(np.arange(16, dtype=np.uint8), 16)[None]
    rows, expected = mxfp4.gguf_rows(codes, scales), mxfp4.dequantise(codes, scales)
    assert np.array_equal(gguf.quants.dequantize(rows, gguf.GGMLQuantizationType.MXFP4), expected)
    found = dequantise_planes(native_encoding("MXFP4"), unpack("MXFP4", rows.tobytes(), 1, 256))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(("first", "count"), [(0, 7), (30, 5), (31, 2), (33, 95), (159, 1)])
@pytest.mark.parametrize("config", [OSS, PACKED], ids=["dense", "packed"])
def test_rows_of_experts_are_read_wherever_they_begin(
    tmp_path: Path, config: dict[str, Any], first: int, count: int
) -> None:
    """A backend pulls what fits its staging area, which may end inside an expert."""
    checkpoint = open_checkpoint(write_snapshot(tmp_path, config, make_weights(config)))
    facts = registry.facts(checkpoint)
    sources = weight_sources(
        checkpoint.tensors, registry.family(facts).weights(registry.read(facts)), lambda encoding: True
    )
    source = sources["0.expert_up"]
    assert isinstance(source, PartOfEach)
    whole, some = source.planes(0, source.shape[0]), source.planes(first, count)
    assert {name: plane.shape[0] for name, plane in some.items()} == dict.fromkeys(whole, count)
    for name, plane in some.items():
        assert np.array_equal(plane, whole[name][first : first + count])


@pytest.mark.parametrize("kind", [gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0], ids=["F32", "Q8_0"])
def test_early_ggufs_with_a_tensor_for_each_expert_are_the_same_model(
    tmp_path: Path, kind: gguf.GGMLQuantizationType
) -> None:
    config = MIXTRAL | {"intermediate_size": 64}
    plain = gguf.GGUFReader(write_gguf(tmp_path / "plain.gguf", config, make_weights(config)))
    new, old = (tmp_path / f"{name}.gguf" for name in ("new", "old"))
    rewrite(plain, new, kind, by_expert=False)
    rewrite(plain, old, kind, by_expert=True)
    assert load(old).spec == load(new).spec

    async def logits(path: Path) -> np.ndarray:
        backend = await open_cpu(threads=1)
        model = await LoadedModel.from_file(backend, path)
        found = await model.logits(whole_pass(list(range(20))))
        await backend.close()
        return found

    assert np.array_equal(*(asyncio.run(logits(path)) for path in (old, new)))


def rewrite(reader: gguf.GGUFReader, path: Path, kind: gguf.GGMLQuantizationType, *, by_expert: bool) -> None:
    """The same model with its experts quantised so, and a tensor for each or for all."""
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith("llama."):
            writer.add_key_value(field.name, field.contents(), field.types[0])
    for tensor in reader.tensors:
        expert = "_exps" in tensor.name
        rows = gguf.quants.quantize(np.array(tensor.data), kind) if expert else np.array(tensor.data)
        if not (expert and by_expert):
            writer.add_tensor(tensor.name, rows, raw_dtype=kind if expert else None)
            continue
        for number, matrix in enumerate(rows):
            writer.add_tensor(tensor.name.replace("_exps.", f".{number}."), matrix, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


async def exact_backend(name: str) -> Backend:
    options = {"threads": 3} if name == "cpu" else {"exact": True}
    return await asyncio.to_thread(openers.named(name), **options)


@pytest.mark.parametrize("backend", ["cpu", "vulkan"])
@pytest.mark.parametrize("name", ["mixtral", "qwen3-moe", "gpt-oss"])
def test_strangers_that_share_a_step_and_its_experts_change_nothing(tmp_path: Path, name: str, backend: str) -> None:
    oracle = family_oracle.read(name)
    model = load(oracle.write(tmp_path, "gguf"))

    async def test() -> None:
        device = await exact_backend(backend)
        engine = await opened(model, device)
        prompts = [oracle.prompt, *(oracle.prompt[i::3] for i in range(3))]
        found, *_ = await asyncio.gather(*(greedy(engine, i, prompt) for i, prompt in enumerate(prompts)))
        assert engine.statistics.largest_step > 1
        await engine.close()
        rows = np.array(found)
        assert rows.argmax(axis=-1).tolist() == oracle.greedy
        np.testing.assert_allclose(rows, oracle.logits[len(oracle.prompt) - 1 :], rtol=0, atol=1e-4)

    asyncio.run(asyncio.wait_for(test(), 120))


def without(weights: Weights, *ends: str) -> Weights:
    return {name: weight for name, weight in weights.items() if not name.endswith(ends)}


def test_an_expert_that_is_missing_or_unlike_the_others_is_named(tmp_path: Path) -> None:
    weights = make_weights(MIXTRAL)
    with pytest.raises(BadCheckpoint, match=r"experts.w1.weight is there for expert 4 and not for 2"):
        load(write_snapshot(tmp_path / "a", MIXTRAL, without(weights, "0.block_sparse_moe.experts.2.w1.weight")))
    odd = weights | {f"{FIRST}.3.w2.weight": np.zeros((64, 32), np.float32)}
    with pytest.raises(BadCheckpoint, match=r"w2.weight of expert 3 is F32 \[64, 32\], of expert 0 F32 \[64, 40\]"):
        load(write_snapshot(tmp_path / "b", MIXTRAL, odd))
    with pytest.raises(
        BadCheckpoint, match=r"experts.w3.weight has shape \[4, 40, 64\]; its metadata says \[5, 40, 64\]"
    ):
        load(write_snapshot(tmp_path / "c", MIXTRAL, without(weights, "experts.4.w3.weight")))


@pytest.mark.parametrize(("experts", "chosen"), [(5, 6), (5, 0), (1 << 30, 2)])
def test_counts_of_experts_that_no_model_has_are_refused_at_once(tmp_path: Path, experts: int, chosen: int) -> None:
    config = MIXTRAL | {"num_local_experts": experts, "num_experts_per_tok": chosen}
    with pytest.raises(BadCheckpoint, match=f"states {experts} experts, of which {chosen} are used"):
        load(write_snapshot(tmp_path, config, make_weights(MIXTRAL)))


def test_scales_that_are_missing_are_named(tmp_path: Path) -> None:
    folder = write_snapshot(tmp_path, PACKED, make_weights(PACKED))
    from safetensors.numpy import load_file, save_file

    held = load_file(folder / "model.safetensors")
    save_file(
        {k: v for k, v in held.items() if not k.endswith("0.mlp.experts.down_proj_scales")},
        folder / "model.safetensors",
    )
    with pytest.raises(BadCheckpoint, match="the scales of model.layers.0.mlp.experts.down_proj are missing"):
        load(folder)


def test_a_mixture_with_dense_layers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="a layer without experts"):
        load(write_snapshot(tmp_path, QWEN | {"mlp_only_layers": [1]}, make_weights(QWEN)))


def test_llamas_ggufs_with_experts_are_mixtral_and_those_without_are_not(tmp_path: Path) -> None:
    mixtral = load(write_gguf(tmp_path / "a.gguf", MIXTRAL, make_weights(MIXTRAL)))
    llama = load(write_gguf(tmp_path / "b.gguf", CONFIGS["llama"], make_weights(CONFIGS["llama"])))
    assert (mixtral.family.__name__, llama.family.__name__) == ("pie_edge.model.mixtral", "pie_edge.model.llama")
