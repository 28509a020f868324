"""CUDA cards in one process and beside other processes: contexts, memory, where it is pinned, waits, and what a profiler sees."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import api, describe, numa, probe, ranges
from pie_edge.backends.cuda.backend import CudaBackend
from pie_edge.backends.cuda.rooms import LARGEST, MOST
from pie_edge.backends.cuda.timeline import Timeline
from pie_edge.control.needs import needs_of
from pie_edge.control.plan import DeviceSettings, Model
from pie_edge.control.replicas import Replicas
from pie_edge.errors import DeviceLost, OutOfMemory
from pie_edge.model import llama
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.ops import Role
from tests.backend import cases, cuda_emulated
from tests.backend.cuda_emulated import ON_CARD, break_device, emulated, mend
from tests.backend.device import assert_close, put, run_case
from tests.backend.protocol_on_backend import doubling
from tests.backend.test_engine import expected, greedy, run
from tests.backend.test_handles import autoregress
from tests.simt import build
from tests.support.tiny import SPEC, open_tiny

pytestmark = pytest.mark.skipif(ON_CARD, reason="the emulated devices are told what to be")
NAMES = ("SIMT CPU emulation", "SIMT CPU emulation (2)")


def with_two(test: Callable[[list[CudaBackend]], Awaitable[None]], **options: Any) -> None:
    async def inside() -> None:
        with emulated(devices=2):
            backends = [cuda_emulated.opened(device=name, **options) for name in NAMES]
            try:
                await test(backends)
            finally:
                for backend in backends:
                    await backend.close()
                mend()

    run(inside)


def test_a_thread_that_serves_two_devices_is_in_the_context_of_the_one_it_calls() -> None:
    async def test(backends: list[CudaBackend]) -> None:
        case = cases.build("linear f16 1 rows")
        for backend in (*backends, *backends):
            for output, found in (await run_case(backend, case)).items():
                assert_close(found, case.expected()[output], case)

    with_two(test)


def test_two_devices_give_the_oracle_s_tokens_and_the_one_that_is_left_goes_on() -> None:
    async def test(backends: list[CudaBackend]) -> None:
        replicas = Replicas([await open_tiny(backend) for backend in backends])
        spaces = [replicas.open_space(f"s{number}", 0) for number in range(2)]
        prompts = [[3, 1, 4], [9, 2, 6, 5]]
        answers = await asyncio.gather(*(greedy(s, p, 4) for s, p in zip(spaces, prompts, strict=True)))
        assert answers == [expected(prompt, 4) for prompt in prompts]
        assert [space.engine.device_name for space in spaces] == list(NAMES)
        break_device(214, 1)
        with pytest.raises(DeviceLost, match="CUDA_ERROR_ECC_UNCORRECTABLE"):
            await greedy(spaces[1], prompts[1], 4)
        assert await greedy(spaces[0], [7], 4) == expected([7], 4)
        # What sticks to a process isn't tried again.
        with pytest.raises(DeviceLost, match=r"is on SIMT CPU emulation \(2\), which is lost"):
            await greedy(spaces[1], prompts[1], 4)
        for space in spaces:
            space.close()
        await replicas.close()

    with_two(test)


def test_a_step_of_the_engine_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many programs it runs: greedy ones, those that read a distribution, and the look at whether logits are numbers."""
    waits = 0
    waiting = Timeline.wait

    async def counted(timeline: Timeline, value: int) -> None:
        nonlocal waits
        waits += not timeline.is_reached(value)
        await waiting(timeline, value)

    async def test() -> None:
        nonlocal waits
        with emulated(lag=3):
            engine = await open_tiny(cuda_emulated.opened())
            # Pinning and giving back may wait for all that runs, too.
            blocking = "cuStreamSynchronize", "cuMemHostAlloc", "cuMemFreeHost"
            spaces = [engine.open_space(f"s{number}", 0) for number in range(2)]
            level1 = engine.handles(engine.open_space("level1", 0), 8)
            prompts = [[3, 1, 4], [9, 2, 6, 5]]

            async def all_together(count: int) -> list[Any]:
                asked = [greedy(space, prompt, count) for space, prompt in zip(spaces, prompts, strict=True)]
                return await asyncio.gather(*asked, autoregress(level1, [5, 6], count))

            await all_together(20)  # compiles, and pins what steps in flight take
            monkeypatch.setattr(Timeline, "wait", counted)
            steps, blocked = engine.statistics.steps, cuda_emulated.calls(*blocking)
            answers = await all_together(20)
            assert answers == [expected(prompt, 20) for prompt in (*prompts, [5, 6])]
            assert waits == engine.statistics.steps - steps > 20
            assert cuda_emulated.calls(*blocking) == blocked
            await engine.close()

    run(test)


def test_what_other_processes_use_of_a_card_is_seen_when_it_is_opened_and_when_it_lacks() -> None:
    async def test() -> None:
        with emulated(others=3 << 30):
            backend = cuda_emulated.opened()
            assert backend.limits.memory == (1 << 30) - (256 << 20)
            lacks = pytest.raises(
                OutOfMemory, match=r"needs 128\.0 MiB of .* but the card has 64\.0 MiB left: another process"
            )
            with emulated(others=(4 << 30) - (64 << 20)), lacks:
                await backend.allocate(128 << 20, Role.STATE)
            with pytest.raises(OutOfMemory, match=r"needs 1024\.0 MiB of .*; 768\.0 of 768\.0 MiB are free"):
                await backend.allocate(1 << 30, Role.STATE)
            await backend.close()

    run(test)


@pytest.mark.parametrize("nbytes", [1, 512, 1000, (1 << 20) - 1, 1 << 20, (2 << 20) + 1, 5_000_001])
def test_memory_is_counted_as_the_driver_gives_it(nbytes: int) -> None:
    """From 1 MiB on in whole pages of 2 MiB: what is counted is what the card has less."""

    async def test() -> None:
        backend = cuda_emulated.opened()
        session = backend._live.session
        free, used = session.gpu.free_memory(), session.memory.used
        buffer = session.device_buffer(nbytes, "a test")
        taken = session.memory.used - used
        assert taken == session.memory.rounded(nbytes) == free - session.gpu.free_memory() >= nbytes
        session.free(buffer)
        assert session.settled() == used and session.gpu.free_memory() == free
        await backend.close()

    run(test)


def test_a_card_that_others_fill_is_refused_with_what_is_free_and_who_has_the_rest() -> None:
    full = (4 << 30) - (100 << 20)
    with (
        emulated(others=full),
        pytest.raises(OutOfMemory, match=r"emulation has 100\.0 MiB free of 4096\.0; other .*`nvidia-smi`.*--device"),
    ):
        cuda_emulated.opened()
    cuda_emulated.fail("cuDevicePrimaryCtxRetain", 2)
    with pytest.raises(
        OutOfMemory, match=r"emulation has no memory left to open it with; other .*`nvidia-smi`"
    ) as raised:
        cuda_emulated.opened()
    assert "smaller model" not in str(raised.value)


@pytest.mark.parametrize(("others", "told"), [(0, False), (3 << 30, True)])
def test_a_model_that_lacks_memory_is_told_what_others_have_of_the_card(others: int, told: bool) -> None:
    async def test() -> None:
        with emulated(others=others):
            backend = cuda_emulated.opened()
            spec = replace(SPEC, vocabulary=1 << 26)
            model = Model(spec, llama, {weight.name: Dense(DType.F32) for weight in llama.weights(spec)})
            found = needs_of(model, backend, DeviceSettings())
            with pytest.raises(OutOfMemory, match=r"the cuda backend may use .* MiB of SIMT CPU emulation") as raised:
                found.check("large", model, backend, DeviceSettings())
            said = "of whose 4096.0 MiB 1024.0 were free when it was opened: other processes use it"
            assert (said in str(raised.value)) == told == ("of whose" in str(raised.value))
            await backend.close()

    run(test)


def test_where_the_machine_has_no_memory_to_pin_it_is_not_the_card_that_is_blamed() -> None:
    async def test() -> None:
        backend = cuda_emulated.opened()
        cuda_emulated.fail("cuMemHostAlloc", 2)
        with pytest.raises(
            OutOfMemory, match=r"a test needs 3\.0 MiB of the machine's own memory.*ulimit -l"
        ) as raised:
            backend._live.session.pinned(3 << 20, "a test")
        assert "kv_memory" not in str(raised.value)
        await backend.close()

    run(test)


