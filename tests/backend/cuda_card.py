"""A card's own kernels for its tests, each compiled once and kept where the command line keeps them. As a program it compiles all
that is on record beforehand, as many at a time as there are processors, for tests would do it one after the other:

    python -m tests.backend.cuda_card
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.api import Driver
from pie_edge.backends.cuda.device import Gpu
from pie_edge.paths import cache_folder
from tests.backend.cuda_registers import Module, record, side_by_side


@cache
def architecture() -> int:
    """The compute capability of the first card, times ten."""
    gpu = Gpu(Driver(), "")
    gpu.close()
    return gpu.facts.architecture


@cache
def compiler() -> nvrtc.Compiler:
    return nvrtc.Compiler(architecture(), cache_folder())


def compile_all(modules: Iterable[Module], architecture: int, folder: Path) -> int:
    """Of those for this architecture into the cache; gives how many there are."""
    compile_one = nvrtc.Compiler(architecture, folder)
    wanted = [module for module in modules if module.is_for(architecture)]
    return len(list(side_by_side(lambda module: compile_one(module.file, "", module.defines), wanted)))


def main() -> int:
    since = time.monotonic()
    count = compile_all(map(Module.named, record()["modules"]), architecture(), cache_folder())
    print(f"{count} modules for sm_{architecture()}: {time.monotonic() - since:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
