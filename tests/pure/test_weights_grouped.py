"""Matrices in several tensors (MLX, GPTQ, AWQ): taken apart exactly, by any range of rows; unknown variants are refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.program.encodings import Affine, DType
from pie_edge.weights.checkpoint import Checkpoint, open_checkpoint
from pie_edge.weights.fp8 import VALUES
from pie_edge.weights.source import file_weight
from pie_edge.weights.widen import dequantise_planes
from tests.support.checkpoints import safetensors_bytes, write
from tests.support.quantised_snapshots import VARIANTS, Variant, quantised

ROWS, COLUMNS = 24, 128
MLX, GPTQ, AWQ = Variant("MLX", 4, 64), Variant("GPTQ", 4, 32), Variant("AWQ", 4, 32)


def opened(folder: Path, variant: Variant, pieces: dict[str, Any], **config: Any) -> Checkpoint:
    named = {f"model.layer.{name}": piece for name, piece in pieces.items()}
    write(folder / "config.json", json.dumps({"model_type": "llama"} | variant.config | config).encode())
    write(folder / "model.safetensors", safetensors_bytes(*stored(named, variant)))
    return open_checkpoint(folder)


def stored(named: dict[str, Any], variant: Variant) -> tuple[dict[str, Any], bytes]:
    """Header and data."""
    types = {"uint8": "F8_E4M3", "float16": "F16", "float32": "F32", "int32": "I32", "uint32": "U32"}
    header, data = {}, b""
    for name, piece in named.items():
        kind, raw = types[str(piece.dtype)], piece.tobytes()
        if variant.scale == "BF16" and kind == "F32":
            kind, raw = "BF16", (piece.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {"dtype": kind, "shape": piece.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return header, data


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_matrix_is_taken_apart_exactly(tmp_path: Path, variant: Variant) -> None:
    pieces, dense = quantised(variant, ROWS, COLUMNS, seed=3)
    with opened(tmp_path, variant, pieces) as checkpoint:
        assert {name: tensor.shape for name, tensor in checkpoint.tensors.items()} == {
            "model.layer.weight": (ROWS, COLUMNS)
        }
        weight = file_weight(checkpoint.tensors["model.layer.weight"], _kernels)
        assert isinstance(weight.target, Affine) and weight.target.bits == variant.bits
        for first, count in ((0, ROWS), (5, 11), (ROWS - 1, 1)):
            found = dequantise_planes(weight.target, weight.planes(first, count))
            np.testing.assert_array_equal(found, dense[first : first + count])


def _kernels(encoding: Any) -> bool:
    """As the backends have them: no bfloat16 scales."""
    return isinstance(encoding, Affine) and encoding.bits in (4, 8) and encoding.scale in (DType.F16, DType.F32)


def test_symmetric_zero_points_need_no_plane(tmp_path: Path) -> None:
    variant = Variant("GPTQ", 4, 32, symmetric=True)
    pieces, _ = quantised(variant, ROWS, COLUMNS, seed=3)
    with opened(tmp_path, variant, pieces) as checkpoint:
        weight = file_weight(checkpoint.tensors["model.layer.weight"], _kernels)
        assert weight.target == Affine(4, 32, DType.F16, 8)
    pieces["qzeros"] = pieces["qzeros"].copy()
    pieces["qzeros"][0, 0] ^= 1
    with opened(tmp_path, variant, pieces) as checkpoint:
        weight = file_weight(checkpoint.tensors["model.layer.weight"], _kernels)
        with pytest.raises(BadCheckpoint, match="said to be symmetric"):
            weight.planes(0, ROWS)


def test_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    pieces, _ = quantised(GPTQ, ROWS, COLUMNS, seed=3)
    pieces["g_idx"] = pieces["g_idx"][::-1].copy()
    with opened(tmp_path, GPTQ, pieces) as checkpoint:
        weight = file_weight(checkpoint.tensors["model.layer.weight"], _kernels)
        with pytest.raises(Unsupported, match="columns reordered"):
            weight.planes(0, ROWS)


FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 64]}}


def fp8(rows: int, columns: int) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    codes = rng.permutation(np.arange(rows * columns) % 256).astype(np.uint8)
    codes[codes & 127 == 127] = 0  # not a number
    scales = rng.uniform(1e-4, 2e-4, (-(-rows // 16), -(-columns // 64))).astype(np.float32)
    return {"weight": codes.reshape(rows, columns), "weight_scale_inv": scales}


def test_eight_bit_floats_are_multiplied_by_their_blocks_scale(tmp_path: Path) -> None:
    pieces = fp8(40, 96)  # the last blocks are smaller
    with opened(tmp_path, MLX, pieces, quantization=None, **FP8) as checkpoint:
        weight = file_weight(checkpoint.tensors["model.layer.weight"], lambda encoding: True)
        found = weight.planes(9, 30)["values"]
    for row, column in ((0, 0), (6, 63), (7, 64), (29, 95)):
        code = int(pieces["weight"][9 + row, column])
        exponent, mantissa = code >> 3 & 15, code & 7
        size = math.ldexp(mantissa, -9) if exponent == 0 else math.ldexp(8 + mantissa, exponent - 10)
        value = np.float32(-size if code >> 7 else size)
        assert found[row, column] == value * pieces["weight_scale_inv"][(9 + row) // 16, column // 64]
    assert VALUES[[0x01, 0x08, 0x7E, 0xFE]].tolist() == [2.0**-9, 2.0**-6, 448.0, -448.0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weight_block_size": None}, "weight_block_size = None"),
        ({"weight_block_size": [0, 64]}, r"weight_block_size = \[0, 64\]"),
        ({"weight_block_size": [16, 32]}, r"is F32 \[3, 2\]; blocks of \[16, 32\] need floats \[3, 3\]"),
    ],
)
def test_eight_bit_floats_without_blocks_are_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    config = {"quantization_config": FP8["quantization_config"] | change}
    with pytest.raises((Unsupported, BadCheckpoint), match=says):
        opened(tmp_path, MLX, fp8(40, 96), quantization=None, **config)


def test_a_layer_may_have_its_own_bits(tmp_path: Path) -> None:
    pieces, dense = quantised(Variant("MLX", 8, 32), ROWS, COLUMNS, seed=3)
    own = {"bits": 4, "group_size": 64, "model.layer": {"bits": 8, "group_size": 32}}
    with opened(tmp_path, MLX, pieces, quantization=own) as checkpoint:
        tensor = checkpoint.tensors["model.layer.weight"]
        assert tensor.encoding == "MLX-8bit"
        weight = file_weight(tensor, _kernels)
        np.testing.assert_array_equal(dequantise_planes(weight.target, weight.planes(0, ROWS)), dense)


@pytest.mark.parametrize(
    ("variant", "change", "says"),
    [
        (MLX, {"quantization": {"bits": 3, "group_size": 64}}, r"has 3 bits in groups of 64"),
        (MLX, {"quantization": {"bits": 4}}, "group_size = None"),
        (MLX, {"quantization": {"bits": 4, "group_size": 32}}, r"is U32 \[24, 16\]; for affine4g32-f16-min it must be"),
        (MLX, {"quantization": {"bits": 4, "group_size": 64, "mode": "mxfp4"}}, "in the mode 'mxfp4'"),
        (
            GPTQ,
            {"quantization_config": {"quant_method": "gptq", "bits": 10**9, "group_size": 32}},
            "has 1000000000 bits",
        ),
        (GPTQ, {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 0}}, "groups of 0"),
        (GPTQ, {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 48}}, "must be"),
        (AWQ, {"quantization_config": AWQ.config["quantization_config"] | {"version": "gemv"}}, "version 'gemv'"),
    ],
)
def test_a_variant_that_is_not_known_is_refused(
    tmp_path: Path, variant: Variant, change: dict[str, Any], says: str
) -> None:
    pieces, _ = quantised(variant, ROWS, COLUMNS, seed=3)
    with pytest.raises((Unsupported, BadCheckpoint), match=says):
        opened(tmp_path, variant, pieces, **change)


@pytest.mark.parametrize(("variant", "gone"), [(MLX, "biases"), (GPTQ, "qzeros"), (AWQ, "scales")], ids=str)
def test_a_piece_that_is_missing_is_named(tmp_path: Path, variant: Variant, gone: str) -> None:
    pieces, _ = quantised(variant, ROWS, COLUMNS, seed=3)
    del pieces[gone]
    with pytest.raises(BadCheckpoint, match=f"tensor model.layer.{gone} is missing"):
        opened(tmp_path, variant, pieces)
