"""The CUDA backend on the emulator: its own host code over a driver's library that runs the same kernels on the CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.backend import CudaBackend, Live, Options
from tests.simt import build


@cache
def compiled(file: str, text: str, defines: tuple[str, ...]) -> bytes:
    """What NVRTC would give, for the CPU."""
    files = {**nvrtc.sources(), file: text or nvrtc.sources()[file]}
    # Text made at run time runs once or twice: it isn't worth much of the compiler's time.
    return build.compiled(build.gathered(file, files), defines, ["-O1"] if text else []).read_bytes()


def opened(**options: Any) -> CudaBackend:
    chosen = Options(**{"library": str(build.driver()), "compile_kernels": compiled, **options})
    return CudaBackend(chosen, Live(chosen))
