"""Every encoding, block for block against the package ``gguf``; planes and wider planes hold exactly the same weights.

Equality is bit for bit in float32, except for one thing: where a minimum of 0 is subtracted from −0, the reference
gives −0 and the sum that planes are defined by gives +0. NumPy calls the two equal, and so do these tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from numpy.typing import NDArray

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup, TwoLevel, planes
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.dequantise import dequantise, dequantise_blocks
from pie_edge.weights.formats import BLOCKS
from pie_edge.weights.gguf import read_gguf
from pie_edge.weights.recipes import DENSE, RECIPES, Exponent, Half, native_encoding
from pie_edge.weights.repack import repack, unpack
from pie_edge.weights.source import file_weight
from pie_edge.weights.widen import NUMPY, candidates, choose, dequantise_planes, widen
from tests.support.checkpoints import gguf_bytes, small_gguf, write

ROWS, BLOCKS_A_ROW = 7, 3
NAMES = list(RECIPES)


def random_blocks(name: str, rows: int = ROWS, blocks: int = BLOCKS_A_ROW, seed: int = 0) -> NDArray[np.uint8]:
    """Rows of blocks with random bytes, so every code and factor; scales are finite, a tenth zero, half negative."""
    rng = np.random.default_rng([seed, NAMES.index(name)])
    made = rng.integers(0, 256, (rows * blocks, BLOCKS[name].nbytes), np.uint8)
    for rule in RECIPES[name].rules.values():
        if isinstance(rule, Half):
            # From the largest to subnormals of f16.
            scales = (rng.choice([-1, 1], len(made)) * np.exp(rng.uniform(-16, 8, len(made)))).astype("<f2")
            scales[rng.random(len(made)) < 0.1] = 0
            made[:, rule.offset : rule.offset + 2] = scales.view(np.uint8).reshape(-1, 2)
        elif isinstance(rule, Exponent):
            made[:, rule.offset] %= 240  # 12 times the largest ones is beyond float32.
            made[:2, rule.offset] = [0, 1][: len(made)]
    return made.reshape(rows, -1)


def oracle(name: str, data: NDArray[np.uint8]) -> NDArray[np.float32]:
    return quants.dequantize(data, GGMLQuantizationType[name])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_blocks_dequantise_as_the_reference_says(name: str, seed: int) -> None:
    data = random_blocks(name, seed=seed)
    columns = BLOCKS_A_ROW * BLOCKS[name].weights
    np.testing.assert_array_equal(dequantise_blocks(name, data.tobytes(), ROWS, columns), oracle(name, data))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0x00, 0xFF, 0x55, 0xAA, 0x0F, 0xF0])
def test_uniform_bytes_dequantise_as_the_reference_says(name: str, value: int) -> None:
    data = random_blocks(name)
    halves = [rule.offset for rule in RECIPES[name].rules.values() if isinstance(rule, Half | Exponent)]
    kept = data.reshape(-1, BLOCKS[name].nbytes).copy()
    blocks = np.full_like(kept, value)
    for offset in halves:
        blocks[:, offset : offset + 2] = kept[:, offset : offset + 2]
    columns = BLOCKS_A_ROW * BLOCKS[name].weights
    found = dequantise_blocks(name, blocks.tobytes(), ROWS, columns)
    np.testing.assert_array_equal(found, oracle(name, blocks.reshape(ROWS, -1)))


@pytest.mark.parametrize("name", NAMES)
def test_every_code_of_a_block_is_reached_by_one_bit_each(name: str) -> None:
    """Flipping one bit of a block changes what the reference says it changes: no bit is read twice or left out."""
    block = random_blocks(name, rows=1, blocks=1)
    flipped = np.repeat(block, 8 * block.shape[1], axis=0)
    bits = np.arange(len(flipped))
    flipped[bits, bits // 8] ^= (1 << bits % 8).astype(np.uint8)
    with np.errstate(all="ignore"):
        want = oracle(name, flipped)
        found = dequantise_blocks(name, flipped.tobytes(), len(flipped), BLOCKS[name].weights)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", NAMES)
def test_planes_have_the_shapes_and_types_that_the_encoding_says(name: str) -> None:
    columns = BLOCKS_A_ROW * BLOCKS[name].weights
    found = unpack(name, random_blocks(name).tobytes(), ROWS, columns)
    want = {plane.name: (plane.shape, NUMPY[plane.dtype]) for plane in planes(native_encoding(name), ROWS, columns)}
    assert {plane: (array.shape, array.dtype) for plane, array in found.items()} == want
    assert found["codes"].max() < 1 << native_encoding(name).bits  # type: ignore[union-attr]


def test_native_encodings_are_the_narrowest_exact_ones() -> None:
    assert {name: str(native_encoding(name)) for name in (*DENSE, *RECIPES)} == {
        "F32": "f32",
        "F16": "f16",
        "BF16": "bf16",
        "Q4_0": "affine4g32-f16-z8",
        "Q4_1": "affine4g32-f16-min",
        "Q5_0": "affine5g32-f16-z16",
        "Q5_1": "affine5g32-f16-min",
        "Q8_0": "affine8g32-f16-z128",
        "Q2_K": "affine2g16-i8xf16/256-min",
        "Q3_K": "affine3g16-i8xf16/256-z4",
        "Q4_K": "affine4g32-i8xf16/256-min",
        "Q5_K": "affine5g32-i8xf16/256-min",
        "Q6_K": "affine6g16-i8xf16/256-z32",
        "IQ4_NL": "lookup4g32-f16-tbf9962cb",
        "IQ4_XS": "lookup4g32-i8xf16/256-tbf9962cb",
        "MXFP4": "lookup4g32-bf16-t15a75dd5",
    }


@pytest.mark.parametrize("name", ["IQ2_XXS", "Q8_K", "I32", "F8_E4M3", "nonsense"])
def test_an_encoding_without_a_recipe_is_refused_by_name(name: str) -> None:
    with pytest.raises(Unsupported, match=f"encoded as {name} .*known are F32, F16"):
        native_encoding(name)


def _tensor_file(path: Path, name: str, dims: list[int], data: bytes) -> Path:
    return write(path, gguf_bytes({}, {"w": (dims, GGMLQuantizationType[name].value, data)}).data)


@pytest.mark.parametrize("name", NAMES)
def test_row_ranges_repack_to_the_same_planes(tmp_path: Path, name: str) -> None:
    columns = BLOCKS_A_ROW * BLOCKS[name].weights
    path = _tensor_file(tmp_path / "m.gguf", name, [columns, ROWS], random_blocks(name).tobytes())
    with open_checkpoint(path) as model:
        tensor = model.tensors["w"]
        whole = repack(tensor)
        parts = [repack(tensor, rows=part) for part in (slice(0, 1), slice(1, 5), slice(5, 5), slice(5, None))]
        for plane, array in whole.items():
            np.testing.assert_array_equal(np.concatenate([part[plane] for part in parts]), array)
        np.testing.assert_array_equal(dequantise(tensor, slice(2, 4)), dequantise(tensor)[2:4])


def test_leading_axes_count_as_rows(tmp_path: Path) -> None:
    data = random_blocks("Q4_0", rows=6, blocks=1)
    with open_checkpoint(_tensor_file(tmp_path / "m.gguf", "Q4_0", [32, 3, 2], data.tobytes())) as model:
        tensor = model.tensors["w"]
        assert tensor.shape == (2, 3, 32)
        np.testing.assert_array_equal(dequantise(tensor), oracle("Q4_0", data))


def test_more_blocks_than_are_taken_apart_at_once(tmp_path: Path) -> None:
    data = random_blocks("Q5_K", rows=37, blocks=31)
    np.testing.assert_array_equal(dequantise_blocks("Q5_K", data.tobytes(), 37, 31 * 256), oracle("Q5_K", data))


@pytest.mark.parametrize(("rows", "columns"), [(1, 33), (2, 32), (0, 32)])
def test_data_that_does_not_fit_the_shape_is_refused(rows: int, columns: int) -> None:
    with pytest.raises(BadCheckpoint, match="Q4_0"):
        unpack("Q4_0", bytes(18), rows, columns)


def _bf16(values: NDArray[np.float32]) -> bytes:
    return (values.view(np.uint32) >> 16).astype("<u2").tobytes()


def test_dense_weights_stay_as_they_are() -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal((3, 8)).astype(np.float32)
    truncated = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(dequantise_blocks("F32", values.tobytes(), 3, 8), values)
    np.testing.assert_array_equal(dequantise_blocks("BF16", _bf16(values), 3, 8), truncated)
    half = values.astype(np.float16)
    np.testing.assert_array_equal(dequantise_blocks("F16", half.tobytes(), 3, 8), half.astype(np.float32))
    assert unpack("F16", half.tobytes(), 3, 8)["values"].base is not None  # A view, not a copy.


@pytest.mark.parametrize("name", NAMES)
def test_every_wider_encoding_holds_the_same_weights(name: str) -> None:
    native, columns = native_encoding(name), BLOCKS_A_ROW * BLOCKS[name].weights
    data = random_blocks(name)
    narrow = unpack(name, data.tobytes(), ROWS, columns)
    for encoding in candidates(native):
        wide = widen(narrow, native, encoding)
        shapes = {plane.name: (plane.shape, NUMPY[plane.dtype]) for plane in planes(encoding, ROWS, columns)}
        assert {plane: (array.shape, array.dtype) for plane, array in wide.items()} == shapes, encoding
        np.testing.assert_array_equal(dequantise_planes(encoding, wide), oracle(name, data), str(encoding))


def _only(*bits: int, scales: tuple[DType, ...] = (DType.F16, DType.F32)) -> Callable[[Encoding], bool]:
    def supported(encoding: Encoding) -> bool:
        return isinstance(encoding, Dense) or (
            isinstance(encoding, Affine) and encoding.bits in bits and encoding.scale in scales
        )

    return supported


@pytest.mark.parametrize(
    ("name", "supported", "chosen"),
    [
        ("Q4_1", _only(4, 8), "affine4g32-f16-min"),
        ("Q4_1", _only(8), "affine8g32-f16-min"),
        ("Q4_1", _only(4, scales=(DType.F32,)), "affine4g32-f32-min"),
        ("Q5_0", _only(4, 8), "affine8g32-f16-z16"),
        ("Q2_K", _only(4, 8), "affine4g16-f32-min"),
        ("Q3_K", _only(4, 8), "affine4g16-f32-z4"),
        ("Q4_K", _only(4, 8), "affine4g32-f32-min"),
        ("Q6_K", _only(4, 8), "affine8g16-f32-z32"),
        ("IQ4_NL", _only(4, 8), "affine8g32-f16-z128"),
        ("IQ4_XS", _only(4, 8), "affine8g32-f32-z128"),
        ("MXFP4", _only(4, 8), "affine8g32-f32-z128"),
        ("Q6_K", _only(), "f32"),
        ("BF16", _only(), "bf16"),
    ],
)
def test_the_narrowest_supported_encoding_is_chosen(
    name: str, supported: Callable[[Encoding], bool], chosen: str
) -> None:
    assert str(choose(native_encoding(name), supported)) == chosen


def test_a_backend_that_holds_nothing_exactly_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"affine5g32-f16-z16 .* tried affine5g32-f16-z16, .*affine8g32-f32-z16, f32"):
        choose(native_encoding("Q5_0"), lambda encoding: False)


def test_a_widening_that_would_round_is_refused() -> None:
    narrow = Affine(4, 32, TwoLevel(256), None)
    with pytest.raises(ValueError, match="without rounding"):
        widen({}, narrow, Affine(4, 32, DType.F16, None))
    with pytest.raises(ValueError, match="without rounding"):
        widen({}, Lookup(32, DType.F16, (0.5,) * 16), Affine(8, 32, DType.F16, 128))


@pytest.mark.parametrize("fixture", ["smollm2_path", "gemma3_path"])
def test_real_weights_dequantise_as_the_reference_says(fixture: str, request: pytest.FixtureRequest) -> None:
    with open_checkpoint(request.getfixturevalue(fixture)) as model:
        seen = set()
        for tensor in model.tensors.values():
            if tensor.encoding in seen:
                continue
            seen.add(tensor.encoding)
            rows = slice(0, min(64, tensor.rows))
            size = tensor.nbytes // tensor.rows * (rows.stop - rows.start)
            data = np.frombuffer(tensor.span.part(0, size).view(), np.uint8).reshape(rows.stop, -1)
            np.testing.assert_array_equal(dequantise(tensor, rows), oracle(tensor.encoding, data))


def test_all_of_smollm2_repacks_in_well_under_a_second(smollm2_path: Path) -> None:
    with open_checkpoint(smollm2_path) as model:
        spent = []
        for _ in range(3):
            start = time.process_time()
            for tensor in model.tensors.values():
                repack(tensor)
            spent.append(time.process_time() - start)
    assert min(spent) < 0.6


def test_a_tensor_that_a_device_takes_in_no_form_is_named(tmp_path: Path) -> None:
    tensor = read_gguf(write(tmp_path / "m.gguf", small_gguf().data)).tensors["matrix"]
    with pytest.raises(Unsupported, match=r"m.gguf: tensor 'matrix': weights as .* can't be used on this backend"):
        file_weight(tensor, lambda encoding: False)
