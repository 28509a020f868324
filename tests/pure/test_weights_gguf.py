"""The GGUF reader: what a file says is what comes out, and the two real models' headers."""

from __future__ import annotations

import re
import struct
import time
from collections import Counter
from pathlib import Path

import pytest

from pie_edge.errors import BadCheckpoint, ModelNotFound, Unsupported
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.gguf import read_gguf
from tests.support.checkpoints import ARRAY, STRING, U32, GgufBytes, Value, gguf_bytes, small_gguf, write


def test_metadata_has_the_values_that_were_written(tmp_path: Path) -> None:
    metadata = read_gguf(write(tmp_path / "m.gguf", small_gguf().data)).metadata
    assert metadata["llama.epsilon"] == struct.unpack("<f", struct.pack("<f", 1e-5))[0]
    assert {key: value for key, value in metadata.items() if key != "llama.epsilon"} == {
        "general.architecture": "llama",
        "general.alignment": 32,
        "llama.block_count": 1,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.add_bos": True,
        "tokenizer.tokens": ["<s>", "a", "héllo", ""],
        "tokenizer.scores": [0.0, -1.0, -2.0, -3.5],
        "tokenizer.flags": [True, False],
        "nested": [[1, 2], ["x"]],
        "big": 1 << 63,
    }
    assert "absent" not in metadata
    assert metadata.get("absent") is None


def test_tensors_have_row_major_shapes_and_their_own_bytes(tmp_path: Path) -> None:
    tensors = read_gguf(write(tmp_path / "m.gguf", small_gguf().data)).tensors
    assert {name: (tensor.shape, tensor.encoding) for name, tensor in tensors.items()} == {
        "norm": ((32,), "F32"),
        "matrix": ((3, 64), "Q4_1"),
        "half": ((4, 3, 2), "F16"),
    }
    assert struct.unpack("<32f", tensors["norm"].span.view()) == tuple(range(32))
    assert bytes(tensors["matrix"].span.view()) == bytes(range(120))
    assert (tensors["half"].rows, tensors["half"].columns, tensors["half"].size) == (12, 2, 24)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_every_version_and_alignment_is_read(tmp_path: Path, version: int, alignment: int) -> None:
    tensors = {"a": ([1], 0, b"abcd"), "b": ([1], 0, b"efgh")}
    made = gguf_bytes({"general.alignment": (U32, alignment)}, tensors, alignment, version)
    found = read_gguf(write(tmp_path / "m.gguf", made.data)).tensors
    assert [bytes(tensor.span.view()) for tensor in found.values()] == [b"abcd", b"efgh"]


def _patched(made: GgufBytes, what: str, code: str, value: float) -> bytearray:
    (place,) = [offset for name, offset, _ in made.fields if name == what]
    struct.pack_into(code, made.data, place, value)
    return made.data


