"""The wgpu backend beside ours for Vulkan and llama.cpp's, all on one device; and a step of ours alone.

    python -m benchmarks.wgpu [--clock cpu] [--parts speed,steps]

``device_speed.py`` says where llama.cpp comes from, and what ``--clock cpu`` is for. Steps are told by the processor time of all
threads, which is what a software device costs, and by Python's own to encode and submit.

Exit status 1: a floor was missed.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import device_speed
from benchmarks.device_speed import PEER, Floor, Setup
from benchmarks.harness import table
from pie_edge.backends.shared.open_device import Options
from pie_edge.model.spec import Cache
from pie_edge.program.expand import expand
from pie_edge.program.ops import Role
from pie_edge.program.step import StepLayout
from tests.backend.device import LoadedModel
from tests.support.oracle_run import PAGE, whole_pass

OURS, VULKAN = "pie-edge, wgpu", "pie-edge, Vulkan"
FLOORS = Floor("decode", VULKAN, 0.6), Floor("decode", PEER, 7), Floor("prefill", VULKAN, 0.6)
SIZES = {1: "a decode", 64: "a prompt of 64"}
"""Rows of a step."""
REST = {1: 0.25, 64: 3.0}
"""Seconds in which a step is surely done: nobody looks at the device meanwhile."""
PYTHON_SHARE = 1.2e-3
"""Seconds that Python takes to encode and submit a decode."""


@dataclass(frozen=True)
class _Side:
    title: str
    device: Any
    run: Callable[[int], None]

    async def close(self) -> None:
        await self.device.close()


async def _opened(title: str, path: Path) -> _Side:
    if title == OURS:
        from pie_edge.backends.wgpu.backend import Live, WgpuBackend

        device: Any = WgpuBackend(Options(), Live(Options()))
    else:
        from pie_edge.backends.vulkan.backend import Live as VulkanLive
        from pie_edge.backends.vulkan.backend import VulkanBackend

        device = VulkanBackend(Options(), VulkanLive(Options()))
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

    return _Side(title, device, run)


def _measure(side: _Side, rows: int) -> tuple[float, float]:
    """Seconds of processor time of a step, and of this thread alone."""
    began, own = time.process_time(), time.thread_time()
    side.run(rows)
    own = time.thread_time() - own
    time.sleep(REST[rows])
    side.device._live.drain()
    return time.process_time() - began, own


async def _steps(path: Path, rounds: int) -> dict[int, list[list[tuple[float, float]]]]:
    """By rows of a step: rounds of both sides' seconds."""
    sides, found = [await _opened(title, path) for title in (OURS, VULKAN)], {}
    for rows in SIZES:
        for side in sides:
            _measure(side, rows)
        found[rows] = [[_measure(side, rows) for side in sides] for _ in range(rounds)]
    for side in sides:
        await side.close()
    return found


def tell_speed(setup: Setup) -> bool:
    commands = {OURS: setup.ours("wgpu"), VULKAN: setup.ours("vulkan"), PEER: setup.peer("vulkan", setup.clock)}
    figures = device_speed.speed(setup, commands)
    return device_speed.tell(figures, setup, tuple(commands), device_speed.checks(figures, OURS, FLOORS))


def tell_steps(setup: Setup) -> bool:
    rows, fine = [], True
    for size, rounds in asyncio.run(_steps(setup.model, setup.rounds)).items():
        (ours, python), (other, _) = (
            [1e3 * statistics.median(of) for of in zip(*side, strict=True)] for side in zip(*rounds, strict=True)
        )
        ratio = statistics.median(there[0] / here[0] for here, there in rounds)
        rows.append([SIZES[size], f"{ours:.1f}", f"{other:.1f}", f"{ratio:.2f}", f"{python:.2f}"])
        fine = fine and (size > 1 or python <= 1e3 * PYTHON_SHARE)
    print()
    print(table(("step, ms of processor time", OURS, VULKAN, "so many times as fast", "Python's, to send it"), rows))
    return fine


TELLERS = {"speed": tell_speed, "steps": tell_steps}


if __name__ == "__main__":
    sys.exit(device_speed.main("benchmarks.wgpu", __doc__, TELLERS))
