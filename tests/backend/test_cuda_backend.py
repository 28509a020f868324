"""The CUDA backend's protocol on the emulator: order, memory, errors, what a step costs, and a device that goes away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.backend import CudaBackend, open_cuda
from pie_edge.backends.cuda.launch import Kernel
from pie_edge.errors import BackendError, BackendUnavailable, DeviceLost, OutOfMemory, Unsupported, UsageError
from pie_edge.program import trace as ops
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op, Program, Role, Value
from pie_edge.program.trace import Trace
from tests.backend import cases, copy_cases, cuda_emulated
from tests.backend.copy_cases import PAIRS
from tests.backend.device import assert_close, fetch, put, run_case
from tests.simt import build

pytestmark = pytest.mark.skipif(cuda_emulated.ON_CARD, reason="counts and breaks what the emulator does")


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[CudaBackend]:
    backend = await asyncio.to_thread(lambda: cuda_emulated.opened(**options))
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
                while session.settled() > 512 + (1 << 18):
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
            with pytest.raises(Unsupported, match=r"convolve.*the CUDA backend has .*rms_norm"):
                await backend.compile(Program("odd", values, (Op("convolve", ("x",), ("y",)),)), {"x": buffer})
            with pytest.raises(ValueError, match="33 bytes at 0 don't fit a buffer of 32"):
                backend.write(buffer, bytes(33))
            with pytest.raises(ValueError, match="8 bytes at 28 aren't all in a buffer of 32"):
                backend.download([(buffer, 28, 8)])

    run(test)


def test_a_kernel_that_is_not_compiled_says_what_the_compiler_said() -> None:
    async def test() -> None:
        async with opened(compile_kernels=nvrtc.Compiler(90, None)) as backend:
            code = 'extern "C" __global__ void odd() {\n  unsigned x = missing;\n}\n'
            with pytest.raises(
                BackendError, match=r'(?s)compile odd\.cu.*odd\.cu\(2\): error: identifier "missing" is undefined'
            ):
                backend._live.session.function(Kernel("odd.cu", "odd", (), code))

    pytest.importorskip("cuda.bindings.nvrtc")
    run(test)


def test_a_cubin_for_a_card_is_no_kernel_of_the_emulator() -> None:
    """What is tested here runs on the CPU: nothing for a card passes for it."""

    async def test() -> None:
        async with opened(compile_kernels=nvrtc.Compiler(90, None)) as backend:
            with pytest.raises(BackendError, match="NO_BINARY_FOR_GPU"):
                backend._live.session.function(Kernel("norm.cu", "rms_norm"))

    pytest.importorskip("cuda.bindings.nvrtc")
    run(test)


def test_a_step_is_one_copy_in_one_graph_and_one_copy_out() -> None:
    """However many kernels it has, and however many steps go before the first is read."""
    names = ("cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuLaunchKernel")
    waits = ("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize")

    async def test() -> None:
        async with opened() as backend:
            case = cases.build("store of a linear")
            buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
            for value in case.program.by_role(Role.WEIGHT):
                buffers[value.name] = await backend.load(value, case.sources[value.name])
            silent = await backend.compile(case.program, buffers)
            buffer = await put(backend, np.ones(8, np.float32))
            told = await backend.compile(doubling(), {"x": buffer})
            backend.run(silent, {"step": case.block})  # the first of its kind is captured
            before = cuda_emulated.calls(*names, *waits)
            tickets = []
            for _ in range(4):
                backend.run(silent, {"step": case.block})
                tickets.append(backend.run(told, {}))
            for ticket in tickets:
                await backend.read(ticket)
            after = cuda_emulated.calls(*names, *waits)
            assert [now - then for now, then in zip(after, before, strict=True)] == [8, 8, 4, 8, 0, 0, 0, 0]

    run(test)


def test_a_kernel_that_faults_loses_the_device_and_says_why() -> None:
    """An error sticks to the process, as a card's does: nothing runs any more until it is opened anew."""

    async def test() -> None:
        text = nvrtc.sources()["elementwise.cu"].replace("y[at] = x[at] + z[at];", "y[at + (1ull << 40)] = 0.0f;")
        compiler = cuda_emulated.compiler({**nvrtc.sources(), "elementwise.cu": text})
        async with opened(compile_kernels=compiler) as backend:
            executable = await backend.compile(doubling(), {"x": await put(backend, np.ones(8, np.float32))})
            tickets = [backend.run(executable, {}) for _ in range(2)]
            for ticket in tickets:
                with pytest.raises(DeviceLost, match="ILLEGAL_ADDRESS|was lost"):
                    await asyncio.wait_for(backend.read(ticket), 5)

    try:
        run(test)
    finally:
        cuda_emulated.mend()


def test_a_lost_device_is_opened_again_and_serves_what_comes_next() -> None:
    async def test() -> None:
        async with opened() as backend:
            case = cases.build("linear f16 1 rows")
            buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
            for value in case.program.by_role(Role.WEIGHT):
                buffers[value.name] = await backend.load(value, case.sources[value.name])
            executable = await backend.compile(case.program, buffers)
            inputs = {"step": case.block}
            await backend.read(backend.run(executable, inputs))
            cuda_emulated.mend(719)
            with pytest.raises(DeviceLost):
                await asyncio.wait_for(backend.read(backend.run(executable, inputs)), 5)
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
        asyncio.run(open_cuda("", memory=-1))
    with pytest.raises(BackendUnavailable, match="no device 'abacus'; it has SIMT CPU emulation"):
        cuda_emulated.opened(device="abacus")
    with pytest.raises(BackendUnavailable, match="finds no NVIDIA driver"):
        cuda_emulated.opened(library="/nowhere/libcuda.so.1")


def test_kernels_are_tested_at_a_first_opening_and_that_they_passed_is_kept(tmp_path: Path) -> None:
    told: list[str] = []

    def opened() -> CudaBackend:
        say = lambda done, total, what: told.append(what)  # noqa: E731
        return cuda_emulated.opened(self_test=True, cache_dir=tmp_path, progress=say)

    asyncio.run(opened().close())
    assert set(told) == {"compiling and testing CUDA's kernels on SIMT CPU emulation (once)"}
    told.clear()
    asyncio.run(opened().close())
    assert not told


def test_a_kernel_that_computes_wrong_is_refused_by_name() -> None:
    text = nvrtc.sources()["norm.cu"].replace("* root * (weight[i] + offset)", "* (weight[i] + offset)")
    compiler = cuda_emulated.compiler({**nvrtc.sources(), "norm.cu": text})
    with pytest.raises(
        BackendUnavailable, match="SIMT CPU emulation with driver for CUDA 13.0.* computes CUDA kernel 'rms_norm'"
    ):
        cuda_emulated.opened(self_test=True, compile_kernels=compiler)


def test_an_old_driver_is_refused_with_both_versions() -> None:
    with (
        cuda_emulated.driver_version(12_080),
        pytest.raises(BackendUnavailable, match=r"CUDA 12\.8, and 13\.0 is needed.*r580"),
    ):
        cuda_emulated.opened()


def test_doctor_names_the_emulation_as_what_it_is() -> None:
    """In a process of its own, whose loader finds the stand-in for the driver."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(build.driver().parent)}
    script = "from pie_edge.backends.cuda import describe, probe; print(probe.probe(), describe.describe())"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "SIMT CPU emulation" in done.stdout
    assert "software=True" in done.stdout or "NVRTC" in done.stdout
    assert "SIMT CPU emulation: software, driver for CUDA 13.0" in done.stdout