@pytest.mark.parametrize(
    ("what", "code", "value", "error", "says"),
    [
        ("magic", "<I", 7, BadCheckpoint, "magic"),
        ("version", "<I", 1, Unsupported, "version 1"),
        ("version", ">I", 3, Unsupported, "big-endian"),
        ("tensor count", "<Q", 1 << 40, BadCheckpoint, "tensor count.* is 1099511627776; at most"),
        ("key count", "<Q", (1 << 64) - 1, BadCheckpoint, "key count.* is 18446744073709551615; at most"),
        ("length of key general.architecture", "<Q", 1 << 62, BadCheckpoint, "length of key 0 of 11"),
        ("length of general.architecture", "<Q", 1 << 62, BadCheckpoint, "length of 'general.architecture'"),
        ("type of llama.block_count", "<I", 13, BadCheckpoint, "type of value of 'llama.block_count'.* is 13"),
        ("general.alignment", "<I", 0, BadCheckpoint, "'general.alignment' is 0"),
        ("general.alignment", "<I", 48, BadCheckpoint, "'general.alignment' is 48; a power of two"),
        ("llama.epsilon", "<f", float("nan"), BadCheckpoint, "'llama.epsilon'.* not a number"),
        ("tokenizer.add_bos", "<B", 2, BadCheckpoint, "'tokenizer.add_bos'.* 2 as a truth value"),
        ("tokenizer.flags[1]", "<B", 9, BadCheckpoint, "'tokenizer.flags'.* 9 as a truth value"),
        ("count of tokenizer.tokens", "<Q", 1 << 50, BadCheckpoint, "element count of 'tokenizer.tokens'"),
        ("length of tokenizer.tokens[2]", "<Q", 1 << 63, BadCheckpoint, r"'tokenizer.tokens'\[2\]"),
        ("element type of nested", "<I", 99, BadCheckpoint, "elements of 'nested'"),
        ("n_dims of matrix", "<I", 5, BadCheckpoint, "number of dims of tensor 'matrix'.* is 5; 1…4"),
        ("n_dims of matrix", "<I", 0, BadCheckpoint, "number of dims of tensor 'matrix'.* is 0"),
        ("dim 0 of matrix", "<Q", 65, BadCheckpoint, "Q4_1 needs rows that are a multiple of 32"),
        ("dim 1 of matrix", "<Q", (1 << 64) - 1, BadCheckpoint, "dims of tensor 'matrix'"),
        ("dim 1 of matrix", "<Q", 0, BadCheckpoint, "dims of tensor 'matrix'"),
        ("tensor type of matrix", "<I", 4, Unsupported, "Q4_2"),
        ("tensor type of matrix", "<I", 250, Unsupported, "type 250"),
        ("offset of matrix", "<Q", 130, BadCheckpoint, "multiple of the alignment 32"),
        ("offset of matrix", "<Q", 1 << 60, BadCheckpoint, "tensor 'matrix' ends at byte"),
        ("offset of matrix", "<Q", 96, BadCheckpoint, "may not overlap"),
    ],
)
def test_a_wrong_field_is_refused_by_name(
    tmp_path: Path, what: str, code: str, value: float, error: type[Exception], says: str
) -> None:
    path = write(tmp_path / "m.gguf", _patched(small_gguf(), what, code, value))
    with pytest.raises(error, match=says) as caught:
        read_gguf(path)
    assert str(path) in str(caught.value)


def test_equal_names_are_refused(tmp_path: Path) -> None:
    made = gguf_bytes({"aa": (U32, 1), "ab": (U32, 2)}, {"ta": ([1], 0, bytes(4)), "tb": ([1], 0, bytes(4))})
    for before, after, says in ((b"ab", b"aa", "'aa' again"), (b"tb", b"ta", "tensor 'ta' is there twice")):
        path = write(tmp_path / "m.gguf", bytes(made.data).replace(before, after))
        with pytest.raises(BadCheckpoint, match=says):
            read_gguf(path)


def test_text_that_is_not_utf8_is_refused_when_it_is_read(tmp_path: Path) -> None:
    tokens = (ARRAY, (STRING, ["fine", b"\xff\xfe"]))
    metadata = read_gguf(write(tmp_path / "m.gguf", gguf_bytes({"tokens": tokens}, {}).data)).metadata
    with pytest.raises(BadCheckpoint, match=r"tokens\[1\].* not UTF-8"):
        metadata["tokens"]
    with pytest.raises(BadCheckpoint, match=r"'name'.* not UTF-8"):
        read_gguf(write(tmp_path / "n.gguf", gguf_bytes({"name": (STRING, b"\xff")}, {}).data))


def test_arrays_nested_too_deep_are_refused(tmp_path: Path) -> None:
    deep: tuple[int, object] = (U32, [1])
    for _ in range(200):
        deep = (ARRAY, [deep])
    with pytest.raises(BadCheckpoint, match="nests arrays 5 deep"):
        read_gguf(write(tmp_path / "m.gguf", gguf_bytes({"deep": (ARRAY, deep)}, {}).data))


