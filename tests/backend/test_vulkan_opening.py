"""What opening a Vulkan device does once and remembers: the self-test, tuning, and the shaders it is shipped with."""

from __future__ import annotations

import asyncio
import errno
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.backend_choice import Choice, open_backend
from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.vulkan import selftest, tune
from pie_edge.backends.vulkan.backend import Live, Options, VulkanBackend, open_vulkan
from pie_edge.backends.vulkan.device import Gpu, open_gpu, survey
from pie_edge.backends.vulkan.launch import Module
from pie_edge.backends.vulkan.lower import KINDS
from pie_edge.backends.vulkan.pipelines import Pipelines
from pie_edge.backends.vulkan.remembered import Record
from pie_edge.backends.vulkan.session import Session
from pie_edge.backends.vulkan.shaders import shader
from pie_edge.backends.vulkan.trial import Chain
from pie_edge.backends.vulkan.tuning import LinearVariant, Tuning, default_tuning
from pie_edge.cli import app
from pie_edge.config import load
from pie_edge.errors import BackendUnavailable
from tests.backend.vulkan_cases import check

ROOT = Path(__file__).resolve().parents[2]
FUSED = {"linear_group", "gated_linear", "rope_append"}


class Played:
    """A trial whose times are made up."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds

    def close(self) -> None: ...


def close(backend: VulkanBackend) -> None:
    asyncio.run(backend.close())


def test_the_self_test_covers_every_kind_fused_ones_included() -> None:
    program = selftest.examination(halves=True).program
    covered = {op.kind for op in (*program.ops, *fuse(program, lambda names: True).ops)}
    assert covered == (KINDS | FUSED) - {"copy_pages", "copy_slots"}


@pytest.mark.parametrize("exact", [False, True])
def test_a_device_that_computes_right_is_opened_and_not_examined_again_and_says_what_takes_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    said: list[str] = []

    def note(done: int, total: int, what: str) -> None:
        said.append(what)

    close(asyncio.run(open_vulkan(cache_dir=tmp_path, exact=exact, progress=note)))
    assert said == [f"testing Vulkan's kernels on {survey()[0][0].name} (once)"]

    def fail(*arguments: object) -> None:
        raise AssertionError("it was examined a second time")

    monkeypatch.setattr(selftest, "check", fail)
    close(asyncio.run(open_vulkan(cache_dir=tmp_path, exact=exact, progress=note)))
    assert len(said) == 1


@pytest.mark.parametrize("kind", ["attention", "rope", "glu", "embed"])
def test_a_driver_that_computes_wrong_is_refused_by_name(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant_of = {"attention": "page_size 8", "rope": "rotary 8", "glu": "act silu", "embed": "affine4g32-f16-min"}
    known = json.loads(selftest.ANSWERS.read_text(encoding="utf-8"))
    output = next(
        op.outputs[0]
        for op in selftest.examination(halves=True).program.ops
        if op.kind == kind and op.outputs[0] in known["f16"]
    )
    known["f16"][output][0] += 0.1
    wrong = tmp_path / "answers.json"
    wrong.write_text(json.dumps(known), encoding="utf-8")
    monkeypatch.setattr(selftest, "ANSWERS", wrong)
    for _ in range(2):  # that it failed isn't taken for a pass
        with pytest.raises(BackendUnavailable) as refused:
            asyncio.run(open_vulkan(cache_dir=tmp_path))
        told = re.fullmatch(
            rf"(.+) with driver (.+) computes Vulkan kernel '{kind}', (.+), wrong: the worst error is (\S+), and "
            r"(\S+) is allowed; update it, or use another --backend",
            str(refused.value),
        )
        assert told is not None
        device, driver, variant, error, allowed = told.groups()
        facts = survey()[0][0]
        assert (device, driver) == (facts.name, facts.driver)
        assert variant_of[kind] in variant
        assert float(error) == pytest.approx(0.1, abs=0.01)
        assert float(allowed) == pytest.approx(selftest.TOLERANCE * max(map(abs, known["f16"][output])), rel=0.1)


def test_what_tuning_found_is_used_by_later_loads_of_the_same_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = open_gpu()
    default = default_tuning(gpu.facts)
    other = replace(default, linear=tuple((tokens, LinearVariant(1, 4)) for tokens, _ in default.linear))
    tune.remember(gpu.facts, tmp_path, other)
    assert tune.remembered(gpu.facts, tmp_path) == other
    live = Live(Options(cache_dir=tmp_path))
    assert live.tuning == other
    live.close()
    monkeypatch.setattr("pie_edge.backends.vulkan.remembered.kernels_digest", lambda: "other kernels")
    assert tune.remembered(gpu.facts, tmp_path) is None
    gpu.close()


@pytest.mark.parametrize("wanted", [True, False])
def test_a_card_is_tuned_briefly_when_it_is_first_opened_unless_that_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    limits: list[float] = []

    def as_a_card(name: str = "") -> Gpu:
        gpu = open_gpu(name)
        return replace(gpu, facts=replace(gpu.facts, software=False))

    def played(session: Session, default: Tuning, seconds: float) -> Tuning:
        limits.append(seconds)
        return replace(default, split=512)

    monkeypatch.setattr("pie_edge.backends.vulkan.backend.open_gpu", as_a_card)
    monkeypatch.setattr(tune, "tune", played)
    for _ in range(2):  # the second one finds what the first one kept
        live = Live(Options(cache_dir=tmp_path, tune=wanted))
        assert live.tuning.split == (512 if wanted else default_tuning(live.facts).split)
        live.close()
    assert limits == ([tune.SHORT_SECONDS] if wanted else [])


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


def test_the_command_measures_all_variants_and_keeps_the_fastest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measurements are played: the second variant of each kernel, the first that isn't the default, is the fastest."""
    seen: list[Chain] = []

    def played(self: object, chain: Chain, tuning: Tuning) -> Played:
        seen.append(chain)
        second = len(seen) > 1 and seen[-2].program.name == chain.program.name
        return Played(lambda: 1e-3 if second else 2e-3)

    monkeypatch.setattr(tune._Tuner, "_trial", played)
    monkeypatch.setenv("PIE_EDGE_CACHE", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        app.start(["tune", "--backend", "vulkan"])
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    gpu = open_gpu()
    assert lines[0] == f"tuning vulkan ({gpu.facts.name})"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        *(f"linear, {tokens} tokens" for tokens, _ in default_tuning(gpu.facts).linear),
        "codes of 5 and 6 bits",
        "attention, a decode",
        "attention, a prefill",
    ]
    assert tune.remembered(gpu.facts, tmp_path) not in (None, default_tuning(gpu.facts))
    gpu.close()


