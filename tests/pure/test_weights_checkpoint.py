"""Opening a model by path: the content decides, a folder with one model will do, and refusals say what is wanted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pie_edge.errors import BadCheckpoint, ModelNotFound, PieError, Unsupported
from pie_edge.weights.checkpoint import open_checkpoint
from tests.support.checkpoints import gguf_bytes, safetensors_bytes, small_gguf, small_safetensors, write


def _snapshot(folder: Path, config: object = None) -> Path:
    folder.mkdir(exist_ok=True)
    write(folder / "model.safetensors", safetensors_bytes(*small_safetensors()))
    write(folder / "config.json", json.dumps(config or {"model_type": "llama", "hidden_size": 4}).encode())
    write(folder / "tokenizer.json", b"{}")
    return folder


def test_the_content_decides_not_the_name(tmp_path: Path) -> None:
    with open_checkpoint(write(tmp_path / "a.safetensors", small_gguf().data)) as found:
        assert found.container == "gguf"
    with open_checkpoint(write(tmp_path / "b.gguf", safetensors_bytes(*small_safetensors()))) as found:
        assert found.container == "safetensors"


def test_a_folder_with_one_gguf_opens_it(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", small_gguf().data)
    write(tmp_path / "README.md", b"text")
    with open_checkpoint(tmp_path) as found:
        assert (found.path, found.architecture) == (path, "llama")


def test_a_safetensors_snapshot_has_its_files_as_metadata(tmp_path: Path) -> None:
    folder = _snapshot(tmp_path / "snapshot")
    for given in (folder, folder / "model.safetensors"):
        with open_checkpoint(given) as found:
            assert (found.container, found.architecture) == ("safetensors", "llama")
            assert found.config == {"model_type": "llama", "hidden_size": 4}
            assert set(found.metadata) == {"config.json", "tokenizer.json"}
            assert found.metadata["tokenizer.json"] == folder / "tokenizer.json"
            assert found.metadata.get("generation_config.json") is None
            assert {name: (t.shape, t.encoding) for name, t in found.tensors.items()} == {
                "a": ((2, 3), "F32"),
                "b": ((4,), "BF16"),
            }


@pytest.mark.parametrize("config", [{"model_type": 7}, {"hidden_size": 1}])
def test_a_config_without_an_architecture_is_refused_when_asked(tmp_path: Path, config: object) -> None:
    with open_checkpoint(_snapshot(tmp_path, config)) as found, pytest.raises(BadCheckpoint, match="model_type"):
        _ = found.architecture


def test_weights_without_a_config_are_refused_when_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "bare.safetensors", safetensors_bytes(*small_safetensors()))
    with open_checkpoint(path) as found, pytest.raises(BadCheckpoint, match=r"has no config.json beside it"):
        _ = found.architecture
    path = write(tmp_path / "bare.gguf", gguf_bytes({}, {}).data)
    with open_checkpoint(path) as found, pytest.raises(BadCheckpoint, match=r"'general.architecture' is None"):
        _ = found.architecture


def test_a_folder_with_several_models_names_them(tmp_path: Path) -> None:
    for name in ("one.gguf", "two.gguf"):
        write(tmp_path / name, small_gguf().data)
    with pytest.raises(ModelNotFound, match=r"holds 2 models: one.gguf, two.gguf; give the path of one"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"", BadCheckpoint, "is empty"),
        (b"hello, world, this is text", BadCheckpoint, "a GGUF or safetensors file is wanted"),
        (b"PK\3\4 a torch archive", Unsupported, "pickled PyTorch"),
        (b"\x80\2ctorch", Unsupported, "pickled PyTorch"),
        (b"tjgg\3\0\0\0", Unsupported, "from before GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\noid", BadCheckpoint, "git lfs pull"),
    ],
)
def test_another_kind_of_file_is_refused_by_name(
    tmp_path: Path, content: bytes, error: type[PieError], says: str
) -> None:
    with pytest.raises(error, match=says):
        open_checkpoint(write(tmp_path / "model.gguf", content))


@pytest.mark.parametrize("path", ["absent.gguf", "."])
def test_a_path_without_a_model_is_not_found(tmp_path: Path, path: str) -> None:
    with pytest.raises(ModelNotFound, match=r"check the path|holds no"):
        open_checkpoint(tmp_path / path)


def test_a_path_that_can_not_be_one_is_refused() -> None:
    with pytest.raises(BadCheckpoint, match="null byte"):
        open_checkpoint(Path("a\0b"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs on this system")
def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.gguf")
    with pytest.raises(BadCheckpoint, match="not a regular file"):
        open_checkpoint(tmp_path / "model.gguf")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's account of mappings")
def test_released_weights_take_no_memory_and_are_there_when_they_are_asked_for(tmp_path: Path) -> None:
    size = 4 << 20
    header = {"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    path = write(tmp_path / "m.safetensors", safetensors_bytes(header, bytes(range(256)) * (size // 256)))
    with open_checkpoint(path) as checkpoint:
        view = checkpoint.tensors["w"].span.view()
        content = bytes(view)
        assert resident(path) >= size
        checkpoint.release()
        assert resident(path) == 0
        assert view == content
        del view


def resident(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            found = next(line for line in lines if line.startswith("Rss:"))
            return int(found.split()[1]) * 1024
    raise AssertionError(f"{path} is not mapped")
