"""The safetensors reader: agrees with the format's own library, and refuses every corrupt header by name."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from pie_edge.errors import BadCheckpoint, ModelNotFound, PieError, Unsupported
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.safetensors import read_index, read_safetensors
from tests.support.checkpoints import safetensors_bytes, small_safetensors, write


def test_files_of_the_formats_own_library_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "f32": rng.standard_normal((3, 5)).astype(np.float32),
        "f16": rng.standard_normal((2, 2, 2)).astype(np.float16),
        "i64": np.arange(4),
        "none": np.zeros((0, 3), np.float32),
        "scalar": np.array(7, np.uint8),
    }
    save_file(arrays, tmp_path / "m.safetensors", {"format": "np"})
    tensors = read_safetensors(tmp_path / "m.safetensors").tensors
    assert {name: tensor.shape for name, tensor in tensors.items()} == {n: a.shape for n, a in arrays.items()}
    for name, array in arrays.items():
        assert bytes(tensors[name].span.view()) == array.tobytes()


def _with(change: dict[str, Any] | None = None, **entry: Any) -> dict[str, Any]:
    header, _ = small_safetensors()
    header["b"] = header["b"] | entry
    return header | (change or {})


@pytest.mark.parametrize(
    ("header", "error", "says"),
    [
        (b"[1, 2]", BadCheckpoint, "JSON list; an object"),
        (b"{'a': 1}", BadCheckpoint, "header is not JSON"),
        (b'{"a": \xff}', BadCheckpoint, "header is not JSON"),
        (b'{"a": ' + b"[" * 100_000, BadCheckpoint, "header is not JSON"),
        (b'{"a": 1' + b"0" * 5000 + b"}", BadCheckpoint, "header is not JSON"),
        (b'{"a": 1, "a": 1}', BadCheckpoint, "header has 'a' twice"),
        (_with({"b": 5}), BadCheckpoint, "entry of tensor 'b' is 5"),
        (_with(dtype=3), BadCheckpoint, "dtype of tensor 'b' is 3"),
        (_with(dtype="F4"), Unsupported, "dtype of tensor 'b' is 'F4'"),
        (_with(shape="4"), BadCheckpoint, "shape of tensor 'b' is '4'"),
        (_with(shape=[-4]), BadCheckpoint, r"shape of tensor 'b' is \[-4\]"),
        (_with(shape=[True, 4]), BadCheckpoint, "shape of tensor 'b'"),
        (_with(shape=[4.0]), BadCheckpoint, "shape of tensor 'b'"),
        (_with(shape=[1 << 62, 1 << 62]), BadCheckpoint, "data_offsets of tensor 'b'.* takes"),
        (_with(shape=[5]), BadCheckpoint, "data_offsets of tensor 'b'.* takes 10 bytes"),
        (_with(data_offsets=[24]), BadCheckpoint, "two whole numbers"),
        (_with(data_offsets=[24, None]), BadCheckpoint, "two whole numbers"),
        (_with(data_offsets=[32, 24]), BadCheckpoint, "data_offsets of tensor 'b'"),
        (_with(data_offsets=[25, 33]), BadCheckpoint, "the file holds 32 bytes of data"),
        (_with(data_offsets=[0, 8]), BadCheckpoint, "must follow each other"),
        (_with({"b": {"dtype": "U8", "shape": [7], "data_offsets": [25, 32]}}), BadCheckpoint, "must follow each"),
        (_with({"b": {"dtype": "U8", "shape": [7], "data_offsets": [24, 31]}}), BadCheckpoint, "the last tensor ends"),
    ],
)
def test_a_wrong_header_is_refused_by_name(
    tmp_path: Path, header: dict[str, Any] | bytes, error: type[PieError], says: str
) -> None:
    path = write(tmp_path / "m.safetensors", safetensors_bytes(header, small_safetensors()[1]))
    with pytest.raises(error, match=says) as caught:
        read_safetensors(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("length", [0, 1, 10_000, 1 << 32, (1 << 63) + 1, (1 << 64) - 1])
def test_a_wrong_header_length_is_refused(tmp_path: Path, length: int) -> None:
    data = bytearray(safetensors_bytes(*small_safetensors()))
    struct.pack_into("<Q", data, 0, length)
    with pytest.raises(BadCheckpoint, match=f"header length is {length}; 2"):
        read_safetensors(write(tmp_path / "m.safetensors", data))


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    whole = safetensors_bytes(*small_safetensors())
    for length in range(len(whole)):
        with pytest.raises(BadCheckpoint):
            open_checkpoint(write(tmp_path / "m.safetensors", whole[:length]))
    open_checkpoint(write(tmp_path / "m.safetensors", whole)).close()


@settings(max_examples=300, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=6)), min_size=1, max_size=4))
def test_any_mutation_is_read_or_refused(tmp_path: Path, edits: list[tuple[int, bytes]]) -> None:
    data = bytearray(safetensors_bytes(*small_safetensors()))
    for place, patch in edits:
        at = place % len(data)
        data[at : at + len(patch)] = patch
    path = write(tmp_path / "m.safetensors", data)
    start = time.monotonic()
    try:
        with open_checkpoint(path) as found:
            for tensor in found.tensors.values():
                bytes(tensor.span.view())
    except (BadCheckpoint, Unsupported):
        pass
    assert time.monotonic() - start < 1


def _sharded(folder: Path, weight_map: object = None) -> Path:
    for name, value in (("x", 1), ("y", 2)):
        header = {name: {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}
        write(folder / f"model-{name}.safetensors", safetensors_bytes(header, bytes([value] * 2)))
    index = {"weight_map": weight_map or {"x": "model-x.safetensors", "y": "model-y.safetensors"}}
    return write(folder / "model.safetensors.index.json", json.dumps(index).encode())


def test_an_index_opens_all_its_files(tmp_path: Path) -> None:
    index = _sharded(tmp_path)
    for given_path in (index, tmp_path):
        with open_checkpoint(given_path) as found:
            held = {name: bytes(tensor.span.view()) for name, tensor in found.tensors.items()}
        assert held == {"x": b"\1\1", "y": b"\2\2"}


@pytest.mark.parametrize(
    ("weight_map", "error", "says"),
    [
        ([1], BadCheckpoint, "'weight_map' is list"),
        ({"x": 3}, BadCheckpoint, "a tensor → file name table"),
        ({"x": "../other.safetensors"}, BadCheckpoint, "a plain file name is required"),
        ({"x": "/etc/passwd"}, BadCheckpoint, "a plain file name is required"),
        ({"x": ".."}, BadCheckpoint, "a plain file name is required"),
        ({"x": "model-z.safetensors"}, ModelNotFound, "model-z.safetensors, which is not beside it"),
        ({"q": "model-x.safetensors"}, BadCheckpoint, "holds 'q', but it doesn't"),
    ],
)
def test_a_wrong_index_is_refused_by_name(tmp_path: Path, weight_map: object, error: type[PieError], says: str) -> None:
    with pytest.raises(error, match=says):
        read_index(_sharded(tmp_path, weight_map))
