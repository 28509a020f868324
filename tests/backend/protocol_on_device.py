"""The Backend protocol on any device of a graphics API, beyond its kernels' results: order, memory, splitting, what is refused,
and closing. A test module imports all of this beside a fixture ``open_backend``."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pie_edge.backends.shared import first_step
from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.selftest import MadeWeight
from pie_edge.backends.shared.weights import Matrix
from pie_edge.errors import DeviceLost, Unsupported
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType, Encoding
from pie_edge.program.ops import Op, Program, Role, Value
from pie_edge.program.trace import Trace
from tests.backend import cases, copy_cases, vulkan_cases
from tests.backend.copy_cases import PAIRS
from tests.backend.device import assert_close, fetch, put, run_case
from tests.backend.models_on_device import Opening

FOURS = Affine(4, 32, DType.F16, None)


@asynccontextmanager
async def opened(open_backend: Opening, **options: Any) -> AsyncIterator[Any]:
    backend = await asyncio.to_thread(open_backend, **options)
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


def test_writes_runs_and_downloads_happen_in_the_order_they_were_enqueued(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            buffer = await backend.allocate(32, Role.STATE)
            executable = await backend.compile(doubling(), {"x": buffer})
            tickets, pieces = [], []
            for number in range(20):
                backend.write(buffer, np.full(8, number, np.float32).tobytes())
                tickets.append(backend.run(executable, {}))
                pieces.append(backend.download([(buffer, 4, 4), (buffer, 28, 3)]))
            for number, (ticket, piece) in enumerate(zip(tickets, pieces, strict=True)):
                (found,) = (await backend.read(ticket)).values()
                assert found.format == "f"
                assert found.tolist() == [2.0 * number] * 8
                assert backend.poll(ticket)
                whole = np.float32(number).tobytes()
                assert [bytes(part) for part in (await backend.read(piece)).values()] == [whole, whole[:3]]

    run(test)


def test_a_write_of_part_of_a_word_leaves_the_rest(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            buffer = await put(backend, np.full(8, -1, np.int32))
            backend.write(buffer, b"abcde", 6)
            found = (await fetch(backend, buffer, np.zeros(8, np.float32))).tobytes()
            assert found == b"\xff" * 6 + b"abcde" + b"\xff" * 21

    run(test)


def test_a_download_is_what_was_there_after_the_runs_before_it(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            buffer = await backend.allocate(64, Role.STATE)
            backend.write(buffer, bytes(range(64)))
            first = backend.download([(buffer, 8, 4), (buffer, 60, 4)])
            backend.write(buffer, b"\xff" * 64)
            second = backend.download([(buffer, 8, 4)])
            assert [bytes(part) for part in (await backend.read(first)).values()] == [b"\x08\t\n\x0b", b"<=>?"]
            assert [bytes(part) for part in (await backend.read(second)).values()] == [b"\xff" * 4]

    run(test)


@pytest.mark.parametrize("name", PAIRS)
def test_copies_leave_what_the_reference_leaves(open_backend: Opening, name: str) -> None:
    async def test() -> None:
        slots, pairs = PAIRS[name]
        async with opened(open_backend) as backend:
            held = copy_cases.states()
            buffers = {key: await put(backend, array) for key, array in held.items()}
            compiled = await backend.compile(copy_cases.program(slots), buffers)
            backend.run(compiled, {key: array.tobytes() for key, array in copy_cases.inputs(pairs).items()})
            ticket = backend.download([(buffers[key], 0, array.nbytes) for key, array in held.items()])
            found = list((await backend.read(ticket)).values())
            for data, (key, array) in zip(found, copy_cases.expected(slots, pairs).items(), strict=True):
                np.testing.assert_array_equal(np.frombuffer(data, array.dtype).reshape(array.shape), array, err_msg=key)

    run(test)


def test_a_freed_buffer_lives_until_the_runs_before_it_are_done(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
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


def test_executables_that_nobody_has_any_more_give_their_memory_back(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
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


def test_closing_waits_for_what_a_cancelled_compilation_still_does(
    open_backend: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would work on for a device that is no more, and crash."""
    started, over = threading.Event(), threading.Event()

    async def test() -> None:
        async with opened(open_backend) as backend:
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


def test_a_load_that_is_given_up_ends_early_and_gives_back_what_it_took(open_backend: Opening) -> None:
    asked: list[int] = []

    async def test() -> None:
        loop, going = asyncio.get_running_loop(), threading.Event()

        class Long(MadeWeight):
            def planes(self, first: int, count: int) -> Mapping[str, Any]:
                asked.append(first)
                loop.call_soon_threadsafe(loading.cancel)
                loop.call_soon_threadsafe(loop.call_later, 0.2, going.set)
                assert going.wait(30)
                return super().planes(first, count)

        async with opened(open_backend) as backend:
            session = backend._live.session
            used = session.settled()
            value = Trace("weight").weight("w", (4096, 1024), FOURS)
            loading = asyncio.create_task(backend.load(value, Long(value.shape, FOURS, 1)))
            with pytest.raises(asyncio.CancelledError):
                await loading
            assert asked == [0]
            assert session.settled() == used

    run(test)


