"""The Metal backend beside mlx-lm, on the device that MLX takes and the same snapshot; and what building a step's graph costs.

    python -m benchmarks.metal [--parts speed,quantised,steps]

mlx-lm knows no GGUF: a snapshot in bfloat16 is made of the model first, on a GPU one of four-bit codes, too, and both read that.
Elsewhere than on a Mac this runs on MLX's CPU device, which shows that nothing is lost to ours, and not how fast anything is.

Exit status 1: a floor was missed.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks import device_speed
from benchmarks.device_speed import Floor, Setup
from benchmarks.harness import table
from benchmarks.processes import worker
from benchmarks.snapshots import write_bfloat16
from pie_edge.backends.metal.backend import Live, MetalBackend, Options
from pie_edge.backends.metal.device import facts
from pie_edge.backends.metal.model import Model
from pie_edge.backends.metal.timeline import Graph
from pie_edge.model.spec import Cache
from pie_edge.program.expand import expand
from pie_edge.program.ops import Role
from pie_edge.program.step import StepLayout
from tests.backend.device import LoadedModel
from tests.support.oracle_run import PAGE, whole_pass

OURS, PEER = "pie-edge, Metal", "mlx-lm"
FLOORS = Floor("decode", PEER, 1.0), Floor("prefill", PEER, 1.0)
STEPS = 20
_BITS, _GROUP = 4, 64


def tell_speed(setup: Setup) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return _tell(setup, write_bfloat16(setup.model, Path(folder) / setup.model.stem))


def tell_quantised(setup: Setup) -> bool:
    if not facts().gpu:
        print("codes are measured on a GPU alone: on a processor MLX takes minutes for a prompt", file=sys.stderr)
        return True
    with tempfile.TemporaryDirectory() as folder:
        whole = write_bfloat16(setup.model, Path(folder) / "whole")
        return _tell(setup, write_codes(whole, Path(folder) / f"{setup.model.stem}-4bit"))


def _tell(setup: Setup, snapshot: Path) -> bool:
    commands = {
        name: worker(side, snapshot, "metal", setup.threads, setup.clock)
        for name, side in ((OURS, "engine"), (PEER, "mlx-lm"))
    }
    figures = device_speed.speed(setup, commands)
    print(f"\n{snapshot.name}:")
    return device_speed.tell(figures, setup, tuple(commands), device_speed.checks(figures, OURS, FLOORS))


def write_codes(snapshot: Path, folder: Path) -> Path:
    """The same in codes of four bits and groups of 64, as most snapshots for MLX are."""
    tensors: dict[str, mx.array] = {}
    for name, values in mx.load(str(snapshot / "model.safetensors")).items():
        if values.ndim < 2:
            tensors[name] = values
            continue
        parts = mx.quantize(values, group_size=_GROUP, bits=_BITS)
        stem = name.removesuffix("weight")
        tensors |= {stem + part: array for part, array in zip(("weight", "scales", "biases"), parts, strict=True)}
    config = json.loads((snapshot / "config.json").read_text(encoding="utf-8"))
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    codes = {"quantization": {"group_size": _GROUP, "bits": _BITS}}
    (folder / "config.json").write_text(json.dumps(config | codes), encoding="utf-8")
    return folder


def tell_steps(setup: Setup) -> bool:
    """A decode's milliseconds, and those that Python takes to build its graph, which is while the one before it computes."""
    built, whole = asyncio.run(_steps(setup.model))
    rows = [[f"{1e3 * statistics.median(built):.2f}", f"{1e3 * statistics.median(whole):.2f}"]]
    print()
    print(table(("building a decode's graph, ms", "a decode, ms"), rows))
    return True


async def _steps(path: Path) -> tuple[list[float], list[float]]:
    device = MetalBackend(Options(), Live(Options()))
    model = await LoadedModel.from_file(device, path)
    step = replace(whole_pass([1]), sample_rows=[0], draw_keys=[0, 0])
    cache = Cache(10, PAGE, device.limits.kv_dtype, 1, 1)
    program = model.family.trace(model.spec, step.counts, cache, model.encodings)
    states = {v.name: await device.allocate(v.nbytes, Role.STATE) for v in program.by_role(Role.STATE)}
    executable = await device.compile(expand(program, device.limits.kinds), {**model.weights, **states})
    block, built, whole = memoryview(StepLayout(step.counts).pack(step)).cast("B"), list[float](), list[float]()
    build = Model.build

    def timed(model: Model, *given: Any) -> Graph:
        began = time.perf_counter()
        graph = build(model, *given)
        built.append(time.perf_counter() - began)
        return graph

    Model.build = timed  # type: ignore[method-assign]
    for _ in range(STEPS):
        began = time.perf_counter()
        await device.read(device.run(executable, {"step": block}))
        whole.append(time.perf_counter() - began)
    Model.build = build  # type: ignore[method-assign]
    await device.close()
    return built, whole


TELLERS = {"speed": tell_speed, "quantised": tell_quantised, "steps": tell_steps}


if __name__ == "__main__":
    sys.exit(device_speed.main("benchmarks.metal", __doc__, TELLERS))