def test_rooms_of_downloads_are_used_again_once_nobody_reads_them_and_the_large_ones_go() -> None:
    async def test() -> None:
        backend = cuda_emulated.opened()
        session = backend._live.session
        region = session.device_buffer(LARGEST + 4, "a test").region()

        def rooms(nbytes: int, count: int) -> list[int]:
            """Pinned and given back by this many downloads, one after the other."""
            before = cuda_emulated.calls("cuMemHostAlloc", "cuMemFreeHost")
            for _ in range(count):
                download = session.download([replace(region, nbytes=nbytes)])
                assert len(download.outputs()["0"]) == nbytes
                del download
                session.collect()
            after = cuda_emulated.calls("cuMemHostAlloc", "cuMemFreeHost")
            return [now - then for now, then in zip(after, before, strict=True)]

        assert rooms(100, 5) == [1, 0]
        held = [session.download([replace(region, nbytes=100)]) for _ in range(3)]
        assert rooms(4096, 2) == [1, 0]
        held.clear()
        assert rooms(LARGEST + 1, 2) == [2, 2]
        for size in range(3):
            assert rooms(8192 << size, 2) == [1, 0]
        many = [session.download([replace(region, nbytes=100)]) for _ in range(2 * MOST)]
        many.clear()
        assert rooms(1 << 20, 1) == [1, 1]  # in the place of one of those
        await backend.close()

    run(test)


def test_doctor_names_each_card_by_the_number_that_device_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LIBRARY", str(build.driver()))
    with emulated(devices=2):
        assert probe.probe(lambda name: ctypes.CDLL(str(build.driver()))).devices == NAMES
        lines = describe.describe()
    for number, name in enumerate(NAMES):
        assert lines[2 * number] == f"cuda:{number}, {name}: software, driver for CUDA 13.0"
        assert "multiprocessors; 3.8 of 4.0 GiB may be used now; pinned memory " in lines[2 * number + 1]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has nodes to choose from")
def test_pinned_memory_lies_on_the_card_s_node_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = numa.policy()
    if before is None:
        pytest.skip("this process may not choose where its memory lies")
    bus = "0000:0a:00.0"  # the stand-in's first device
    (tmp_path / bus).mkdir()
    (tmp_path / bus / "numa_node").write_text("0\n")
    monkeypatch.setattr(numa, "DEVICES", tmp_path)
    seen: list[Any] = []

    async def test() -> None:
        backend = cuda_emulated.opened()
        gpu = backend._live.session.gpu
        made = gpu.made
        monkeypatch.setattr(gpu, "made", lambda *given: (seen.append(numa.policy()), made(*given))[1])
        backend._live.session.pinned(4096, "a test")
        await backend.close()

    run(test)
    ((mode, nodes),) = [policy for policy in seen if policy is not None]
    assert (mode, nodes[0]) == (1, 1)
    after = numa.policy()
    assert after is not None and (after[0], list(after[1])) == (before[0], list(before[1]))


def test_where_memory_can_t_be_chosen_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("one", "-1"), ("odd", "none")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "numa_node").write_text(content)
    monkeypatch.setattr(numa, "DEVICES", tmp_path)
    if sys.platform == "linux":
        assert numa.near("one").reason == "the machine has one node"
        for bus in ("odd", "missing"):
            assert str(numa.near(bus)).endswith(f"the system doesn't tell the node of {bus}")
    monkeypatch.setattr(sys, "platform", "win32")
    found = numa.near("one")
    assert str(found) == "pinned memory anywhere: only Linux is asked for the card's node"
    with found.preferred():
        pass


def test_a_profiler_sees_each_launch_and_read_and_without_one_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    nvtx = ModuleType("nvtx")

    @contextlib.contextmanager
    def annotate(message: str, domain: str) -> Iterator[None]:
        told.append((message, domain))
        yield

    nvtx.annotate = annotate  # type: ignore[attr-defined]
    case = cases.build("linear f16 1 rows")

    async def test() -> None:
        backend = cuda_emulated.opened()
        for output, found in (await run_case(backend, case)).items():
            assert_close(found, case.expected()[output], case)
        pair = [await backend.compile(doubling(), {"x": await put(backend, np.ones(8, np.float32))}) for _ in "xy"]
        for ticket in backend.run_together([(one, {}) for one in pair]):
            assert (await backend.read(ticket)).popitem()[1].tolist() == [2.0] * 8
        await backend.close()

    run(test)
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    run(test)
    assert not told
    monkeypatch.setenv(ranges.INJECTED, "/a/profiler's/library.so")
    run(test)
    name = case.program.name
    parts = (f"run {name}", f"read {name}", "run double and double", "read double")
    assert set(told) == {(part, "pie-edge") for part in parts}
    monkeypatch.setitem(sys.modules, "nvtx", None)
    assert ranges.marker() is None