@pytest.mark.parametrize(("seconds", "notes"), [(0.0, 2), (60.0, 0)])
def test_a_first_step_that_takes_long_says_why_once(
    open_backend: Opening, monkeypatch: pytest.MonkeyPatch, seconds: float, notes: int
) -> None:
    """The driver plays, for a moment, that it compiles while it takes the step."""
    said: list[tuple[int, int, str]] = []

    async def test() -> None:
        async with opened(open_backend) as backend:
            backend._first = first_step.FirstSteps(lambda *told: said.append(told))
            buffer = await put(backend, np.ones(8, np.float32))
            for _ in range(2):
                executable = await backend.compile(doubling(), {"x": buffer})
                plain = executable.recorded.run

                def slowly(inputs: Any, plain: Any = plain) -> Any:
                    time.sleep(0.1)
                    return plain(inputs)

                monkeypatch.setattr(executable.recorded, "run", slowly)
                for _ in range(2):
                    await backend.read(backend.run(executable, {}))

    monkeypatch.setattr(first_step, "LONG_SECONDS", seconds)
    run(test)
    assert [told[:2] for told in said] == [(0, 0), (1, 1)][:notes]
    assert all("compiles kernels as they first run" in what for _, _, what in said)


def test_a_state_is_zeroed_also_where_another_was(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            for _ in range(3):
                buffer = await backend.allocate(32, Role.STATE)
                assert not (await fetch(backend, buffer, np.ones(8, np.float32))).any()
                backend.write(buffer, np.ones(8, np.float32).tobytes())
                backend.free(buffer)

    run(test)


def test_a_write_or_download_past_the_end_of_a_buffer_is_refused(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            buffer = await backend.allocate(32, Role.STATE)
            with pytest.raises(ValueError, match="33 bytes at 0 don't fit a buffer of 32"):
                backend.write(buffer, bytes(33))
            with pytest.raises(ValueError, match="8 bytes at 28 aren't all in a buffer of 32"):
                backend.download([(buffer, 28, 8)])

    run(test)


def test_inputs_that_do_not_match_the_program_are_refused(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            case = cases.build("relu 13 7 rows")
            buffers = {name: await put(backend, array) for name, array in case.states.items()}
            executable = await backend.compile(case.program, buffers)
            with pytest.raises(ValueError, match="takes inputs of"):
                backend.run(executable, {"step": case.block[:-4]})

    run(test)


def test_an_unknown_op_is_refused_by_name(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            values = {"x": Value("x", Role.STATE, DType.F32, (1, 8)), "y": Value("y", Role.OUTPUT, DType.F32, (1, 8))}
            buffer = await backend.allocate(32, Role.STATE)
            with pytest.raises(Unsupported, match=r"convolve.*rms_norm"):
                await backend.compile(Program("odd", values, (Op("convolve", ("x",), ("y",)),)), {"x": buffer})

    run(test)


def test_five_and_six_bits_and_tables_are_taken_where_they_stay_so_narrow(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            for bits in (5, 6):
                assert backend.limits.supports(Affine(bits, 16, DType.F32, 32)) is backend._live.tuning.odd_bits
            assert backend.limits.supports(cases.MXFP4) is backend._live.tuning.odd_bits

    run(test)


@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("encoding", [Dense(DType.F32), Affine(4, 32, DType.F16, None)], ids=str)
def test_biased_products_of_the_same_rows_run_together(open_backend: Opening, rows: int, encoding: Encoding) -> None:
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
        async with opened(open_backend) as backend:
            found = await run_case(backend, case)
            for name, wanted in case.expected().items():
                assert_close(found[name], wanted, case)

    run(test)


def test_keys_and_values_are_halves_unless_the_exact_mode_is_asked_for(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend, opened(open_backend, exact=True) as exact:
            assert backend.limits.kv_dtype is DType.F16
            assert exact.limits.kv_dtype is DType.F32

    run(test)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("linear of a vocabulary", 1 << 20),
        ("linear of a dense vocabulary", 1 << 20),
        ("expert_linear of large matrices 1 rows", 1 << 20),
        ("expert_linear of large matrices 9 rows", 1 << 20),
        ("embed affine8g16-f32-z128", 4096),
    ],
)
def test_weights_beyond_the_binding_limit_are_split_and_give_the_same(
    open_backend: Opening, name: str, most: int
) -> None:
    async def test() -> None:
        async with opened(open_backend, max_binding=most) as backend:
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


def test_outputs_beyond_the_binding_limit_are_computed_in_pieces(open_backend: Opening) -> None:
    async def test() -> None:
        case = cases.build("linear 576 61 rows")
        async with opened(open_backend, max_binding=1 << 18) as backend:
            for output, found in (await run_case(backend, case)).items():
                assert_close(found, case.expected()[output], case)

    run(test)


def test_a_closed_backend_says_so(open_backend: Opening) -> None:
    async def test() -> None:
        backend = await asyncio.to_thread(open_backend)
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


def test_closing_lets_readers_have_what_they_wait_for(open_backend: Opening) -> None:
    async def test() -> None:
        backend = await asyncio.to_thread(open_backend)
        buffer = await put(backend, np.ones(8, np.float32))
        executable = await backend.compile(doubling(), {"x": buffer})
        tickets = [*(backend.run(executable, {}) for _ in range(9)), backend.download([(buffer, 0, 32)])]
        readers = [asyncio.create_task(backend.read(ticket)) for ticket in tickets]
        await backend.close()
        found = [np.frombuffer(next(iter((await reader).values())), np.float32).tolist() for reader in readers]
        assert found == [[2.0] * 8] * 9 + [[1.0] * 8]

    run(test)


def test_a_reader_that_is_cancelled_harms_nobody(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            buffer = await put(backend, np.ones(8, np.float32))
            executable = await backend.compile(doubling(), {"x": buffer})
            readers = [asyncio.create_task(backend.read(backend.run(executable, {}))) for _ in range(10)]
            await asyncio.sleep(0)
            for reader in readers[::2]:
                reader.cancel()
            results = await asyncio.gather(*readers, return_exceptions=True)
            assert all(isinstance(result, Mapping) for result in results[1::2])

    run(test)
