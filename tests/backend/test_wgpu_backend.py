"""The wgpu backend's protocol: order, memory, errors, and a device that goes away."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backends.wgpu.backend import Live, Options, WgpuBackend, open_wgpu
from pie_edge.backends.wgpu.describe import describe
from pie_edge.backends.wgpu.shader import Shader
from pie_edge.errors import BackendError, BackendUnavailable, DeviceLost, OutOfMemory, UsageError
from pie_edge.program.ops import Role
from tests.backend import cases
from tests.backend.device import assert_close, put
from tests.backend.models_on_device import Opening
from tests.backend.protocol_on_device import *  # noqa: F403
from tests.backend.protocol_on_device import doubling, opened, run


@pytest.fixture
def open_backend() -> Opening:
    def made(**options: Any) -> WgpuBackend:
        chosen = Options(**options)
        return WgpuBackend(chosen, Live(chosen))

    return made


def test_memory_that_is_given_back_is_there_again(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend, memory=64 << 20) as backend:
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


def test_a_shader_that_is_not_compiled_is_named_with_its_line(open_backend: Opening) -> None:
    async def test() -> None:
        async with opened(open_backend) as backend:
            code = "@compute @workgroup_size(1)\nfn main() {\n    let x: u32 = 1.5;\n}\n"
            with pytest.raises(BackendError, match=r"kernel 'odd', line 3 \(let x: u32 = 1\.5;\)"):
                backend._live.session.pipelines.pipeline(Shader("odd", code), ())
            # And the device goes on.
            buffer = await put(backend, np.ones(8, np.float32))
            executable = await backend.compile(doubling(), {"x": buffer})
            (found,) = (await backend.read(backend.run(executable, {}))).values()
            assert found.tolist() == [2.0] * 8

    run(test)


def test_a_lost_device_fails_what_ran_and_serves_what_comes_next(open_backend: Opening) -> None:
    """Destroyed with a read pending: that is answered, and the device is opened again with all its weights."""

    async def test() -> None:
        async with opened(open_backend) as backend:
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
