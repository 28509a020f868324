"""The wgpu backend's protocol: order, memory, errors, and a device that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backends.wgpu.backend import open_wgpu
from pie_edge.backends.wgpu.describe import describe
from pie_edge.backends.wgpu.shader import Shader
from pie_edge.errors import BackendError, BackendUnavailable, UsageError
from tests.backend import openers
from tests.backend.device import put
from tests.backend.openers import Opening
from tests.backend.protocol_on_device import *  # noqa: F403
from tests.backend.protocol_on_device import Losing, doubling, opened, run


@pytest.fixture
def open_backend() -> Opening:
    return openers.wgpu


@pytest.fixture
def lose() -> Losing:
    @contextmanager
    def lost(backend: Any) -> Iterator[None]:
        backend._live.session.device.destroy()
        yield

    return lost


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
