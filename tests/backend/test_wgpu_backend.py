"""The wgpu backend's protocol: order, memory, errors, and a device that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backends.wgpu.backend import Live, Options, WgpuBackend, open_wgpu
from pie_edge.backends.wgpu.describe import describe
from pie_edge.backends.wgpu.shader import Shader
from pie_edge.errors import BackendError, BackendUnavailable, DeviceLost, OutOfMemory, Unsupported, UsageError
from pie_edge.program import trace as ops
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op, Program, Role, Value
from pie_edge.program.trace import Trace
from tests.backend import cases, copy_cases
from tests.backend.copy_cases import PAIRS
from tests.backend.device import assert_close, fetch, put, run_case


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[WgpuBackend]:
    chosen = Options(**options)
    backend = WgpuBackend(chosen, await asyncio.to_thread(Live, chosen))
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


def test_writes_runs_and_downloads_happen_in_the_order_they_were_enqueued() -> None:
    async def test() -> None:
        async with opened() as backend:
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


def test_a_write_of_part_of_a_word_leaves_the_rest() -> None:
    async def test() -> None:
        async with opened() as backend:
            buffer = await put(backend, np.full(8, -1, np.int32))
            backend.write(buffer, b"abcde", 6)
            found = (await fetch(backend, buffer, np.zeros(8, np.float32))).tobytes()
            assert found == b"\xff" * 6 + b"abcde" + b"\xff" * 21

    run(test)


@pytest.mark.parametrize("name", PAIRS)
def test_copies_leave_what_the_reference_leaves(name: str) -> None:
    async def test() -> None:
        slots, pairs = PAIRS[name]
        async with opened() as backend:
            held = copy_cases.states()
            buffers = {key: await put(backend, array) for key, array in held.items()}
            compiled = await backend.compile(copy_cases.program(slots), buffers)
            backend.run(compiled, {key: array.tobytes() for key, array in copy_cases.inputs(pairs).items()})
            ticket = backend.download([(buffers[key], 0, array.nbytes) for key, array in held.items()])
            found = list((await backend.read(ticket)).values())
            for data, (key, array) in zip(found, copy_cases.expected(slots, pairs).items(), strict=True):
                np.testing.assert_array_equal(np.frombuffer(data, array.dtype).reshape(array.shape), array, err_msg=key)

    run(test)


def test_memory_that_is_given_back_is_there_again() -> None:
    async def test() -> None:
        async with opened(memory=64 << 20) as backend:
            session = backend._live.session
            told = r"100\.0 MiB of .*; 64\.0 of 64\.0 MiB are free.*`kv_memory`"
            with pytest.raises(OutOfMemory, match=told):
                await backend.allocate(100 << 20, Role.STATE)
            for _ in range(5):
                backend.free(await backend.allocate(40 << 20, Role.STATE))
            buffer = await put(backend, np.ones(8, np.float32))
            await backend.read(backend.run(await backend.compile(doubling(), {"x": buffer}), {}))
            async with asyncio.timeout(30):
                # Nobody has the executable any more.
                while session.settled() > 32 + (1 << 18):
                    await asyncio.sleep(0.001)

    run(test)


@pytest.mark.parametrize(
    ("name", "most"),
    [("linear of a vocabulary", 1 << 20), ("embed affine8g16-f32-z128", 4096), ("linear 576 61 rows", 1 << 18)],
)
def test_weights_beyond_the_binding_limit_are_split_and_give_the_same(name: str, most: int) -> None:
    async def test() -> None:
        case = cases.build(name)
        async with opened(max_binding=most) as backend:
            for output, found in (await run_case(backend, case)).items():
                assert_close(found, case.expected()[output], case)

    run(test)


def test_what_does_not_fit_is_refused() -> None:
    async def test() -> None:
        async with opened() as backend:
            values = {"x": Value("x", Role.STATE, DType.F32, (1, 8)), "y": Value("y", Role.OUTPUT, DType.F32, (1, 8))}
            buffer = await backend.allocate(32, Role.STATE)
            with pytest.raises(Unsupported, match=r"convolve.*the wgpu backend has .*rms_norm"):
                await backend.compile(Program("odd", values, (Op("convolve", ("x",), ("y",)),)), {"x": buffer})
            with pytest.raises(ValueError, match="33 bytes at 0 don't fit a buffer of 32"):
                backend.write(buffer, bytes(33))
            with pytest.raises(ValueError, match="8 bytes at 28 aren't all in a buffer of 32"):
                backend.download([(buffer, 28, 8)])

    run(test)


def test_a_shader_that_is_not_compiled_is_named_with_its_line() -> None:
    async def test() -> None:
        async with opened() as backend:
            code = "@compute @workgroup_size(1)\nfn main() {\n    let x: u32 = 1.5;\n}\n"
            with pytest.raises(BackendError, match=r"kernel 'odd', line 3 \(let x: u32 = 1\.5;\)"):
                backend._live.session.pipelines.pipeline(Shader("odd", code), ())
            # And the device goes on.
            buffer = await put(backend, np.ones(8, np.float32))
            executable = await backend.compile(doubling(), {"x": buffer})
            (found,) = (await backend.read(backend.run(executable, {}))).values()
            assert found.tolist() == [2.0] * 8

    run(test)


def test_a_lost_device_fails_what_ran_and_serves_what_comes_next() -> None:
    """Destroyed with a read pending: that is answered, and the device is opened again with all its weights."""

    async def test() -> None:
        async with opened() as backend:
            case = cases.build("linear f16 1 rows")
            buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
            for value in case.program.by_role(Role.WEIGHT):
                buffers[value.name] = await backend.load(value, case.sources[value.name])
            executable = await backend.compile(case.program, buffers)
            inputs = {"step": case.block}
            await backend.read(backend.run(executable, inputs))
            pending = [backend.run(executable, inputs) for _ in range(3)]
            backend._live.session.device.destroy()
            pending.append(backend.run(executable, inputs))
            for ticket in pending[2:]:
                with pytest.raises(DeviceLost):
                    await asyncio.wait_for(backend.read(ticket), 2)
            for name, array in case.states.items():
                backend.write(buffers[name], array.tobytes())
            outputs = await backend.read(backend.run(executable, inputs))
            for name, expected in case.expected().items():
                assert_close(np.frombuffer(outputs[name], np.float32).reshape(-1, expected.shape[1]), expected, case)

    run(test)


def test_a_closed_backend_says_so() -> None:
    async def test() -> None:
        async with opened() as backend:
            buffer = await backend.allocate(32, Role.STATE)
            executable = await backend.compile(doubling(), {"x": buffer})
            ticket = backend.run(executable, {})
            await backend.close()
            for late in (lambda: backend.run(executable, {}), lambda: backend.download([(buffer, 0, 4)])):
                with pytest.raises(DeviceLost, match="closed"):
                    late()
            with pytest.raises(DeviceLost, match="closed"):
                await backend.read(ticket)
            await backend.close()

    run(test)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="-1 bytes"):
        asyncio.run(open_wgpu("", memory=-1))
    with pytest.raises(BackendUnavailable, match="no adapter 'abacus'; there are "):
        asyncio.run(open_wgpu("abacus"))


def test_doctor_tells_api_limits_and_features() -> None:
    lines = describe()
    assert len(lines) % 2 == 0
    assert any(api in lines[0] for api in ("Vulkan", "Metal", "D3D12", "OpenGL"))
    assert "largest binding" in lines[1]
    assert "storage buffers a stage" in lines[1]
    assert "features: " in lines[1]
