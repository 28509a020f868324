"""The Backend protocol on any backend: order, memory, what is refused, and closing. A test module imports all of this beside a
fixture ``open_backend``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pie_edge.errors import DeviceLost, OutOfMemory, Unsupported
from pie_edge.program import trace as ops
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op, Program, Role, Value
from pie_edge.program.trace import Trace
from tests.backend import cases, copy_cases
from tests.backend.copy_cases import PAIRS
from tests.backend.device import fetch, put
from tests.backend.openers import Opening


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
        async with opened(open_backend) as backend:
            await copy_cases.check(backend, name)

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


def test_a_program_compiled_again_for_other_buffers_uses_those(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            for number in range(8):  # objects freed in between may come back with the same identity
                buffer = await put(backend, np.full(8, number, np.float32))
                kept = await backend.allocate(64 * number + 1, Role.STATE)
                assert (await fetch(backend, buffer, np.zeros(8, np.float32))).tolist() == [float(number)] * 8
                backend.free(buffer)
                del buffer, kept

    run(test)


def test_a_state_is_zeroed_also_where_another_was(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            for _ in range(3):
                buffer = await backend.allocate(32, Role.STATE)
                assert not (await fetch(backend, buffer, np.ones(8, np.float32))).any()
                backend.write(buffer, np.ones(8, np.float32).tobytes())
                backend.free(buffer)

    run(test)


def test_an_allocation_that_does_not_fit_says_what_was_asked_and_what_is_there(open_backend: Opening) -> None:
    """And the next ones work, and what is freed comes back."""

    async def test() -> None:
        async with opened(open_backend, memory=64 << 20) as backend:
            assert backend.limits.memory <= 64 << 20
            with pytest.raises(OutOfMemory, match=r"100\.0 MiB.*64\.0 MiB.*kv_memory"):
                await backend.allocate(100 << 20, Role.STATE)
            for _ in range(5):
                buffer = await backend.allocate(40 << 20, Role.STATE)
                backend.free(buffer)
                await put(backend, np.zeros(1, np.float32))

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


def test_a_closed_backend_says_so(open_backend: Opening) -> None:
    async def test() -> None:
        backend = await asyncio.to_thread(open_backend)
        buffer = await backend.allocate(32, Role.STATE)
        executable = await backend.compile(doubling(), {"x": buffer})
        await backend.close()
        with pytest.raises(DeviceLost, match="closed"):
            backend.run(executable, {})
        with pytest.raises(DeviceLost, match="closed"):
            backend.download([(buffer, 0, 4)])
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


def test_outputs_that_nobody_takes_are_in_nobodys_way(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            buffer = await backend.allocate(32, Role.STATE)
            executable = await backend.compile(doubling(), {"x": buffer})
            for number in range(5):
                backend.write(buffer, np.full(8, number, np.float32).tobytes())
                for _ in range(3):
                    backend.run(executable, {})
                (found,) = (await backend.read(backend.run(executable, {}))).values()
                assert found.tolist() == [2.0 * number] * 8

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
