"""The Vulkan backend's promises beyond its kernels' results: order, errors, memory, splitting, a lost device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.weights import supports
from pie_edge.backends.vulkan.backend import open_vulkan
from pie_edge.errors import BackendUnavailable, DeviceLost, UsageError
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup, TwoLevel
from pie_edge.program.ops import Role
from pie_edge.program.trace import Trace
from tests.backend import cases, openers
from tests.backend.device import assert_close, put, run_case
from tests.backend.openers import Opening
from tests.backend.protocol_on_device import *  # noqa: F403
from tests.backend.protocol_on_device import Losing, doubling, opened, run
from tests.support.vulkan import OUT_OF_MEMORY, lose_device


@pytest.fixture
def open_backend() -> Opening:
    return openers.vulkan


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Losing:
    return lambda backend: lose_device(monkeypatch)


@pytest.mark.parametrize(
    ("encoding", "taken"),
    [
        (Dense(DType.BF16), True),
        (Affine(4, 32, DType.F16, None), True),
        (Affine(8, 128, DType.F32, 128), True),
        (Affine(5, 32, DType.F16, 16), True),
        (Affine(6, 16, DType.F32, 32), True),
        (Affine(3, 32, DType.F16, None), False),
        (Affine(4, 24, DType.F16, None), False),
        (Lookup(32, DType.F16, tuple(float(i) for i in range(16))), True),
        (Lookup(32, DType.BF16, tuple(float(i) for i in range(16))), True),
        (Lookup(32, DType.F16, tuple(i / 2 for i in range(16))), False),
        (Lookup(32, TwoLevel(256), tuple(float(i) for i in range(16))), False),
    ],
)
def test_encodings_are_taken_as_stated(encoding: Encoding, taken: bool) -> None:
    assert supports(encoding, odd=True) is taken


def test_matrices_of_one_layout_run_together_beside_one_of_another() -> None:
    t = Trace("qkv")
    x = t.state("x", DType.F32, (1, 32))
    for name, bits in (("q", 5), ("k", 5), ("v", 8)):
        ops.linear(t, x, t.weight(name, (32, 32), Affine(bits, 32, DType.F16, None)))
    fused = fuse(t.build(), lambda names: "v" not in names)
    assert [(op.kind, op.inputs[1:]) for op in fused.ops] == [("linear_group", ("q", "k")), ("linear", ("v",))]


def test_a_staged_upload_gives_what_a_direct_one_gives(open_backend: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a card with memory of its own."""
    from pie_edge.backends.vulkan import backend as module

    real = module.open_gpu

    def discrete(name: str) -> Any:
        gpu = real(name)
        return replace(gpu, facts=replace(gpu.facts, unified=False))

    monkeypatch.setattr(module, "open_gpu", discrete)

    async def test() -> None:
        async with opened(open_backend) as backend:
            for name in ("linear of a vocabulary", "linear affine4g32-f16-min 1 rows"):
                case = cases.build(name)
                found = await run_case(backend, case)
                for output, expected in case.expected().items():
                    assert_close(found[output], expected, case)

    run(test)


def test_a_submit_that_fails_for_want_of_memory_leaves_nobody_waiting(
    open_backend: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            case = cases.build("store of a linear")
            buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
            for value in case.program.by_role(Role.WEIGHT):
                buffers[value.name] = await backend.load(value, case.sources[value.name])
            executable = await backend.compile(case.program, buffers)
            with lose_device(monkeypatch, OUT_OF_MEMORY):
                for ticket in (backend.run(executable, {"step": case.block}), backend.download([(buffers["x"], 0, 4)])):
                    with pytest.raises(DeviceLost, match="memory|lost"):
                        await backend.read(ticket)
            await backend.read(backend.run(executable, {"step": case.block}))

    run(test)


def test_pipelines_are_cached_on_disk_and_a_broken_cache_does_no_harm(open_backend: Opening, tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(open_backend, cache_dir=tmp_path) as backend:
            await put(backend, np.ones(8, np.float32))
        (cached,) = tmp_path.glob("vulkan-*.pipelines")
        cached.write_bytes(b"not a pipeline cache")
        async with opened(open_backend, cache_dir=tmp_path) as backend:
            buffer = await put(backend, np.ones(8, np.float32))
            executable = await backend.compile(doubling(), {"x": buffer})
            await backend.read(backend.run(executable, {}))
        assert cached.read_bytes() != b"not a pipeline cache"

    run(test)


def test_a_device_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(BackendUnavailable, match="no device is called 'Voodoo'"):
        run(lambda: open_vulkan("Voodoo"))


def test_negative_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="-1 bytes"):
        run(lambda: open_vulkan("", memory=-1))
