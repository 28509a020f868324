"""A step on wgpu beside one on Vulkan, on the same device: ``python -m benchmarks.wgpu MODEL.gguf``.

Processor time of all threads, which is what a software device costs, and Python's own to encode and submit: the medians of a few
rounds in which the two take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pie_edge.model.spec import Cache
from pie_edge.program.expand import expand
from pie_edge.program.ops import Role
from pie_edge.program.step import StepLayout
from tests.backend.device import LoadedModel
from tests.support.oracle_run import PAGE, whole_pass

SIZES = (1, 64)
"""Rows of a step: a decode, and a prompt."""
REST = {1: 0.25, 64: 3.0}
"""Seconds in which a step is surely done: nobody looks at the device meanwhile."""


@dataclass(frozen=True)
class Side:
    title: str
    device: Any
    run: Callable[[int], None]

    async def close(self) -> None:
        await self.device.close()


async def opened(title: str, path: Path) -> Side:
    if title == "wgpu":
        from pie_edge.backends.wgpu.backend import Live, Options, WgpuBackend

        device: Any = WgpuBackend(Options(), Live(Options()))
    else:
        from pie_edge.backends.vulkan.backend import Live as VulkanLive
        from pie_edge.backends.vulkan.backend import Options as VulkanOptions
        from pie_edge.backends.vulkan.backend import VulkanBackend

        device = VulkanBackend(VulkanOptions(), VulkanLive(VulkanOptions()))
    model, steps = await LoadedModel.from_file(device, path), {}
    for rows in SIZES:
        step = replace(whole_pass(list(range(rows))), sample_rows=[rows - 1], draw_keys=[0, 0])
        cache = Cache(10, PAGE, device.limits.kv_dtype, 1, 1)
        program = model.family.trace(model.spec, step.counts, cache, model.encodings)
        states = {v.name: await device.allocate(v.nbytes, Role.STATE) for v in program.by_role(Role.STATE)}
        executable = await device.compile(expand(program, device.limits.kinds), {**model.weights, **states})
        steps[rows] = executable, memoryview(StepLayout(step.counts).pack(step)).cast("B")

    def run(rows: int) -> None:
        executable, block = steps[rows]
        device.run(executable, {"step": block})
        device.poll(device.download([]))  # what was held back is sent

    return Side(title, device, run)


def measure(side: Side, rows: int) -> tuple[float, float]:
    """Seconds of processor time of a step, and of this thread alone."""
    began, own = time.process_time(), time.thread_time()
    side.run(rows)
    own = time.thread_time() - own
    time.sleep(REST[rows])
    side.device._live.drain()
    return time.process_time() - began, own


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    sides = [await opened(title, given.model) for title in ("wgpu", "Vulkan")]
    for rows in SIZES:
        for side in sides:
            measure(side, rows)
        found = [[measure(side, rows) for side in sides] for _ in range(given.rounds)]
        for number, side in enumerate(sides):
            whole, own = (1e3 * statistics.median(times) for times in zip(*(r[number] for r in found), strict=True))
            print(f"{rows} rows, {side.title}: {whole:.1f} ms of processor time, {own:.2f} of them Python's to send it")
        ratio = statistics.median(r[1][0] / r[0][0] for r in found)
        print(f"{rows} rows: wgpu is {ratio:.2f} times as fast")
    for side in sides:
        await side.close()


if __name__ == "__main__":
    asyncio.run(main())