def test_a_tuning_that_cannot_be_kept_says_so_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tune._Tuner, "_trial", lambda self, chain, tuning: Played(lambda: 1e-3))
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("PIE_EDGE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(SystemExit) as ended:
        app.start(["tune", "--backend", "vulkan"])
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert f"can't be kept in {tmp_path / 'cache'} (" in told
    assert "PIE_EDGE_CACHE" in told


def test_what_could_not_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the file is made, and the bytes don't arrive."""

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    gpu = open_gpu()
    pipelines, record = Pipelines(gpu, tmp_path), Record(gpu.facts, tmp_path, "tuning")
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


def test_a_broken_record_of_tuning_is_measured_anew(tmp_path: Path) -> None:
    gpu = open_gpu()
    tune.remember(gpu.facts, tmp_path, default_tuning(gpu.facts))
    (record,) = tmp_path.glob("*.tuning")
    kept = record.read_text(encoding="utf-8")
    assert tune.remembered(gpu.facts, tmp_path) == default_tuning(gpu.facts)
    changed = kept.replace('"split": 512', '"split": 99')
    assert changed != kept
    for text in ("", "[]", '{"linear": 3}', '{"interleaved": 8}', changed):
        record.write_text(text, encoding="utf-8")
        assert tune.remembered(gpu.facts, tmp_path) is None
    gpu.close()


@pytest.mark.parametrize("gain", [0.0, 0.2])
def test_tuning_takes_what_is_clearly_faster_and_nothing_else_however_much_measuring_wavers(
    monkeypatch: pytest.MonkeyPatch, gain: float
) -> None:
    """Measurements are played: each wavers by 3 %, and an eighth of them take ten times as long. One variant of the
    product for a token is faster by ``gain``, the others are all the same."""
    gpu = open_gpu()
    session = Session(gpu, 1 << 28, None)
    default = default_tuning(gpu.facts)
    fast = replace(default, linear=((1, LinearVariant(1, 8)), *default.linear[1:]))
    for seed in range(20):
        chance = random.Random(seed)

        def played(self: object, chain: Chain, tuning: Tuning, chance: random.Random = chance) -> Played:
            true = 1.0 - gain * (tuning.linear[0] == fast.linear[0])
            return Played(lambda: true * chance.gauss(1.0, 0.03) * (10 if chance.random() < 0.125 else 1))

        monkeypatch.setattr(tune._Tuner, "_trial", played)
        told: list[tune.Choice] = []
        assert tune.tune(session, default, report=told.append) == (fast if gain else default)
        assert told[0].kernel == "linear, 1 tokens"
        assert ("the default stays" in str(told[0])) == (not gain)
        if gain:
            again, decision = str(told[0]).split("; ")[1:]
            assert re.fullmatch(r"again, default \d+ µs, groups 8 \d+ µs", again)
            assert decision == "groups 8 is taken"
    session.close()


def test_a_short_tuning_ends_in_time_with_something_usable() -> None:
    gpu = open_gpu()
    session = Session(gpu, 1 << 28, None)
    default = default_tuning(gpu.facts)
    told: list[tune.Choice] = []
    assert tune.tune(session, default, seconds=0.0, report=told.append) == default
    assert {str(choice).partition("; ")[2] for choice in told} == {"too little time to tell, the default stays"}
    session.close()


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
