"""The model store: what was imported is found, what changed is refused, and nothing of the user's is ever deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pie_edge.errors import BadCheckpoint, ModelError, ModelNotFound, TokenizerError, UsageError
from pie_edge.weights import hub, store
from pie_edge.weights.checkpoint import open_checkpoint
from tests.support.checkpoints import STRING, gguf_bytes, safetensors_bytes, small_gguf, small_safetensors, write


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIE_EDGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    return write(folder / "My Model.Q4.gguf", small_gguf().data)


@pytest.mark.parametrize(
    ("platform", "variables", "place"),
    [
        ("linux", {"XDG_DATA_HOME": "/x"}, Path("/x/pie-edge")),
        ("linux", {"HOME": "/h"}, Path("/h/.local/share/pie-edge")),
        ("darwin", {"HOME": "/h"}, Path("/h/Library/Application Support/pie-edge")),
        ("win32", {"LOCALAPPDATA": "/l"}, Path("/l/pie-edge")),
        ("linux", {"PIE_EDGE_HOME": "/p"}, Path("/p")),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="the paths are POSIX ones")
def test_the_store_is_where_the_platform_keeps_such_data(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], place: Path
) -> None:
    for name in ("PIE_EDGE_HOME", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert store.home() == place
    assert hub.store_dir() == place / "models"


def test_a_file_is_referenced_and_found_by_its_name(model: Path) -> None:
    entry = hub.import_model(model)
    assert (entry.name, entry.path, entry.owned, entry.nbytes) == ("my-model.q4", model, False, model.stat().st_size)
    assert hub.find("my-model.q4") == entry
    assert hub.list_models() == [entry]
    assert hub.ensure("my-model.q4") == model
    assert hub.import_model(model) == entry  # Once more is no error.


def test_removing_a_referenced_model_leaves_the_file(model: Path) -> None:
    hub.import_model(model, "m")
    hub.remove("m")
    assert model.read_bytes() == bytes(small_gguf().data)
    assert hub.list_models() == []


def test_a_copy_is_the_stores_own(model: Path, home: Path) -> None:
    entry = hub.import_model(model, "m", copy=True)
    assert entry.owned
    assert entry.path.is_relative_to(home)
    model.unlink()
    assert hub.find("m").path.read_bytes() == bytes(small_gguf().data)
    hub.remove("m")
    assert not entry.path.exists()
    assert list((home / "models" / ".partial").iterdir()) == []


@pytest.mark.parametrize("copy", [False, True])
def test_a_snapshot_is_imported_with_the_files_beside_it(tmp_path: Path, copy: bool) -> None:
    folder = tmp_path / "Snapshot"
    folder.mkdir()
    write(folder / "model.safetensors", safetensors_bytes(*small_safetensors()))
    write(folder / "config.json", b'{"model_type": "llama"}')
    write(folder / "tokenizer.json", b"{}")
    write(folder / "unrelated.txt", b"")
    (folder / "1_Pooling").mkdir()
    write(folder / "1_Pooling" / "config.json", b'{"pooling_mode_lasttoken": true}')
    entry = hub.import_model(folder, copy=copy)
    assert entry.name == "snapshot"
    names = {"model.safetensors", "config.json", "tokenizer.json", "1_Pooling/config.json"}
    assert {(entry.path.parent / file.path).relative_to(entry.path.parent).as_posix() for file in entry.files} == names
    with open_checkpoint(entry.path) as opened:
        assert opened.config == {"model_type": "llama"}
        assert opened.metadata["1_Pooling/config.json"] == {"pooling_mode_lasttoken": True}


def test_a_copy_after_a_reference_takes_its_place(model: Path, home: Path) -> None:
    assert not hub.import_model(model, "m").owned
    copy = hub.import_model(model, "m", copy=True)
    assert copy.owned
    assert copy.path.is_relative_to(home)
    assert hub.find("m") == copy == hub.import_model(model, "m")  # A plain import leaves the copy.
    assert list((home / "models" / ".partial").iterdir()) == []
    assert model.exists()


def test_a_folder_without_an_entry_is_told_and_can_be_removed(model: Path, home: Path) -> None:
    (home / "models" / "m").mkdir(parents=True)
    for act in (lambda: hub.find("m"), lambda: hub.ensure("m"), lambda: hub.import_model(model, "m")):
        with pytest.raises(
            BadCheckpoint, match=r"holds no model: its entry.json is missing; run `pie-edge model remove m`"
        ):
            act()
    hub.remove("m")
    assert hub.import_model(model, "m").path == model


def test_a_file_that_changed_since_is_refused(model: Path) -> None:
    hub.import_model(model, "m")
    os.utime(model, ns=(1, 1))
    with pytest.raises(BadCheckpoint, match="changed since it was imported; run `pie-edge model remove m`"):
        hub.find("m")
    model.unlink()
    with pytest.raises(ModelNotFound, match=r"of model 'm' is gone"):
        hub.find("m")
    hub.remove("m")  # As the message says.


def test_a_damaged_entry_is_refused_and_can_be_removed(model: Path, home: Path) -> None:
    hub.import_model(model, "m")
    for content in ("", "[]", '{"path": 1}', '{"path": "x", "source": "s", "owned": true, "files": [{}]}'):
        (home / "models" / "m" / "entry.json").write_text(content)
        with pytest.raises(BadCheckpoint, match=r"entry.json is corrupt"):
            hub.find("m")
        assert hub.list_models() == []
    hub.remove("m")


def test_a_path_is_found_without_an_import(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub.find(model).path == model
    monkeypatch.chdir(model.parent)
    assert hub.find(model.name).path == model
    assert hub.ensure("./" + model.name) == model
    assert hub.list_models() == []


def test_an_unknown_name_gets_the_nearest_ones(model: Path) -> None:
    hub.import_model(model, "mistral")
    with pytest.raises(ModelNotFound, match=r"no model 'mistrl' here; did you mean mistral\?; models here: mistral"):
        hub.find("mistrl")
    with pytest.raises(ModelNotFound, match="built in but not fetched yet: run `pie-edge model import gemma3-270m`"):
        hub.find("gemma3-270m")
    with pytest.raises(ModelNotFound, match=r"models here: mistral; built in: smollm2-135m, gemma3-270m"):
        hub.find("zzz")
    for odd in ("", "../mistral", "a\0b", "x" * 5000, "MISTRAL", "."):
        with pytest.raises(ModelNotFound):
            hub.find(odd)
        with pytest.raises(ModelNotFound):
            hub.remove(odd)


def test_names_are_refused_that_are_no_folder_names(model: Path) -> None:
    for name in ("../m", "A", "a b", ".m", "x" * 65, "a/b"):
        with pytest.raises(UsageError, match="can't be a model's name"):
            hub.import_model(model, name)
    with pytest.raises(UsageError, match="the name of a built-in model"):
        hub.import_model(model, "smollm2-135m")


def test_a_name_taken_by_another_source_is_refused(model: Path) -> None:
    hub.import_model(model, "m")
    other = write(model.with_name("other.gguf"), small_gguf().data)
    with pytest.raises(UsageError, match=r"there is a model 'm' already, from .*My Model"):
        hub.import_model(other, "m")


def test_a_bad_file_is_not_imported(tmp_path: Path) -> None:
    cut = write(tmp_path / "cut.gguf", small_gguf().data[:300])
    with pytest.raises(BadCheckpoint):
        hub.import_model(cut)
    nameless = write(tmp_path / "nameless.gguf", gguf_bytes({"general.name": (STRING, "x")}, {}).data)
    with pytest.raises(BadCheckpoint, match=r"'general.architecture' is None"):
        hub.import_model(nameless)
    silent = write(tmp_path / "silent.gguf", gguf_bytes({"general.architecture": (STRING, "llama")}, {}).data)
    with pytest.raises(TokenizerError, match=r"silent.gguf carries no tokenizer \(tokenizer.ggml.model is missing\)"):
        hub.import_model(silent)
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    write(snapshot / "model.safetensors", safetensors_bytes(*small_safetensors()))
    write(snapshot / "config.json", b'{"model_type": "llama"}')
    with pytest.raises(TokenizerError, match=r"model.safetensors has no tokenizer.json beside it; add the file"):
        hub.import_model(snapshot)
    with pytest.raises(ModelNotFound, match="no file or folder here, no built-in model"):
        hub.import_model(tmp_path / "absent.gguf")
    assert hub.list_models() == []


def test_an_interrupted_import_leaves_no_model_and_can_be_repeated(model: Path) -> None:
    def interrupt(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.import_model(model, "m", copy=True, progress=interrupt)
    assert hub.list_models() == []
    assert hub.import_model(model, "m", copy=True).owned


def test_two_at_once_import_once(model: Path) -> None:
    inside, go, waited = threading.Event(), threading.Event(), threading.Event()
    found: list[hub.ModelEntry] = []

    def slow(done: int, total: int, what: str) -> None:
        inside.set()
        assert go.wait(20)

    def second(done: int, total: int, what: str) -> None:
        assert what == "waiting for another process that imports m"
        waited.set()

    threads = [
        threading.Thread(target=lambda p=progress: found.append(hub.import_model(model, "m", copy=True, progress=p)))
        for progress in (slow, second)
    ]
    threads[0].start()
    assert inside.wait(20)
    threads[1].start()
    assert waited.wait(20)
    go.set()
    for thread in threads:
        thread.join(20)
    assert len(found) == 2
    assert found[0] == found[1]


def test_progress_reaches_the_total(model: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    hub.import_model(model, "m", progress=lambda *step: seen.append(step))
    size = model.stat().st_size
    assert seen[-1] == (size, size, f"checking {model.name}")


@pytest.mark.skipif(
    os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_a_store_that_can_not_be_written_says_so(model: Path, home: Path) -> None:
    home.mkdir(mode=0o500)
    with pytest.raises(ModelError, match=r"could not be stored: Permission denied .*PIE_EDGE_HOME"):
        hub.import_model(model, "m")


def test_a_store_that_is_a_file_says_so(model: Path, home: Path) -> None:
    write(home, b"")
    with pytest.raises(ModelError, match=r"could not be stored: .*PIE_EDGE_HOME"):
        hub.import_model(model, "m")


def test_sizes_are_told_while_folders_come_and_go(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "x", b"12345")
    seen = []
    for path, size in store.sizes_below(tmp_path):
        seen.append((path.name, size))
        for other in ("a", "b", "c"):
            if path.parent.name != other:
                shutil.rmtree(tmp_path / other, ignore_errors=True)
    assert seen == [("x", 5)]


def test_finding_a_model_imports_nothing_heavy() -> None:
    heavy = {"numpy", "huggingface_hub", "subprocess", "zipfile"}
    code = f"import sys, pie_edge.weights.hub; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
