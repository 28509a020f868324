"""Kernels by hand: their texts, and how one is launched through MLX, which writes a kernel's signature from its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import mlx.core as mx

FOLDER = Path(__file__).with_name("kernels")
LEAST = 8
"""Entries from which on MLX hands an input over in the address space ``device``. What has fewer lies in ``constant``, which makes
another kernel: one whose counts go over it from step to step would be compiled a second time in the middle of work."""
MOST_ARRAYS = 31
"""That a kernel may be given in Metal, inputs and outputs together."""
_KEPT = 1024
"""Kernels whose texts are kept: this backend's own are some thirty, epilogues' as many as clients send."""
Extent = tuple[int, int, int]


@dataclass(frozen=True)
class Kernel:
    """``kernels/<name>.metal`` is a kernel's body; it may call what is in the headers, ``kernels/<header>.h``."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    headers: tuple[str, ...] = ()
    body: str = ""
    """Instead of the file's."""

    @property
    def source(self) -> str:
        return self.body or text(f"{self.name}.metal")

    @property
    def fits(self) -> bool:
        return len(self.inputs) + len(self.outputs) <= MOST_ARRAYS

    @property
    def header(self) -> str:
        return "\n".join(text(f"{name}.h") for name in self.headers)


@dataclass(frozen=True)
class Launch:
    """What a kernel is launched with. Threads are counted in all (``grid``) and by threadgroup; ``template`` has its constants by
    name: whole numbers, booleans, types. An input of fewer than ``LEAST`` entries is made longer."""

    kernel: Kernel
    inputs: tuple[mx.array, ...]
    outputs: tuple[tuple[tuple[int, ...], mx.Dtype], ...]
    grid: Extent
    threads: Extent
    template: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(map(_long_enough, self.inputs)))


def _long_enough(array: mx.array) -> mx.array:
    return array if array.size >= LEAST else mx.pad(array.reshape(-1), (0, LEAST - array.size))


Launcher: TypeAlias = Callable[[Launch], Sequence[mx.array]]


def on_metal(launch: Launch, verbose: bool = False) -> Sequence[mx.array]:
    """The outputs, as arrays of a graph that is still to be computed. ``verbose`` prints the text that Metal compiles."""
    found: Sequence[mx.array] = _made(launch.kernel)(
        inputs=list(launch.inputs),
        output_shapes=[shape for shape, _ in launch.outputs],
        output_dtypes=[dtype for _, dtype in launch.outputs],
        grid=launch.grid,
        threadgroup=launch.threads,
        template=list(launch.template),
        verbose=verbose,
    )
    return found


@lru_cache(_KEPT)
def _made(kernel: Kernel) -> Any:
    return mx.fast.metal_kernel(
        name=f"pie_edge_{kernel.name}",
        input_names=list(kernel.inputs),
        output_names=list(kernel.outputs),
        source=kernel.source,
        header=kernel.header,
        # Sums have to round as they are written, and what isn't a number has to stay that.
        compile_options={"math_mode": "safe"},
    )


@cache
def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
