"""The Vulkan backend against llama.cpp's on the same device and llama.cpp's on the CPU, and where its time goes.

    python -m benchmarks.vulkan [--clock cpu] [--parts speed,start,steps,kernels]

``device_speed.py`` says where llama.cpp comes from, and what ``--clock cpu`` is for.

Exit status 1: a floor was missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks import device_speed, startup, vulkan_steps
from benchmarks.device_speed import PEER, PEER_CPU, STREAMS, Check, Figures, Floor, Setup
from benchmarks.harness import ratio, table

OURS = "pie-edge, Vulkan"
FIRST_TOKEN = 5.0
"""Seconds from a fresh process to the first token."""
PYTHON_SHARE = 300.0
"""Microseconds of a decode step, beside a device that doesn't take Python's caches."""


FLOORS = (
    Floor("decode", PEER, 12),
    Floor("decode", PEER_CPU, 0.15),
    Floor("prefill", PEER, 4.5),
    Floor("prefill", PEER_CPU, 0.12),
)
TOGETHER = 1.2
"""So many times one stream's tokens that 16 streams have to give."""


def tell_speed(setup: Setup) -> bool:
    commands = {
        OURS: setup.ours("vulkan"),
        PEER: setup.peer("vulkan", setup.clock),
        PEER_CPU: setup.peer("cpu", setup.clock),
    }
    figures = device_speed.speed(setup, commands, streams=(OURS, PEER_CPU))
    found = [*device_speed.checks(figures, OURS, FLOORS), _together(figures)]
    return device_speed.tell(figures, setup, tuple(commands), found)


def _together(figures: Figures) -> Check:
    alone, together = figures["decode"][OURS], figures["streams"][OURS]
    told = ratio(together, alone).show(2)
    return Check(f"{STREAMS} streams ÷ one", told, max(together) / max(alone), TOGETHER)


def tell_start(setup: Setup) -> bool:
    """Fresh processes with the driver's cache of compiled shaders and without, and the stages of one of each."""
    ours = [sys.executable, "-P", "-m", "pie_edge.cli", *startup.words(setup.model, "vulkan")]
    rows, within = [], True
    startup.start(ours)  # The language component is built once on a machine, and imports are compiled.
    with tempfile.TemporaryDirectory() as folder:
        for name, driver in (("driver's cache warm", {}), ("driver's cache empty", {"MESA_SHADER_CACHE_DIR": folder})):
            os.environ |= driver
            setup.patience()
            found = [startup.start(ours) for _ in range(1 if driver else setup.rounds)]
            rows += startup.rows({f"pie-edge, {name}": found})
            within = within and min(one.first for one in found) <= FIRST_TOKEN
        os.environ["MESA_SHADER_CACHE_DIR"] = f"{folder}/traced"
        traced = startup.stages(setup.model, "vulkan")
        del os.environ["MESA_SHADER_CACHE_DIR"]
    try:
        rows += startup.rows({PEER: [startup.start(setup.peer("vulkan", startup.PROMPT))]})
    except (OSError, ChildProcessError, subprocess.SubprocessError) as error:
        print(f"{PEER} is not here: {error}", file=sys.stderr)
    print()
    print(table(("fresh process", "first token, s", "end, s", "processor time, s"), rows))
    print("\nWith the driver's cache empty:\n")
    told = [[t, n, f"{b * 1e3:.0f}", f"{s * 1e3:.1f}"] for t, n, b, s in traced]
    print(table(("stage", "thread", "begins at, ms", "takes, ms"), told))
    return within


def tell_steps(setup: Setup) -> bool:
    busy, idle = vulkan_steps.breakdown(setup.model, setup.tokens, setup.rounds)
    print()
    rows = [[name, f"{micros:.1f}", f"{idle[name]:.1f}"] for name, micros in busy.items()]
    print(table(("of a decode step, µs", "as it is", "beside an idle device"), rows))
    return idle[vulkan_steps.OWN] <= PYTHON_SHARE


def tell_kernels(setup: Setup) -> bool:
    rate, rows = vulkan_steps.kernels(setup.model)
    print(f"\nKernels of a decode step, by processor time; one thread reads {rate / 1e9:.1f} GB/s here:\n")
    header = ("kernel", "launches", "µs", "MB of weights", "GB/s", "of the limit")
    print(table(header, rows))
    return True


TELLERS = {"speed": tell_speed, "start": tell_start, "steps": tell_steps, "kernels": tell_kernels}


if __name__ == "__main__":
    sys.exit(device_speed.main("benchmarks.vulkan", __doc__, TELLERS))
