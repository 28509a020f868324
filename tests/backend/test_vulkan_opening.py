"""What opening a Vulkan device does once and remembers: the self-test, tuning, and the shaders it is shipped with."""

from __future__ import annotations

import asyncio
import errno
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.backend_choice import Choice, open_backend
from pie_edge.backends.shared import examination
from pie_edge.backends.shared.fuse import FUSED, fuse
from pie_edge.backends.shared.open_device import Options
from pie_edge.backends.shared.remembered import Record
from pie_edge.backends.shared.trial import Bench
from pie_edge.backends.vulkan import tune
from pie_edge.backends.vulkan.backend import Live, VulkanBackend, open_vulkan
from pie_edge.backends.vulkan.device import Gpu, open_gpu, survey
from pie_edge.backends.vulkan.launch import Module
from pie_edge.backends.vulkan.lower import KINDS
from pie_edge.backends.vulkan.pipelines import Pipelines
from pie_edge.backends.vulkan.session import Session
from pie_edge.backends.vulkan.shaders import shader
from pie_edge.backends.vulkan.tuning import default_tuning
from pie_edge.cli import app
from pie_edge.config import load
from tests.backend.device_cases import check
from tests.backend.opening_on_device import *  # noqa: F403
from tests.backend.opening_on_device import Api, close

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def opened_bench() -> Iterator[Bench]:
    session = Session(open_gpu(), 1 << 28, None)
    yield tune.bench(session)
    session.close()


def as_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(name: str = "") -> Gpu:
        gpu = open_gpu(name)
        return replace(gpu, facts=replace(gpu.facts, software=False))

    monkeypatch.setattr("pie_edge.backends.vulkan.backend.open_gpu", opened)


def other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "kernels_digest", lambda: "other kernels")


@pytest.fixture
def api() -> Api:
    return Api("vulkan", open_vulkan, Live, lambda: survey()[0][0], opened_bench, as_a_card, other_kernels)


def test_the_self_test_covers_every_kind_fused_ones_included() -> None:
    program = examination.examination(halves=True).program
    covered = {op.kind for op in (*program.ops, *fuse(program, lambda names: True).ops)}
    assert covered == (KINDS | FUSED) - {"copy_pages", "copy_slots"}


def test_no_tune_reaches_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the setting to the device; a backend without variants is never told of it."""
    told: dict[str, object] = {}

    def note(done: int, total: int, what: str) -> None: ...

    async def opened(device: str, **options: object) -> None:
        told.update(options)

    monkeypatch.setattr("pie_edge.backends.vulkan.backend.open_vulkan", opened)
    asyncio.run(open_backend(Choice("vulkan", "a card"), tune=load({"tune": False}).settings.tune, progress=note))
    assert told["tune"] is False
    assert told["progress"] is note
    monkeypatch.setattr("pie_edge.backends.cpu.backend.open_cpu", opened)
    told.clear()
    asyncio.run(open_backend(Choice("cpu", "a processor"), tune=False))
    assert "tune" not in told


def test_what_could_not_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the file is made, and the bytes don't arrive."""

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    gpu = open_gpu()
    pipelines, record = Pipelines(gpu, tmp_path), Record(tune.subject(gpu.facts), tmp_path, "tuning")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        pipelines.save()
        record.write({"some": "thing"})
    assert not list(tmp_path.iterdir())
    pipelines.save()
    record.write({"some": "thing"})
    assert len(list(tmp_path.iterdir())) == 2
    pipelines.close()
    gpu.close()


@pytest.mark.parametrize("words", [["--backend", "cpu"], []])
def test_a_backend_without_variants_says_that_there_is_nothing_to_tune(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named on the command line, or by the setting that every command reads."""
    monkeypatch.setenv("PIE_EDGE_BACKEND", "vulkan" if words else "cpu")
    with pytest.raises(SystemExit) as ended:
        app.start(["tune", *words])
    assert ended.value.code
    assert "backend cpu has no variants to choose from" in capsys.readouterr().err


@pytest.mark.parametrize("texels", [1 << 27, 1 << 8])
def test_a_buffer_larger_than_a_devices_texels_is_read_as_words(monkeypatch: pytest.MonkeyPatch, texels: int) -> None:
    names: list[str] = []

    def open_small(name: str = "") -> Gpu:
        gpu = open_gpu(name)
        return replace(gpu, facts=replace(gpu.facts, texels=texels))

    def seen(name: str) -> Module:
        names.append(name)
        return shader(name)

    monkeypatch.setattr("pie_edge.backends.vulkan.backend.open_gpu", open_small)
    monkeypatch.setattr("pie_edge.backends.vulkan.lower_linear.shader", seen)
    options = Options()
    live = Live(replace(options, tuning=replace(default_tuning(open_small().facts), texels=True)))
    backend = VulkanBackend(options, live)
    check(backend, "linear affine4g32-f16-min 7 rows")
    close(backend)
    assert set(names) == {"linear_affine4_texels" if texels > 1 << 8 else "linear_affine4"}


def test_committed_shaders_are_what_their_sources_say() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/build-shaders", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("glslc") is None, reason="glslc isn't installed")
def test_building_the_shaders_again_gives_the_same_bytes(tmp_path: Path) -> None:
    """With Debian's glslc; another compiler's output differs, and then only the sources' hashes can be compared."""
    copy = tmp_path / "tree"
    shutil.copytree(ROOT / "shaders", copy / "shaders")
    (copy / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "build-shaders", copy / "scripts")
    built = copy / "shaders" / "spirv"
    before = {path.name: path.read_bytes() for path in built.glob("*.spv")}
    for path in built.iterdir():
        path.unlink()
    subprocess.run([sys.executable, "scripts/build-shaders"], cwd=copy, check=True, capture_output=True)
    version = subprocess.run(["glslc", "--version"], capture_output=True, text=True, check=True).stdout
    if "2023.2" not in version:
        pytest.skip(f"shaders were built with another glslc than {version.splitlines()[0]}")
    after = {path.name: path.read_bytes() for path in built.glob("*.spv")}
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == []
