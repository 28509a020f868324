"""The Vulkan backend's promises beyond its kernels' results: order, errors, memory, splitting, a lost device."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.weights import Matrix, supports
from pie_edge.backends.vulkan.backend import Live, Options, VulkanBackend, open_vulkan
from pie_edge.errors import BackendUnavailable, DeviceLost, OutOfMemory, Unsupported, UsageError
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup, TwoLevel
from pie_edge.program.ops import Op, Program, Role, Value
from pie_edge.program.trace import Trace
from tests.backend import cases, vulkan_cases
from tests.backend.device import assert_close, fetch, put, run_case
from tests.support.vulkan import OUT_OF_MEMORY, lose_device


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[VulkanBackend]:
    chosen = Options(**options)
    backend = VulkanBackend(chosen, await asyncio.to_thread(Live, chosen))
    try:
        yield backend
    finally:
        await backend.close()


def run(test: Callable[[], Awaitable[Any]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))


def doubling() -> Program:
    """y = x + x of one state."""
    t = Trace("double")
    x = t.state("x", DType.F32, (1, 8))
    y = ops.add(t, x, x)
    built = t.build()
    return replace(built, values={**built.values, y.name: replace(y, role=Role.OUTPUT)})


def test_writes_and_runs_happen_in_the_order_they_were_enqueued() -> None:
    async def test() -> None:
        async with opened() as backend:
            buffer = await backend.allocate(32, Role.STATE)
            executable = await backend.compile(doubling(), {"x": buffer})
            tickets = []
            for number in range(50):
                backend.write(buffer, np.full(8, number, np.float32).tobytes())
                tickets.append(backend.run(executable, {}))
            for number, ticket in enumerate(tickets):
                (found,) = (await backend.read(ticket)).values()
                assert found.format == "f"
                assert found.tolist() == [2.0 * number] * 8
                assert backend.poll(ticket)

    run(test)


def test_a_freed_buffer_lives_until_the_runs_before_it_are_done() -> None:
    async def test() -> None:
        async with opened() as backend:
            buffer = await put(backend, np.full(8, 3, np.float32))
            executable = await backend.compile(doubling(), {"x": buffer})
            tickets = [backend.run(executable, {}) for _ in range(20)]
            backend.free(buffer)
            other = await put(backend, np.full(8, 9, np.float32))
            for ticket in tickets:
                (found,) = (await backend.read(ticket)).values()
                assert found.tolist() == [6.0] * 8
            assert (await fetch(backend, other, np.zeros(8, np.float32))).tolist() == [9.0] * 8

    run(test)


def test_executables_that_nobody_has_any_more_give_their_memory_back() -> None:
    async def test() -> None:
        async with opened() as backend:
            buffer, session = await put(backend, np.ones(8, np.float32)), backend._live.session
            kept = await backend.compile(doubling(), {"x": buffer})
            await backend.read(backend.run(kept, {}))
            used = session.memory.used
            for _ in range(5):
                executable = await backend.compile(doubling(), {"x": buffer})
                await backend.read(backend.run(executable, {}))
                assert session.memory.used > used
                del executable
            async with asyncio.timeout(30):
                while session.memory.used > used:
                    # The thread that compiled may hold the last one for a moment longer.
                    await asyncio.sleep(0.001)
                    session.collect()
            assert session.memory.used == used

    run(test)


def test_closing_waits_for_what_a_cancelled_compilation_still_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver would work on for a device that is no more, and crash."""
    started, over = threading.Event(), threading.Event()

    async def test() -> None:
        async with opened() as backend:
            buffer, compiler = await put(backend, np.ones(8, np.float32)), backend._live.compiler
            plain = compiler.compile

            def slowly(*arguments: Any) -> Any:
                started.set()
                time.sleep(0.3)
                assert not backend._live.closed
                found = plain(*arguments)
                over.set()
                return found

            monkeypatch.setattr(compiler, "compile", slowly)
            compiling = asyncio.create_task(backend.compile(doubling(), {"x": buffer}))
            while not started.is_set():
                await asyncio.sleep(0.001)
            compiling.cancel()
            await backend.close()
            assert over.is_set()
            with pytest.raises(asyncio.CancelledError):
                await compiling

    run(test)


def test_an_allocation_that_does_not_fit_says_what_was_asked_and_what_is_free() -> None:
    async def test() -> None:
        async with opened(memory=64 << 20) as backend:
            assert backend.limits.memory == 64 << 20
            told = r"for 100\.0 MiB for a state; 64\.0 of the 64\.0 MiB that may be used are free.*raise memory"
            with pytest.raises(OutOfMemory, match=told):
                await backend.allocate(100 << 20, Role.STATE)
            for _ in range(5):  # the next ones work, and what is freed comes back
                buffer = await backend.allocate(40 << 20, Role.STATE)
                backend.free(buffer)

    run(test)


def test_a_state_is_zeroed_also_where_another_was() -> None:
    async def test() -> None:
        async with opened() as backend:
            for _ in range(3):
                buffer = await backend.allocate(32, Role.STATE)
                assert not (await fetch(backend, buffer, np.ones(8, np.float32))).any()
                backend.write(buffer, np.ones(8, np.float32).tobytes())
                backend.free(buffer)

    run(test)


def test_a_write_past_the_end_of_a_buffer_is_refused() -> None:
    async def test() -> None:
        async with opened() as backend:
            buffer = await backend.allocate(32, Role.STATE)
            with pytest.raises(ValueError, match="33 bytes at 0 don't fit a buffer of 32"):
                backend.write(buffer, bytes(33))

    run(test)


def test_inputs_that_do_not_match_the_program_are_refused() -> None:
    async def test() -> None:
        async with opened() as backend:
            case = cases.build("relu 13 7 rows")
            buffers = {name: await put(backend, array) for name, array in case.states.items()}
            executable = await backend.compile(case.program, buffers)
            with pytest.raises(ValueError, match="takes inputs of"):
                backend.run(executable, {"step": case.block[:-4]})

    run(test)


def test_an_unknown_op_is_refused_by_name() -> None:
    async def test() -> None:
        async with opened() as backend:
            values = {"x": Value("x", Role.STATE, DType.F32, (1, 8)), "y": Value("y", Role.OUTPUT, DType.F32, (1, 8))}
            buffer = await backend.allocate(32, Role.STATE)
            with pytest.raises(Unsupported, match=r"convolve.*rms_norm"):
                await backend.compile(Program("odd", values, (Op("convolve", ("x",), ("y",)),)), {"x": buffer})

    run(test)


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


def test_five_and_six_bits_and_tables_are_taken_where_they_stay_so_narrow() -> None:
    async def test() -> None:
        async with opened() as backend:
            for bits in (5, 6):
                assert backend.limits.supports(Affine(bits, 16, DType.F32, 32)) is backend._live.tuning.odd_bits
            assert backend.limits.supports(cases.MXFP4) is backend._live.tuning.odd_bits

    run(test)


def test_matrices_of_one_layout_run_together_beside_one_of_another() -> None:
    t = Trace("qkv")
    x = t.state("x", DType.F32, (1, 32))
    for name, bits in (("q", 5), ("k", 5), ("v", 8)):
        ops.linear(t, x, t.weight(name, (32, 32), Affine(bits, 32, DType.F16, None)))
    fused = fuse(t.build(), lambda names: "v" not in names)
    assert [(op.kind, op.inputs[1:]) for op in fused.ops] == [("linear_group", ("q", "k")), ("linear", ("v",))]


@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("encoding", [Dense(DType.F32), Affine(4, 32, DType.F16, None)], ids=str)
def test_biased_products_of_the_same_rows_run_together(rows: int, encoding: Encoding) -> None:
    """Of other heights each, so that a bias that begins elsewhere shows; and a gate with a bias is none of the fused unit's."""
    case = cases.Case(Trace("biased"), np.random.default_rng(5))
    case.step(*cases.rows_step(rows, rows))
    x = case.row_state("x", case.normal(rows, 64))
    case.tolerance = 1e-5
    made = []
    for name, height in (("q", 70), ("k", 9), ("v", 33)):
        weight, bias = case.weight(name, (height, 64), encoding), case.weight(f"{name}.b", (height,), Dense(DType.F32))
        made.append(ops.linear(case.trace, x, weight, bias))
    halves = [
        ops.linear(case.trace, x, case.weight(n, (8, 64), encoding), case.weight(f"{n}.b", (8,), Dense(DType.F32)))
        for n in ("gate", "up")
    ]
    case.results = (*made, ops.glu(case.trace, *halves, act="silu"))
    kinds = [op.kind for op in fuse(case.program, lambda names: True).ops]
    assert kinds == ["linear_group", "linear_group", "glu"]

    async def test() -> None:
        async with opened() as backend:
            found = await run_case(backend, case)
            for name, wanted in case.expected().items():
                assert_close(found[name], wanted, case)

    run(test)


def test_keys_and_values_are_halves_unless_the_exact_mode_is_asked_for() -> None:
    async def test() -> None:
        async with opened() as backend, opened(exact=True) as exact:
            assert backend.limits.kv_dtype is DType.F16
            assert exact.limits.kv_dtype is DType.F32

    run(test)


LARGE = ["linear of a vocabulary", "linear of a dense vocabulary"]
LARGE += [f"expert_linear of large matrices {rows} rows" for rows in (1, 9)]


@pytest.mark.parametrize("name", LARGE)
def test_weights_beyond_the_binding_limit_are_split_and_give_the_same(name: str) -> None:
    most = 1 << 20

    async def test() -> None:
        async with opened(max_binding=most) as backend:
            case = vulkan_cases.build(name)
            (value,) = case.program.by_role(Role.WEIGHT)
            loaded = await backend.load(value, case.sources[value.name])
            assert isinstance(loaded.weight, Matrix)
            assert len(loaded.weight.parts) > 1
            assert all(part.region.nbytes <= most for part in loaded.weight.parts)
            ends = [part.first + part.rows for part in loaded.weight.parts]
            assert [part.first for part in loaded.weight.parts] == [0, *ends[:-1]]
            found = await run_case(backend, case)
            for output, expected in case.expected().items():
                assert_close(found[output], expected, case)

    run(test)


def test_a_staged_upload_gives_what_a_direct_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a card with memory of its own."""
    from pie_edge.backends.vulkan import backend as module

    real = module.open_gpu

    def discrete(name: str) -> Any:
        gpu = real(name)
        return replace(gpu, facts=replace(gpu.facts, unified=False))

    monkeypatch.setattr(module, "open_gpu", discrete)

    async def test() -> None:
        async with opened() as backend:
            for name in ("linear of a vocabulary", "linear affine4g32-f16-min 1 rows"):
                case = cases.build(name)
                found = await run_case(backend, case)
                for output, expected in case.expected().items():
                    assert_close(found[output], expected, case)

    run(test)


def test_a_lost_device_fails_what_ran_and_serves_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with opened() as backend:
            case = cases.build("linear affine4g32-f16-min 7 rows")
            buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
            for value in case.program.by_role(Role.WEIGHT):
                buffers[value.name] = await backend.load(value, case.sources[value.name])
            executable = await backend.compile(case.program, buffers)
            before = backend.run(executable, {"step": case.block})
            with lose_device(monkeypatch):
                lost = backend.run(executable, {"step": case.block})
                download = backend.download([(buffers["x"], 0, 16)])
                for ticket in (before, lost, download):
                    with pytest.raises(DeviceLost, match="lost"):
                        await backend.read(ticket)
            assert not (await fetch(backend, buffers["x"], case.states["x"])).any()
            backend.write(buffers["x"], case.states["x"].tobytes())
            outputs = await backend.read(backend.run(executable, {"step": case.block}))
            (value,) = case.results
            found = np.frombuffer(outputs[value.name], np.float32).reshape(value.shape)
            assert_close(found, case.expected()[value.name], case)

    run(test)


def test_a_submit_that_fails_for_want_of_memory_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with opened() as backend:
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


def test_a_closed_backend_says_so() -> None:
    async def test() -> None:
        backend = await open_vulkan()
        buffer = await backend.allocate(32, Role.STATE)
        executable = await backend.compile(doubling(), {"x": buffer})
        ticket = backend.run(executable, {})
        await backend.close()
        with pytest.raises(DeviceLost, match="closed"):
            backend.run(executable, {})
        with pytest.raises(DeviceLost, match="closed"):
            backend.download([(buffer, 0, 4)])
        with pytest.raises(DeviceLost, match="closed"):
            await backend.read(ticket)
        await backend.close()

    run(test)


def test_closing_lets_readers_have_what_they_wait_for() -> None:
    async def test() -> None:
        backend = await open_vulkan()
        buffer = await put(backend, np.ones(8, np.float32))
        executable = await backend.compile(doubling(), {"x": buffer})
        tickets = [*(backend.run(executable, {}) for _ in range(9)), backend.download([(buffer, 0, 32)])]
        readers = [asyncio.create_task(backend.read(ticket)) for ticket in tickets]
        await backend.close()
        found = [np.frombuffer(next(iter((await reader).values())), np.float32).tolist() for reader in readers]
        assert found == [[2.0] * 8] * 9 + [[1.0] * 8]

    run(test)


def test_a_reader_that_is_cancelled_harms_nobody() -> None:
    async def test() -> None:
        async with opened() as backend:
            buffer = await put(backend, np.ones(8, np.float32))
            executable = await backend.compile(doubling(), {"x": buffer})
            readers = [asyncio.create_task(backend.read(backend.run(executable, {}))) for _ in range(10)]
            await asyncio.sleep(0)
            for reader in readers[::2]:
                reader.cancel()
            results = await asyncio.gather(*readers, return_exceptions=True)
            assert all(isinstance(result, Mapping) for result in results[1::2])

    run(test)


def test_pipelines_are_cached_on_disk_and_a_broken_cache_does_no_harm(tmp_path: Path) -> None:
    async def test() -> None:
        async with opened(cache_dir=tmp_path) as backend:
            await put(backend, np.ones(8, np.float32))
        (cached,) = tmp_path.glob("vulkan-*.pipelines")
        cached.write_bytes(b"not a pipeline cache")
        async with opened(cache_dir=tmp_path) as backend:
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
