"""The Vulkan backend's copies and downloads."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.backends.vulkan.backend import Live, Options, VulkanBackend
from pie_edge.program.ops import Role
from tests.backend import copy_cases
from tests.backend.copy_cases import PAIRS


async def opened() -> VulkanBackend:
    return VulkanBackend(Options(), await asyncio.to_thread(Live, Options()))


@pytest.mark.parametrize("name", PAIRS)
def test_copies_leave_what_the_reference_leaves(name: str) -> None:
    async def test() -> None:
        slots, pairs = PAIRS[name]
        backend = await opened()
        try:
            held = copy_cases.states()
            buffers = {key: await backend.allocate(array.nbytes, Role.STATE) for key, array in held.items()}
            for key, array in held.items():
                backend.write(buffers[key], array.tobytes())
            compiled = await backend.compile(copy_cases.program(slots), buffers)
            backend.run(compiled, {key: array.tobytes() for key, array in copy_cases.inputs(pairs).items()})
            ticket = backend.download([(buffers[key], 0, array.nbytes) for key, array in held.items()])
            found = list((await backend.read(ticket)).values())
            for data, (key, array) in zip(found, copy_cases.expected(slots, pairs).items(), strict=True):
                np.testing.assert_array_equal(np.frombuffer(data, array.dtype).reshape(array.shape), array, err_msg=key)
        finally:
            await backend.close()

    asyncio.run(test())


def test_a_download_is_what_was_there_after_the_runs_before_it() -> None:
    async def test() -> None:
        backend = await opened()
        try:
            buffer = await backend.allocate(64, Role.STATE)
            backend.write(buffer, bytes(range(64)))
            first = backend.download([(buffer, 8, 4), (buffer, 60, 4)])
            backend.write(buffer, b"\xff" * 64)
            second = backend.download([(buffer, 8, 4)])
            assert [bytes(part) for part in (await backend.read(first)).values()] == [b"\x08\t\n\x0b", b"<=>?"]
            assert [bytes(part) for part in (await backend.read(second)).values()] == [b"\xff" * 4]
            with pytest.raises(ValueError, match="8 bytes at 60 aren't all in a buffer of 64"):
                backend.download([(buffer, 60, 8)])
        finally:
            await backend.close()

    asyncio.run(test())
