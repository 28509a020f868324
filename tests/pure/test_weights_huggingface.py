"""Importing a repository, against a hub on the loopback that the test starts."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pie_edge.errors import BadCheckpoint, FetchFailed, ModelError, ModelNotFound, UsageError
from pie_edge.weights import hub, huggingface
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.huggingface import Reference, RemoteFile
from tests.support.checkpoints import STRING, gguf_bytes, safetensors_bytes, small_gguf, small_safetensors
from tests.support.model_hub import ModelHub, serving

GGUF = bytes(small_gguf().data)
WHOLE = {"general.architecture": (STRING, "llama"), "tokenizer.ggml.model": (STRING, "gpt2")}
"""What a GGUF has to say to be imported."""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelHub]:
    made = ModelHub()
    with serving(made):
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("PIE_EDGE_HOME", str(tmp_path / "home"))
        yield made


def test_a_repository_with_one_gguf_is_imported_and_owned(models: ModelHub) -> None:
    models.files["org/Tiny-GGUF"] = {"README.md": b"text", "tiny.Q4_0.gguf": GGUF, "mmproj-tiny.gguf": b"no"}
    seen: list[tuple[int, int, str]] = []
    entry = hub.import_model("org/Tiny-GGUF", progress=lambda *step: seen.append(step))
    assert (entry.name, entry.source, entry.owned) == ("tiny-gguf", "hf:org/Tiny-GGUF", True)
    assert entry.path.read_bytes() == GGUF
    assert sorted(path.name for path in entry.path.parent.iterdir()) == ["entry.json", "tiny.Q4_0.gguf"]
    assert (len(GGUF), len(GGUF), "fetching org/Tiny-GGUF") in seen
    asked = len(models.requests)
    assert hub.import_model("hf:org/Tiny-GGUF") == entry
    assert len(models.requests) == asked  # Nothing was fetched again.


def test_a_named_file_is_the_one_that_is_fetched(models: ModelHub) -> None:
    models.files["org/many"] = {"a/x.Q8_0.gguf": GGUF, "a/x.Q4_K_M.gguf": b"other"}
    entry = hub.import_model("hf:org/many:a/x.Q8_0.gguf", "mine")
    assert entry.path.name == "x.Q8_0.gguf"
    assert not any("Q4_K_M" in request for request in models.requests if "resolve" in request)


def test_a_safetensors_snapshot_comes_with_what_a_checkpoint_reads(models: ModelHub) -> None:
    models.files["org/snap"] = {
        "model.safetensors": safetensors_bytes(*small_safetensors()),
        "config.json": json.dumps({"model_type": "llama"}).encode(),
        "tokenizer.json": b"{}",
        "modules.json": b"[]",
        "1_Pooling/config.json": b"{}",
        "pytorch_model.bin": b"no",
        "onnx/model.onnx": b"no",
        "onnx/config.json": b"no",
    }
    entry = hub.import_model("org/snap")
    wanted = {"model.safetensors", "config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json"}
    assert {file.path for file in entry.files} == wanted
    with open_checkpoint(entry.path) as opened:
        assert opened.architecture == "llama"
        assert (opened.metadata["modules.json"], opened.metadata["1_Pooling/config.json"]) == ([], {})


def test_a_sharded_snapshot_comes_with_its_shards(models: ModelHub) -> None:
    shards = {f"model-0000{n}-of-00002.safetensors": n for n in (1, 2)}
    files = {
        file: safetensors_bytes({f"t{n}": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, bytes([n]))
        for file, n in shards.items()
    }
    index = {"weight_map": {f"t{n}": file for file, n in shards.items()}}
    files |= {"model.safetensors.index.json": json.dumps(index).encode(), "config.json": b'{"model_type": "llama"}'}
    files["tokenizer.json"] = b"{}"
    models.files["org/big"] = files
    with open_checkpoint(hub.import_model("org/big").path) as opened:
        assert {name: bytes(tensor.span.view()) for name, tensor in opened.tensors.items()} == {
            "t1": b"\1",
            "t2": b"\2",
        }


def test_a_split_gguf_comes_whole(models: ModelHub) -> None:
    models.files["org/split"] = {
        f"m-{n + 1:05d}-of-00002.gguf": bytes(
            gguf_bytes(
                {**WHOLE, "split.no": (2, n), "split.count": (2, 2)},
                {f"t{n}": ([1], 0, bytes(4))},
            ).data
        )
        for n in range(2)
    }
    with open_checkpoint(hub.import_model("org/split").path) as opened:
        assert set(opened.tensors) == {"t0", "t1"}


def test_a_broken_download_is_an_error_and_can_be_repeated(models: ModelHub) -> None:
    models.files["org/m"] = {"m.gguf": GGUF}
    models.cut.add("m.gguf")
    with pytest.raises(FetchFailed, match=r"hf:org/m could not be fetched: .*check the name and the network"):
        hub.import_model("org/m")
    assert hub.list_models() == []
    models.cut.clear()
    assert hub.import_model("org/m").path.read_bytes() == GGUF


def test_a_file_that_is_not_the_announced_one_is_refused(models: ModelHub) -> None:
    models.files["org/m"] = {"m.gguf": GGUF}
    models.lying["m.gguf"] = GGUF[:-1] + b"x"
    with pytest.raises(BadCheckpoint, match=r"m.gguf arrived with SHA-256 .* not"):
        hub.import_model("org/m")
    assert hub.list_models() == []
    models.lying.clear()
    assert hub.import_model("org/m").path.read_bytes() == GGUF


def test_what_the_hub_refuses_is_told_in_its_words(models: ModelHub) -> None:
    with pytest.raises(ModelNotFound, match=r"hf:org/absent could not be fetched: RepositoryNotFoundError.*HF_TOKEN"):
        hub.import_model("org/absent")
    models.files["org/gated"] = {"m.gguf": GGUF}
    models.gated.add("org/gated")
    with pytest.raises(ModelNotFound, match=r"hf:org/gated could not be fetched: GatedRepoError.*HF_TOKEN"):
        hub.import_model("org/gated")


def test_a_hub_that_is_not_there_is_an_error(models: ModelHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(FetchFailed, match=r"could not be fetched: .*HF_ENDPOINT"):
        hub.import_model("org/m")


def test_a_disk_that_fills_up_is_told_as_that(models: ModelHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object, **__: object) -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RuntimeError("data processing error") from error

    models.files["org/m"] = {"m.gguf": GGUF}
    monkeypatch.setattr("huggingface_hub.hf_hub_download", write)
    with pytest.raises(ModelError, match=r"'m' could not be stored: No space left on device .*PIE_EDGE_HOME"):
        hub.import_model("org/m")


def test_a_repository_that_is_not_there_leaves_nothing_behind(models: ModelHub, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        hub.import_model("org/absent")
    assert list((tmp_path / "home" / "models" / ".partial").iterdir()) == []


@pytest.mark.parametrize("text", ["./missing.gguf", "../missing.gguf", "models/missing.gguf", "a/model.safetensors"])
def test_a_file_that_is_missing_is_not_asked_of_the_hub(models: ModelHub, tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelNotFound, match="no file or folder here"):
        hub.import_model(text)
    assert models.requests == []
    assert not (tmp_path / "home").exists()


def test_file_names_that_lead_out_of_the_folder_are_never_fetched(models: ModelHub) -> None:
    models.files["org/evil"] = {"../../evil.gguf": GGUF, "/etc/evil.gguf": GGUF, "c:\\evil.gguf": GGUF}
    with pytest.raises(ModelNotFound, match="holds no GGUF file"):
        hub.import_model("org/evil")
    assert not any("resolve" in request for request in models.requests)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("org/repo", Reference("org/repo", None)),
        ("hf:org/repo", Reference("org/repo", None)),
        ("org/repo-2.0:dir/file.gguf", Reference("org/repo-2.0", "dir/file.gguf")),
        ("repo", None),
        ("a/b/c", None),
        ("/a/b", None),
        ("C:/models", None),
        ("org/repo:", None),
        ("", None),
    ],
)
def test_only_repositories_parse_as_such(text: str, reference: Reference | None) -> None:
    assert huggingface.parse(text) == reference


def _remote(*names: str) -> dict[str, RemoteFile]:
    return {name: RemoteFile(name, 1, None) for name in names}


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q2_K.gguf"], "m-Q4_K_M.gguf"),
        (["m.q4_1.gguf", "m.q8_0.gguf"], "m.q4_1.gguf"),
        (["m-Q2_K.gguf", "m-Q8_0.gguf"], "m-Q8_0.gguf"),
        (["m-BF16.gguf", "m-F32.gguf"], "m-BF16.gguf"),
        (["m-IQ4_XS.gguf", "model.safetensors"], "m-IQ4_XS.gguf"),
        (["consolidated.pth", "model.safetensors"], "model.safetensors"),
    ],
)
def test_the_preferred_quantisation_is_taken(names: list[str], chosen: str) -> None:
    main, _ = huggingface.choose(Reference("o/r", None), _remote(*names))
    assert main == chosen


def test_several_files_without_a_preferred_one_are_named() -> None:
    with pytest.raises(UsageError, match=r"2 GGUF files.*\n  hf:o/r:a.gguf\n  hf:o/r:b.gguf"):
        huggingface.choose(Reference("o/r", None), _remote("a.gguf", "b.gguf"))


@pytest.mark.parametrize(
    ("file", "names", "error", "says"),
    [
        ("c.gguf", ["a.gguf", "x.txt"], ModelNotFound, r"has no file 'c.gguf'; it has a.gguf"),
        ("x.txt", ["x.txt"], UsageError, "neither a GGUF nor a safetensors file"),
        ("m-00001-of-00002.gguf", ["m-00001-of-00002.gguf"], ModelNotFound, r"lacks m-00002-of-00002.gguf"),
        (None, ["pytorch_model.bin"], ModelNotFound, "holds no GGUF file and no one safetensors model"),
    ],
)
def test_a_choice_that_can_not_be_met_is_refused(
    file: str | None, names: list[str], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        huggingface.choose(Reference("o/r", file), _remote(*names))
