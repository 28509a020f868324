"""Products by expert beside plain ones of as many bytes: ``python -m benchmarks.experts [--backend vulkan]``.

Layers like those of Qwen3-30B-A3B: experts of 768 by 2,048, eight a row, here of 16 that there are. A decode should read the
chosen ones' weights as fast as ``linear`` reads one matrix; with more rows an expert's weights are read once for several. The
least of several runs, which take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import table
from pie_edge.backend import Backend
from pie_edge.backend_choice import choose, open_backend
from pie_edge.program import trace as ops
from pie_edge.program import trace_experts as mixture
from pie_edge.program.encodings import Affine, DType, Encoding, Lookup, encoded_bytes, planes
from pie_edge.program.ops import Role, Value
from pie_edge.program.trace import Trace

HIDDEN, INNER, EXPERTS, CHOSEN, LAYERS = 2048, 768, 16, 8, 4
ROWS = (1, 4, 32)
_FLOATS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0)
ENCODINGS: Mapping[str, Encoding] = {
    "4 bits": Affine(4, 32, DType.F16, None),
    "8 bits": Affine(8, 32, DType.F16, 128),
    "MXFP4": Lookup(32, DType.BF16, _FLOATS),
}
_NUMPY = {DType.U8: np.uint8, DType.F16: np.float16, DType.BF16: np.uint16}
_SIDES = {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}


@dataclass(frozen=True)
class Side:
    """A compiled Program that runs again and again."""

    backend: Backend
    executable: Any

    async def seconds(self) -> float:
        start = time.perf_counter()
        await self.backend.read(self.backend.run(self.executable, {}))
        return time.perf_counter() - start


@dataclass(frozen=True)
class Noise:
    """A weight's planes, made up where they are pulled."""

    shape: tuple[int, ...]
    target: Encoding
    encoding: str = "noise"

    def raw(self, first: int, count: int) -> memoryview:
        raise NotImplementedError("it is in no file")

    def planes(self, first: int, count: int) -> dict[str, Any]:
        found = {}
        for plane in planes(self.target, count, self.shape[1]):
            size = plane.shape[0] * plane.shape[1] * plane.dtype.nbytes
            values = np.random.default_rng(first).integers(0, 16, size, dtype=np.uint8)
            # Floats of such bytes are small and finite, which is all that matters here.
            found[plane.name] = values.view(_NUMPY[plane.dtype]).reshape(plane.shape)
        return found


Record = Callable[[Trace, Value, int, Encoding], None]


def mixed(t: Trace, x: Value, layer: int, encoding: Encoding) -> None:
    chosen = t.state(f"experts{layer}", DType.U32, (x.shape[0], CHOSEN))
    order, starts = t.temp(chosen.shape, DType.U32), t.temp((EXPERTS + 1,), DType.U32)
    t.op("sort_by_expert", (chosen,), (order, starts), experts=EXPERTS)
    routing = mixture.Routing(chosen, chosen, order, starts)
    gate, up, down = (
        t.weight(f"{side}{layer}", (EXPERTS * rows, columns), encoding) for side, (rows, columns) in _SIDES.items()
    )
    inner = ops.glu(t, mixture.expert_linear(t, x, routing, gate), mixture.expert_linear(t, x, routing, up), act="silu")
    mixture.expert_linear(t, inner, routing, down)


def plain(t: Trace, x: Value, layer: int, encoding: Encoding) -> None:
    """As many weights as eight experts have."""
    gate, up = (t.weight(f"{side}{layer}", (CHOSEN * INNER, HIDDEN), encoding) for side in ("gate", "up"))
    inner = ops.glu(t, ops.linear(t, x, gate), ops.linear(t, x, up), act="silu")
    ops.linear(t, inner, t.weight(f"down{layer}", (HIDDEN, CHOSEN * INNER), encoding))


async def compiled(backend: Backend, record: Record, rows: int, encoding: Encoding) -> Side:
    t = Trace(f"{record.__name__}-{rows}-{encoding}")
    x = t.state("x", DType.F32, (rows, HIDDEN))
    for layer in range(LAYERS):
        record(t, x, layer, encoding)
    program, rng = t.build(), np.random.default_rng(0)
    buffers: dict[str, Any] = {}
    for value in program.values.values():
        if value.role is Role.WEIGHT:
            buffers[value.name] = await backend.load(value, Noise(value.shape, encoding))
        elif value.role is Role.STATE:
            buffers[value.name] = await backend.allocate(value.nbytes, Role.STATE)
            held: Any = rng.standard_normal(value.shape).astype(np.float32)
            if value.dtype is DType.U32:
                held = np.stack([rng.permutation(EXPERTS)[:CHOSEN] for _ in range(rows)]).astype(np.uint32)
            backend.write(buffers[value.name], held.tobytes())
    return Side(backend, await backend.compile(program, buffers))


def read_bytes(rows: int, encoding: Encoding) -> int:
    """What has to be read once: of the experts that rows choose, all if there are many rows."""
    shapes = ((min(rows * CHOSEN, EXPERTS) * height, width) for height, width in _SIDES.values())
    return LAYERS * sum(encoded_bytes(encoding, shape) for shape in shapes)


async def measure(name_of_backend: str, runs: int) -> str:
    lines = []
    for name, encoding in ENCODINGS.items():
        for rows in ROWS:
            backend = await open_backend(choose(name_of_backend))
            if not backend.limits.supports(encoding):
                await backend.close()
                continue
            sides = [await compiled(backend, record, rows, encoding) for record in (mixed, plain)]
            times = [[await side.seconds() for side in sides] for _ in range(runs + 1)][1:]
            experts, linears = (min(side) for side in zip(*times, strict=True))
            rate = f"{read_bytes(rows, encoding) / experts / 1e9:.2f}"
            macs = LAYERS * CHOSEN * 3 * HIDDEN * INNER * rows
            lines.append(
                [
                    name,
                    str(rows),
                    f"{experts * 1e3:.1f} ms",
                    rate,
                    f"{macs / experts / 1e9:.1f}",
                    f"{linears / experts:.2f}",
                ]
            )
            await backend.close()
    head = ["weights", "rows", "experts", "GB/s of weights", "GMAC/s", "× the speed of linear"]
    return table(head, lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args(argv)
    print(asyncio.run(measure(given.backend, given.runs)))


if __name__ == "__main__":
    main()