def test_views_stay_valid_after_close(tmp_path: Path) -> None:
    with open_checkpoint(write(tmp_path / "m.gguf", small_gguf().data)) as checkpoint:
        view = checkpoint.tensors["matrix"].span.view()
    assert bytes(view) == bytes(range(120))


def _split(folder: Path, count: int = 3, name: str = "m-{:05d}-of-{:05d}.gguf", total: int = 3) -> list[Path]:
    paths = []
    for number in range(count):
        metadata: dict[str, Value] = {
            "split.no": (2, number),
            "split.count": (2, count),
            "split.tensors.count": (5, total),
        }
        if number == 0:
            metadata["general.architecture"] = (STRING, "llama")
        made = gguf_bytes(metadata, {f"t{number}": ([2], 0, bytes([number] * 8))})
        paths.append(write(folder / name.format(number + 1, count), made.data))
    return paths


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_of_a_split_model_opens_the_whole(tmp_path: Path, given: int) -> None:
    with open_checkpoint(_split(tmp_path)[given]) as checkpoint:
        assert checkpoint.architecture == "llama"
        found = {name: bytes(tensor.span.view()) for name, tensor in checkpoint.tensors.items()}
    assert found == {f"t{number}": bytes([number] * 8) for number in range(3)}


def test_a_split_model_that_lacks_a_part_says_which(tmp_path: Path) -> None:
    paths = _split(tmp_path)
    paths[1].unlink()
    with pytest.raises(ModelNotFound, match=re.escape("m-00002-of-00003.gguf is not beside it")):
        read_gguf(paths[0])


def test_parts_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    paths = _split(tmp_path, total=4)
    with pytest.raises(BadCheckpoint, match=r"'split.tensors.count' is 4, its parts hold 3"):
        read_gguf(paths[0])
    paths = _split(tmp_path)
    write(paths[2], paths[1].read_bytes())
    with pytest.raises(BadCheckpoint, match=r"'split.no' 1"):
        read_gguf(paths[0])
    alone = write(tmp_path / "alone.gguf", paths[0].read_bytes())
    with pytest.raises(BadCheckpoint, match=r"one of 3 parts by its 'split.count'"):
        read_gguf(alone)


def test_smollm2_is_what_its_header_says(smollm2_path: Path) -> None:
    with open_checkpoint(smollm2_path) as model:
        assert (model.container, model.architecture, len(model.tensors)) == ("gguf", "llama", 272)
        assert Counter(t.encoding for t in model.tensors.values()) == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
        assert model.tensors["token_embd.weight"].shape == (49152, 576)
        assert model.tensors["blk.29.ffn_down.weight"].shape == (576, 1536)
        assert model.tensors["blk.0.attn_k.weight"].shape == (192, 576)
        assert model.metadata["llama.block_count"] == 30
        assert len(model.metadata["tokenizer.ggml.tokens"]) == 49152
        assert model.metadata["tokenizer.ggml.merges"][0] == "Ġ t"


def test_gemma3_is_what_its_header_says(gemma3_path: Path) -> None:
    with open_checkpoint(gemma3_path) as model:
        assert (model.container, model.architecture, len(model.tensors)) == ("gguf", "gemma3", 236)
        held = Counter(t.encoding for t in model.tensors.values())
        assert held == {"F32": 109, "Q5_0": 81, "Q4_K": 27, "Q8_0": 10, "Q6_K": 9}
        assert model.tensors["token_embd.weight"].shape == (262144, 640)
        assert model.tensors["blk.17.attn_q.weight"].shape == (1024, 640)
        assert len(model.metadata["tokenizer.ggml.tokens"]) == 262144
        assert model.metadata["tokenizer.ggml.tokens"][2] == "<bos>"


def test_a_header_with_262144_tokens_is_read_in_a_moment(gemma3_path: Path) -> None:
    spent = []
    for _ in range(3):
        start = time.process_time()
        read_gguf(gemma3_path)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.15
