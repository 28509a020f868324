"""What opening a device does once and remembers, for every backend that does: the self-test, and tuning. A test module imports
all of this beside a fixture ``api``."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pie_edge.backends.shared import examination
from pie_edge.backends.shared import tune as shared_tune
from pie_edge.backends.shared.open_device import Options
from pie_edge.backends.shared.trial import Bench, Chain
from pie_edge.backends.shared.tuning import LinearVariant, Tuning
from pie_edge.cli import app
from pie_edge.errors import BackendUnavailable


@dataclass(frozen=True)
class Api:
    """A backend, as these tests ask it."""

    name: str
    open: Callable[..., Any]
    """As the command line opens it: awaited."""
    live: Any
    """The class of an open device, made from Options."""
    survey: Callable[[], Any]
    """The facts of the device that is opened."""
    bench: Callable[[], AbstractContextManager[Bench]]
    as_a_card: Callable[[pytest.MonkeyPatch], None]
    """From now on the software device is taken for a card."""
    other_kernels: Callable[[pytest.MonkeyPatch], None]
    """From now on the kernels are others."""


class Played:
    """A trial whose times are made up."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds

    def agrees(self, other: object) -> bool:
        return True

    def close(self) -> None: ...


@pytest.fixture
def bench(api: Api) -> Iterator[Bench]:
    with api.bench() as found:
        yield found


def close(backend: Any) -> None:
    asyncio.run(backend.close())


