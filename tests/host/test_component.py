"""The language component's way to machine code: built once, compiled once, never stale, and a damaged file is made again."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from wasmtime import Engine, wat2wasm

from pie_edge import resources
from pie_edge.errors import Unsupported
from pie_edge.host import compiled, language
from pie_edge.host.sandbox import make_engine


@pytest.fixture
def engine() -> Engine:
    return make_engine()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A tiny component in place of the real one, and what was told while it was loaded."""
    file = tmp_path / "small.wasm"
    file.write_bytes(wat2wasm("(component)"))
    monkeypatch.setattr(compiled, "ensure_component", lambda cache_dir, progress: file)
    return []


def load(engine: Engine, cache: Path, told: list[str]) -> None:
    compiled.load_component(engine, cache, lambda done, total, what: told.append(what))


def only_file(cache: Path) -> Path:
    [file] = cache.iterdir()
    return file


def test_a_component_is_compiled_once_and_mapped_from_then_on(engine: Engine, tmp_path: Path, small: list[str]) -> None:
    cache = tmp_path / "cache"
    load(engine, cache, small)
    assert len(small) == 1
    before = only_file(cache).stat()
    load(make_engine(), cache, small)
    assert len(small) == 1, "it was compiled again"
    assert only_file(cache).stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "empty"])
def test_a_damaged_file_is_made_again(engine: Engine, tmp_path: Path, small: list[str], damage: str) -> None:
    cache = tmp_path / "cache"
    load(engine, cache, small)
    file = only_file(cache)
    whole = file.read_bytes()
    broken = {"truncated": whole[: len(whole) // 2], "overwritten": b"\xa5" * len(whole), "empty": b""}[damage]
    file.write_bytes(broken)
    load(engine, cache, small)
    assert len(small) == 2
    assert len(only_file(cache).read_bytes()) == len(whole)
    load(engine, cache, small)
    assert len(small) == 2


def test_other_sources_and_other_settings_have_files_of_their_own(
    engine: Engine, tmp_path: Path, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    load(engine, cache, small)
    monkeypatch.setattr(compiled, "source_digest", lambda: "another")
    load(engine, cache, small)
    monkeypatch.setattr(compiled, "CONFIGURATION", "another")
    load(engine, cache, small)
    assert len(list(cache.iterdir())) == 3


def test_old_files_are_removed_and_the_newest_stay(
    engine: Engine, tmp_path: Path, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    for number in range(5):
        monkeypatch.setattr(compiled, "source_digest", lambda number=number: str(number))
        load(engine, cache, small)
        time.sleep(0.01)
    assert len(list(cache.iterdir())) == 3
    load(engine, cache, small)
    assert len(small) == 5


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(
    engine: Engine, tmp_path: Path, small: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    load(engine, tmp_path / "file" / "cache", small)
    assert "can't be written" in small[-1]


def test_a_component_that_cannot_be_compiled_is_refused(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python.wasm").write_bytes(b"\0asm nonsense")
    monkeypatch.setattr(compiled, "ensure_component", lambda cache_dir, progress: tmp_path / "python.wasm")
    with pytest.raises(Unsupported, match="can't be compiled: .*; install pie-edge again"):
        load(engine, tmp_path / "cache", [])


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Nothing is packaged, and building is quick: the folders it was done in."""
    folders: list[Path] = []

    def build(scratch: Path) -> bytes:
        folders.append(scratch)
        return bytes(wat2wasm("(component)"))

    monkeypatch.setattr(language, "_DATA", tmp_path / "data")
    monkeypatch.setattr(language, "build", build)
    return folders


@pytest.mark.parametrize("damage", [b"", b"\0asm nonsense", b"\xa5" * 100])
def test_a_damaged_component_is_built_again_at_once(tmp_path: Path, builds: list[Path], damage: bytes) -> None:
    cache = tmp_path / "cache"
    file = language.ensure_component(cache)
    assert language.ensure_component(cache) == file
    assert len(builds) == 1
    file.write_bytes(damage)
    assert language.ensure_component(cache).read_bytes() == wat2wasm("(component)")
    assert len(builds) == 2
    assert len(list(cache.iterdir())) == 1


def test_it_is_built_where_it_is_kept_and_not_in_the_temporary_folder(
    tmp_path: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    language.ensure_component(tmp_path / "cache")
    assert builds[0].parent == tmp_path / "cache"
    assert not builds[0].exists()


def test_a_cache_without_room_or_rights_is_told_before_anything_is_built(
    tmp_path: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unsupported, match="can't be kept in .*file: .*PIE_EDGE_CACHE"):
        language.ensure_component(tmp_path / "file")
    monkeypatch.setattr(language, "_ROOM", 1 << 62)
    with pytest.raises(
        Unsupported, match="building it takes .* MiB, and less is free; make room there, .*PIE_EDGE_CACHE"
    ):
        language.ensure_component(tmp_path / "cache")
    assert builds == []


def test_a_disk_that_fills_up_while_it_is_built_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = 'panicked: Os { code: 28, message: "No space left on device" }\nstack backtrace:\n 0: rust_begin_unwind'
    failed = subprocess.CompletedProcess([], 101, "", said)
    monkeypatch.setattr(language, "_DATA", tmp_path / "data")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(Unsupported, match="can't be kept in .*: No space left on device; make room there") as told:
        language.ensure_component(tmp_path / "cache")
    assert "backtrace" not in str(told.value)
    assert list((tmp_path / "cache").iterdir()) == []
    failed.stderr = "thread panicked at x.rs\nstack backtrace:\n 0: rust_begin_unwind"
    with pytest.raises(Unsupported, match=r"componentize-py says:\nthread panicked at x.rs$"):
        language.ensure_component(tmp_path / "cache")


def test_without_the_tool_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(language, "_DATA", tmp_path / "data")
    with pytest.raises(Unsupported, match=r"pip install componentize-py==0\.25\.1"):
        language.ensure_component(tmp_path)


def test_the_packaged_component_is_used_only_if_it_is_of_these_sources(tmp_path: Path, builds: list[Path]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "python.wasm").write_bytes(b"")
    for digest, used in ((language.source_digest(), True), ("of another day", False)):
        (data / "python.json").write_text(json.dumps({"digest": digest}))
        assert (language.ensure_component(tmp_path) == data / "python.wasm") is used
    assert len(builds) == 1
    (data / "python.json").write_text("not JSON")
    assert language.ensure_component(tmp_path) != data / "python.wasm"


def test_an_installed_package_without_sources_uses_the_component_it_carries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python.wasm").write_bytes(b"")
    monkeypatch.setattr(language, "_DATA", tmp_path)
    monkeypatch.setattr(resources, "inferlets", lambda: tmp_path / "nothing")
    assert language.ensure_component(tmp_path / "cache") == tmp_path / "python.wasm"


def test_an_edited_source_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "inferlets"
    root = resources.inferlets()
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(resources, "inferlets", lambda: root)
    original = language.source_digest()
    monkeypatch.setattr(resources, "inferlets", lambda: copy)
    assert language.source_digest() == original
    for file in ("sdk/python/inferlet/chat.py", "wit/world.wit"):
        (copy / file).write_text((copy / file).read_text() + "\n")
        assert language.source_digest() not in ("", original)
    (copy / "quickstart" / "main.py").write_text("# not part of it\n")
    edited = language.source_digest()
    (copy / "quickstart" / "main.py").write_text("")
    assert language.source_digest() == edited
