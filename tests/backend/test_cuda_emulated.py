"""The CUDA backend's host code on the emulator: what a step costs, errors, the self-test, and what its driver says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.backend import CudaBackend, open_cuda
from pie_edge.backends.cuda.launch import Kernel
from pie_edge.errors import BackendError, BackendUnavailable, DeviceLost, UsageError
from pie_edge.program.encodings import Affine, Dense, DType
from pie_edge.program.ops import Role
from tests.backend import cases, cuda_emulated, openers
from tests.backend.device import put
from tests.backend.protocol_on_backend import doubling, opened, run
from tests.simt import build

pytestmark = pytest.mark.skipif(cuda_emulated.ON_CARD, reason="counts and breaks what the emulator does")


def test_a_kernel_that_is_not_compiled_says_what_the_compiler_said() -> None:
    async def test() -> None:
        async with opened(openers.cuda, compile_kernels=nvrtc.Compiler(90, None)) as backend:
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
        async with opened(openers.cuda, compile_kernels=nvrtc.Compiler(90, None)) as backend:
            with pytest.raises(BackendError, match="NO_BINARY_FOR_GPU"):
                backend._live.session.function(Kernel("norm.cu", "rms_norm"))

    pytest.importorskip("cuda.bindings.nvrtc")
    run(test)


def test_a_program_on_its_own_is_one_copy_in_one_graph_and_one_copy_out() -> None:
    """However many kernels it has, and however many steps go before the first is read."""
    names = ("cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuLaunchKernel")
    blocking = "cuStreamSynchronize"

    async def test() -> None:
        async with opened(openers.cuda) as backend:
            case = cases.build("store of a linear")
            buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
            for value in case.program.by_role(Role.WEIGHT):
                buffers[value.name] = await backend.load(value, case.sources[value.name])
            silent = await backend.compile(case.program, buffers)
            buffer = await put(backend, np.ones(8, np.float32))
            told = await backend.compile(doubling(), {"x": buffer})
            backend.run(silent, {"step": case.block})  # the first of its kind is captured
            before = cuda_emulated.calls(*names, blocking)
            tickets = []
            for _ in range(4):
                backend.run(silent, {"step": case.block})
                tickets.append(backend.run(told, {}))
            for ticket in tickets:
                await backend.read(ticket)
            after = cuda_emulated.calls(*names, blocking)
            assert [now - then for now, then in zip(after, before, strict=True)] == [8, 8, 4, 8, 0, 0]

    run(test)


def test_a_kernel_that_faults_loses_the_device_and_says_why() -> None:
    """An error sticks to the process, as a card's does: nothing runs any more until it is opened anew."""

    async def test() -> None:
        text = nvrtc.sources()["elementwise.cu"].replace("y[at] = x[at] + z[at];", "y[at + (1ull << 40)] = 0.0f;")
        compiler = cuda_emulated.compiler({**nvrtc.sources(), "elementwise.cu": text})
        async with opened(openers.cuda, compile_kernels=compiler) as backend:
            executable = await backend.compile(doubling(), {"x": await put(backend, np.ones(8, np.float32))})
            tickets = [backend.run(executable, {}) for _ in range(2)]
            for ticket in tickets:
                with pytest.raises(DeviceLost, match="ILLEGAL_ADDRESS|was lost"):
                    await asyncio.wait_for(backend.read(ticket), 5)

    try:
        run(test)
    finally:
        cuda_emulated.mend()


def test_what_a_card_is_lost_by_is_told_however_often_it_is_asked() -> None:
    async def test() -> None:
        async with opened(openers.cuda) as backend:
            executable = await backend.compile(doubling(), {"x": await put(backend, np.ones(8, np.float32))})
            await backend.read(backend.run(executable, {}))
            cuda_emulated.break_device(214)
            for _ in range(3):
                with pytest.raises(DeviceLost, match=r"CUDA_ERROR_ECC_UNCORRECTABLE \(214\).*nvidia-smi"):
                    await asyncio.wait_for(backend.read(backend.run(executable, {})), 5)

    try:
        run(test)
    finally:
        cuda_emulated.mend()


@pytest.mark.parametrize("exact", [False, True])
def test_codes_are_left_to_be_widened_in_exact_mode_for_x_is_rounded_beside_them(exact: bool) -> None:
    backend = cuda_emulated.opened(exact=exact)
    codes = [encoding for encoding in (*cases.ENCODINGS, *cases.ODD_ENCODINGS) if isinstance(encoding, Affine)]
    assert {backend.limits.supports(encoding) for encoding in codes} == {not exact}
    assert all(backend.limits.supports(Dense(dtype)) for dtype in (DType.F32, DType.F16, DType.BF16))
    assert backend.limits.supports(cases.MXFP4)
    asyncio.run(backend.close())


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
    parts = ("kernels", "tensor cores", "copies", "epilogues")
    assert set(told) == {f"testing CUDA's {part} on SIMT CPU emulation (once)" for part in parts}
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