@pytest.mark.parametrize("exact", [False, True])
def test_a_device_that_computes_right_is_opened_and_not_examined_again_and_says_what_takes_so_long(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    said: list[str] = []
    steps: list[tuple[int, int]] = []

    def note(done: int, total: int, what: str) -> None:
        said.append(what)
        steps.append((done, total))

    close(asyncio.run(api.open(cache_dir=tmp_path, exact=exact, progress=note)))
    title = {"vulkan": "Vulkan"}.get(api.name, api.name)
    assert set(said) == {f"testing {title}'s kernels on {api.survey().name} (once)"}
    kernels = len(steps) - 2
    assert kernels > 80
    assert steps == [(0, 0), *((done, kernels) for done in range(kernels + 1))]
    said.clear()

    def fail(*arguments: object) -> None:
        raise AssertionError("it was examined a second time")

    monkeypatch.setattr(examination, "check", fail)
    close(asyncio.run(api.open(cache_dir=tmp_path, exact=exact, progress=note)))
    assert not said


def test_an_opening_that_is_given_up_ends_between_two_kernels_and_is_no_pass(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    closed: list[Any] = []
    heard = threading.Event()
    shut = api.live.close

    def note(done: int, total: int, what: str) -> None:
        steps.append(done)
        if done == 3:
            loop.call_soon_threadsafe(opening.cancel)
            loop.call_soon_threadsafe(loop.call_later, 0.2, heard.set)
            heard.wait(30)

    async def test() -> None:
        nonlocal loop, opening
        loop, opening = asyncio.get_running_loop(), asyncio.create_task(api.open(cache_dir=tmp_path, progress=note))
        with pytest.raises(asyncio.CancelledError):
            await opening

    loop: Any = None
    opening: Any = None
    monkeypatch.setattr(api.live, "close", lambda live: closed.append(live) or shut(live))
    asyncio.run(test())
    assert max(steps) == 3
    assert len(closed) == 1
    assert not list(tmp_path.glob("*.passed"))


_OPENS = """
import sys
from pathlib import Path
import typer
from pie_edge.backend_choice import choose, open_backend
from pie_edge.cli import interrupts
from pie_edge.cli.outcome import reported

def note(done, total, what):
    print(done, total, file=sys.stderr, flush=True)

@reported
def command():
    interrupts.run(open_backend(choose(sys.argv[1]), cache_dir=Path(sys.argv[2]), progress=note))

try:
    command()
except typer.Exit as ended:
    sys.exit(ended.exit_code)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C to a whole console")
def test_however_often_ctrl_c_is_pressed_the_first_one_ends_a_self_test_cleanly(api: Api, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OPENS, api.name, str(tmp_path)]
    # Without the driver's cache it compiles each kernel, which gives the later ones something to hit.
    environment = os.environ | {"MESA_SHADER_CACHE_DISABLE": "true"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        lines = [next(process.stderr) for _ in range(4)]
        for _ in range(5):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        lines += list(process.stderr)
    assert process.returncode == 130
    steps = [tuple(map(int, line.split())) for line in lines]  # numbers alone: nobody complained
    assert steps[-1][0] < steps[-1][1]
    assert not list(tmp_path.glob("*.passed"))


def test_a_cache_that_cannot_be_written_is_told_instead_of_once(api: Api, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.write_text("a file where the folder should be")
    said: list[str] = []

    def stop(done: int, total: int, what: str) -> None:
        said.append(what)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        asyncio.run(api.open(cache_dir=folder, progress=stop))
    assert said[0].endswith(f"(at every start: {folder} can't be written)")


@pytest.mark.parametrize(("kind", "variant"), [("attention", "page_size 8"), ("embed", "affine4g32-f16-min")])
def test_a_driver_that_computes_wrong_is_refused_by_name(
    api: Api, kind: str, variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = json.loads(examination.ANSWERS.read_text(encoding="utf-8"))
    output = next(
        op.outputs[0]
        for op in examination.examination(halves=True).program.ops
        if op.kind == kind and op.outputs[0] in known["f16"]
    )
    known["f16"][output][0] += 0.1
    wrong = tmp_path / "answers.json"
    wrong.write_text(json.dumps(known), encoding="utf-8")
    monkeypatch.setattr(examination, "ANSWERS", wrong)
    with pytest.raises(BackendUnavailable) as refused:
        asyncio.run(api.open(cache_dir=tmp_path))
    told = re.fullmatch(
        rf"(.+) with driver (.+) computes (.+) kernel '{kind}', (.+), wrong: the worst error is (\S+), and "
        r"(\S+) is allowed; update it, or use another --backend",
        str(refused.value),
    )
    assert told is not None
    device, driver, title, which, error, allowed = told.groups()
    facts = api.survey()
    assert (device, driver, title.lower()) == (facts.name, facts.driver, api.name)
    assert variant in which
    assert float(error) == pytest.approx(0.1, abs=0.01)
    assert float(allowed) == pytest.approx(examination.TOLERANCE * max(map(abs, known["f16"][output])), rel=0.1)
    assert not list(tmp_path.glob("*.passed"))  # that it failed isn't taken for a pass


def test_what_tuning_found_is_used_by_later_loads_of_the_same_kernels(
    api: Api, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = bench.default
    other = replace(default, linear=tuple((tokens, LinearVariant(1, 4)) for tokens, _ in default.linear))
    shared_tune.remember(bench.subject, tmp_path, other)
    assert shared_tune.remembered(bench, tmp_path) == other
    live = api.live(Options(cache_dir=tmp_path))
    assert live.tuning == other
    live.close()
    api.other_kernels(monkeypatch)
    live = api.live(Options(cache_dir=tmp_path))
    assert live.tuning == default
    live.close()


@pytest.mark.parametrize("wanted", [True, False])
def test_a_card_is_tuned_briefly_when_it_is_first_opened_unless_that_is_not_wanted(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    limits: list[float] = []
    usual: list[int] = []

    def played(bench: Bench, seconds: float, report: Callable[[shared_tune.Choice], None]) -> Tuning:
        limits.append(seconds)
        return replace(bench.default, split=512)

    api.as_a_card(monkeypatch)
    monkeypatch.setattr(shared_tune, "tune", played)
    for _ in range(2):  # the second one finds what the first one kept
        live = api.live(Options(cache_dir=tmp_path, tune=wanted))
        usual.append(live.tuning.split)
        live.close()
    assert usual == [512 if wanted else 256] * 2
    assert limits == ([shared_tune.SHORT_SECONDS] if wanted else [])


def test_the_command_measures_all_variants_and_keeps_the_fastest(
    api: Api, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measurements are played: the second variant of each kernel, the first that isn't the default, is the fastest."""
    seen: list[Chain] = []

    def played(self: object, chain: Chain, tuning: Tuning) -> Played:
        seen.append(chain)
        second = len(seen) > 1 and seen[-2].program.name == chain.program.name
        return Played(lambda: 1e-3 if second else 2e-3)

    monkeypatch.setattr(shared_tune.Tuner, "_trial", played)
    monkeypatch.setenv("PIE_EDGE_CACHE", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        app.start(["tune", "--backend", api.name])
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"tuning {api.name} ({bench.subject.device})"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        *(f"linear, {tokens} tokens" for tokens, _ in bench.default.linear),
        "codes of 5 and 6 bits",
        "attention, a decode",
        "attention, a prefill",
    ]
    assert shared_tune.remembered(bench, tmp_path) not in (None, bench.default)


def test_ctrl_c_ends_a_tuning_between_two_trials_and_keeps_nothing(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[float] = []

    def seconds() -> float:
        signal.raise_signal(signal.SIGINT)
        runs.append(1e-3)
        return runs[-1]

    monkeypatch.setattr(shared_tune.Tuner, "_trial", lambda self, chain, tuning: Played(seconds))
    monkeypatch.setenv("PIE_EDGE_CACHE", str(tmp_path))
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            app.start(["tune", "--backend", api.name])
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130
    assert 0 < len(runs) < shared_tune.ROUNDS
    assert not list(tmp_path.glob("*.tuning"))


def test_a_tuning_that_cannot_be_kept_says_so_and_fails(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once: nothing is measured in vain."""

    def never(*_: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(shared_tune.Tuner, "_trial", never)
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("PIE_EDGE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(SystemExit) as ended:
        app.start(["tune", "--backend", api.name])
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert f"can't be kept in {tmp_path / 'cache'} (it can't be written)" in told
    assert "PIE_EDGE_CACHE" in told


def test_a_broken_record_of_tuning_is_measured_anew(bench: Bench, tmp_path: Path) -> None:
    shared_tune.remember(bench.subject, tmp_path, bench.default)
    (record,) = tmp_path.glob("*.tuning")
    kept = record.read_text(encoding="utf-8")
    assert shared_tune.remembered(bench, tmp_path) == bench.default
    changed = kept.replace('"split": 512', '"split": 99')
    assert changed != kept
    for text in ("", "[]", '{"linear": 3}', '{"interleaved": 8}', changed):
        record.write_text(text, encoding="utf-8")
        assert shared_tune.remembered(bench, tmp_path) is None


def test_a_short_tuning_measures_and_ends_with_something_usable(bench: Bench) -> None:
    """Nothing is played here: these are times of the device."""
    told: list[shared_tune.Choice] = []
    found = shared_tune.tune(bench, seconds=1.0, report=told.append)
    assert all(seconds > 0 for choice in told for seconds in choice.seconds.values())
    assert [choice.kernel for choice in told][:1] == [f"linear, {bench.default.linear[0][0]} tokens"]
    assert found.interleaved == bench.default.interleaved
