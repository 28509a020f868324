"""What opening the Metal backend's device does: the self-test, what it is told and refused by, and what it says of itself."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.support.needs_mlx")

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal import device, tune
from pie_edge.backends.metal.backend import open_metal
from pie_edge.backends.metal.describe import describe
from pie_edge.backends.metal.device import Facts, facts, more_memory
from pie_edge.backends.metal.memory import Ledger
from pie_edge.backends.metal.ops import MODULES
from pie_edge.backends.metal.tuning import Tuning
from pie_edge.backends.shared import examination
from pie_edge.errors import BackendUnavailable, OutOfMemory, UsageError
from tests.backend import openers
from tests.backend.openers import Opening
from tests.backend.protocol_on_backend import run


@pytest.fixture
def open_backend() -> Opening:
    return openers.metal


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="-1 bytes"):
        asyncio.run(open_metal("", memory=-1))
    with pytest.raises(BackendUnavailable, match="no device 'abacus'; it has "):
        asyncio.run(open_metal("abacus"))


@pytest.mark.parametrize("exact", [False, True])
def test_a_device_that_computes_right_is_opened_and_not_examined_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    said: list[str] = []

    def fail(*arguments: object) -> None:
        raise AssertionError("it was examined a second time")

    def note(done: int, total: int, what: str) -> None:
        said.append(what)

    async def test() -> None:
        await (await open_metal(cache_dir=tmp_path, exact=exact, progress=note, tune=False)).close()
        assert set(said) == {
            f"testing Metal's {what} on {facts().name} (once)" for what in ("kernels", "products", "epilogues")
        }
        said.clear()
        monkeypatch.setattr(examination, "check", fail)
        await (await open_metal(cache_dir=tmp_path, exact=exact, progress=note, tune=False)).close()
        assert not said

    run(test)


@pytest.mark.parametrize("kind", ["attention", "rms_norm", "gated_delta"])
def test_an_op_that_computes_wrong_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    module: Any = MODULES[kind]
    name = "kernel" if facts().gpu and hasattr(module, "kernel") else "ops"
    right = getattr(module, name)

    def wrong(*arguments: Any) -> Any:
        first, *rest = right(*arguments)
        return first + 0.1, *rest

    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(BackendUnavailable, match=rf"computes Metal kernel '{kind}'.* wrong"):
        asyncio.run(open_metal())


def test_doctor_tells_the_device_and_its_memory() -> None:
    title, memory = describe()
    assert title.startswith(facts().name)
    assert f"MLX {facts().version}" in title
    assert "the largest buffer is" in memory


def test_what_passed_is_tested_and_measured_anew_under_another_macos_or_mlx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = {"device_name": "Apple M9", "max_recommended_working_set_size": 8 << 30}
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda: gpu)

    def of(macos: str, mlx: str) -> Facts:
        monkeypatch.setattr(platform, "mac_ver", lambda: (macos, ("", "", ""), "arm64"))
        monkeypatch.setattr(importlib.metadata, "version", lambda name: mlx)
        return facts()

    first = of("26.1", "0.32.4")
    assert first.driver == "MLX 0.32.4, macOS 26.1"
    tune.record(first, tmp_path).keep(Tuning().document())
    assert tune.remembered(of("26.1", "0.32.4"), tmp_path) == Tuning()
    for other in (of("26.2", "0.32.4"), of("26.1", "0.33.0")):
        assert tune.remembered(other, tmp_path) is None
        assert tune.subject(other) != tune.subject(first)


def test_exact_asks_mlx_for_whole_floats_before_its_first_product(
    open_backend: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    enter = device.enter

    def entered(*arguments: Any) -> None:
        told.append(os.environ["MLX_ENABLE_TF32"])
        enter(*arguments)

    monkeypatch.setattr(device, "enter", entered)
    for exact in (False, True):
        monkeypatch.setenv("MLX_ENABLE_TF32", "1")
        asyncio.run(open_backend(exact=exact).close())
    assert told == ["1", "0"]


def test_exact_is_refused_where_mlx_rounds_floats_all_the_same(
    open_backend: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An M5's matrix units, played: ten bits of mantissa."""
    array = mx.array

    def rounded(values: Any) -> mx.array:
        words = np.asarray(values).view(np.uint32)
        return array(((words + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32))

    with monkeypatch.context() as played:
        played.setattr(mx, "array", rounded)
        with pytest.raises(BackendUnavailable, match=r"relative error of [2-9]e-04.* MLX_ENABLE_TF32=0"):
            open_backend(exact=True)
    asyncio.run(open_backend(exact=True).close())


def test_a_device_that_cannot_be_entered_is_unavailable(open_backend: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: Any) -> None:
        raise RuntimeError("played: no such device")

    monkeypatch.setattr(mx, "set_default_device", refuse)
    with pytest.raises(BackendUnavailable, match="can't use its device: RuntimeError: played"):
        open_backend()


@pytest.mark.parametrize(
    ("gpu", "limit", "remedy"),
    [(True, 1, "`memory`"), (True, 2, "iogpu.wired_limit_mb"), (False, 1, "`memory`"), (False, 2, "more memory")],
)
def test_memory_that_is_short_is_told_with_what_gives_more(gpu: bool, limit: int, remedy: str) -> None:
    found = Facts("Apple M9", "0.32.4", gpu, 2 << 30, 1 << 30)
    ledger = Ledger(found.name, limit << 30, 1 << 30, more_memory(found, limit << 30))
    with pytest.raises(OutOfMemory, match=r"needs 1536.0 MiB of Apple M9") as raised:
        ledger.take(1536 << 20, "a state")
    assert remedy in str(raised.value)


def test_what_steps_take_is_held_to_the_memory_and_what_they_have_freed_to_a_part_of_it(
    open_backend: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, int] = {}
    for name in ("set_cache_limit", "set_memory_limit"):
        monkeypatch.setattr(mx, name, partial(asked.__setitem__, name))
    asyncio.run(open_backend(memory=64 << 20).close())
    assert asked == {"set_cache_limit": 8 << 20, "set_memory_limit": 64 << 20}
