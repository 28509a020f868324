"""What NVRTC makes of every module of CUDA C++ that models and op cases come to, on every architecture: registers and spills,
kept in ``tests/data/cuda_registers.json``. As a program it compiles what has changed since, and all of it with ``--all``:

    PIE_EDGE_TEST_MODELS=FOLDER python -m tests.backend.cuda_registers [--all]

It ends with 1 if a kernel spills, or takes more registers than its ceiling, and leaves its module out. A module is a file and
its macros. Which ones there are is seen by lowering all cases, on a card of each generation, and the two models; nothing runs.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import c_void_p
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.launch import Kernel, Launch
from pie_edge.backends.cuda.session import Session
from pie_edge.backends.cuda.tune import tile_variants
from pie_edge.program.ops import Role
from tests.simt import build

T, R = TypeVar("T"), TypeVar("R")
RECORD = Path(__file__).parents[1] / "data" / "cuda_registers.json"
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
CEILINGS = {
    "linear": 200,
    "linear_tile": 128,
    "linear_wgmma": 184,
    "halve": 40,
    "expert_linear": 128,
    "attention_decode": 104,
    "attention_prefill": 104,
    "attention_tile": 192,
}
"""Registers of a thread of the hot kernels, at most; what the others take is no matter."""
_TOLD = re.compile(r"entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers", re.DOTALL)
_SYNCHRONOUS = "wgmma.mma_async instructions are serialized"
"""What the compiler says where it found a use of sums that are still being made."""


@dataclass(frozen=True, order=True)
class Module:
    file: str
    defines: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.file, *self.defines))

    @classmethod
    def named(cls, name: str) -> Module:
        file, *defines = name.split(" ")
        return cls(file, tuple(defines))

    def is_for(self, architecture: int) -> bool:
        """wgmma is Hopper's alone, and Turing doesn't multiply bfloat16."""
        if self.file == "linear_tile.cu" and "FORMAT=6" in self.defines:
            return architecture >= 80
        return self.file != "linear_wgmma.cu" or architecture == nvrtc.HOPPER

    @property
    def architectures(self) -> tuple[int, ...]:
        """Those that it is compiled for."""
        return tuple(filter(self.is_for, ARCHITECTURES))

    @property
    def digest(self) -> str:
        """Of its text with what it includes, and how it is compiled."""
        sources = nvrtc.sources()
        text = build.gathered(self.file, sources), sources["ptx.cuh"], self.defines, nvrtc.OPTIONS
        return hashlib.sha256(repr(text).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Compiled:
    registers: Mapping[str, int]
    faults: Sequence[str]


def compiled(module: Module, architecture: int) -> Compiled:
    """Registers by kernel, and what is wrong with them. Raises BackendError where it isn't compiled."""
    options = (*nvrtc.options_for(architecture), "--ptxas-options=-v", *(f"-D{macro}" for macro in module.defines))
    cubin, log = nvrtc.compiled(module.file, nvrtc.sources()[module.file], options)
    found = {name: (int(spilled), int(registers)) for name, spilled, registers in _TOLD.findall(log)}
    of = f"of {module} on sm_{architecture}"
    faults = [] if cubin.startswith(b"\x7fELF") and found else [f"nothing came {of}"]
    faults += [f"{name} {of} spills {spilled} bytes" for name, (spilled, _) in found.items() if spilled]
    faults += [f"{name} {of} takes {n} registers" for name, (_, n) in found.items() if n > CEILINGS.get(name, 255)]
    faults += [f"wgmma {of} is serialised"] if _SYNCHRONOUS in log else []
    return Compiled({name: registers for name, (_, registers) in found.items()}, faults)


def side_by_side(make: Callable[[T], R], wanted: Iterable[T]) -> Iterator[R]:
    """As many at a time as there are processors: the compiler doesn't hold Python's lock."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(make, wanted)


def all_of(wanted: Iterable[tuple[Module, int]]) -> Iterator[tuple[Module, int, Compiled]]:
    return side_by_side(lambda one: (*one, compiled(*one)), wanted)


@cache
def record() -> Any:
    """``nvrtc``, the version, and ``modules``, by name the digest and the registers by kernel and architecture."""
    return json.loads(RECORD.read_text(encoding="utf-8"))


@contextmanager
def _seen(kernels: set[Kernel]) -> Iterator[None]:
    """Programs are lowered, and no kernel of theirs is compiled or launched."""

    def function_of(self: Session, launch: Launch) -> c_void_p:
        kernels.add(launch.kernel)
        return c_void_p(1)

    with (
        patch.object(Session, "prepare", lambda self, wanted: kernels.update(wanted)),
        patch.object(Session, "function_of", function_of),
        patch.object(Session, "enqueue", lambda self, launch, grid, stream: kernels.add(launch.kernel)),
    ):
        yield


async def _compile(backend: Any, cases: Iterable[Any]) -> None:
    """Each of a Program, the states that it has, and where its weights come from."""
    from tests.backend.device import put

    for case in cases:
        buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
        for value in case.program.by_role(Role.WEIGHT):
            buffers[value.name] = await backend.load(value, case.sources[value.name])
        await backend.compile(case.program, buffers)
    await backend.close()


async def _compile_model(backend: Any, path: Path) -> None:
    from pie_edge.control.engine import Engine
    from pie_edge.control.facts import ModelFacts
    from pie_edge.control.plan import DeviceSettings
    from pie_edge.program.step import Bucket
    from tests.backend.models_on_device import sources

    spec, family, weights = sources(path, backend)
    facts = ModelFacts(path.stem, spec.architecture, spec.vocabulary, spec.context, 16)
    engine = await Engine.open(facts, spec, family, weights, backend, DeviceSettings(kv_memory=64 << 20))
    await engine._device._step(Bucket(64, 8, 8, 64))  # prompts
    await engine.close()


def modules(folder: Path | None) -> list[Module]:
    """What cases and the self-test come to, those of many rows in every variant that is tried, and the models of a folder."""
    from tests.backend.cuda_cases import NAMES, TILES
    from tests.backend.cuda_emulated import architecture, opened
    from tests.backend.device_cases import build as build_case

    kernels: set[Kernel] = set()
    for generation in (75, 86, 90):
        with _seen(kernels), architecture(generation):
            backend = opened()
            usual = backend._live.tuning
            exams = [paper.exam for halves in (False, True) for paper in backend._live.papers(halves)]
            # The macros of an epilogue's kernels are as many as there are epilogues.
            exams = [exam for exam in exams if "rows" not in exam.inputs]
            asyncio.run(_compile(backend, [*map(build_case, NAMES), *exams]))
            for variant in tile_variants(usual.tile):
                asyncio.run(_compile(opened(tuning=replace(usual, tile=variant)), map(build_case, TILES)))
            for path in sorted(folder.glob("*.gguf")) if folder else ():
                asyncio.run(_compile_model(opened(), path))
    found = {Module(kernel.file, kernel.defines) for kernel in kernels if not kernel.text}
    return sorted(found.union(_NODES, *map(_few_rows, found)))


def _few_rows(module: Module) -> Iterator[Module]:
    """A product of a few rows for any number of them that is one launch: models come with each."""
    if module.file == "linear.cu":
        *form, _ = module.defines
        yield from (replace(module, defines=(*form, f"TOKENS={rows}")) for rows in (1, 2, 4, 8))


_NODES = {
    Module("nodes_kth_largest.cu", ("LOCAL=512", "COPIES=4")),
    Module("nodes_nucleus.cu", ("LOCAL=512", "COPIES=4")),
    Module("nodes_top_k.cu", ("LOCAL=512", "COPIES=4", "TYPE=0", "K=1024")),
    Module("nodes_sort.cu", ("LOCAL=128", "TYPE=0", "BITS=6", "FALLING=1", "IS_FIRST=0", "IS_LAST=1")),
    Module("nodes_cumsum.cu", ("LOCAL=512", "IS_FLOAT=1")),
    Module("nodes_scatter.cu", ("LOCAL=512", "TYPE=0", "MODE=1", "IS_FIRST=1")),
    Module("nodes_pack_bits.cu", ("LOCAL=64",)),
    Module("nodes_pool.cu", ()),
    Module(
        "nodes_sample.cu",
        (
            *("LOCAL=512", "COPIES=4", "MASK=1", "TEMPERED=1", "STAGE_1=1", "STAGE_2=2", "STAGE_3=3", "STAGE_4=0"),
            "ALIGNED=1",
        ),
    ),
}
"""Of the kernels of epilogues, whose macros are as many as there are epilogues, the fullest."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also what has not changed")
    everything = parser.parse_args(argv).all
    folder = os.environ.get("PIE_EDGE_TEST_MODELS")
    if folder is None:
        sys.exit("set PIE_EDGE_TEST_MODELS to the folder of the two models")
    kept: dict[str, Any] = {} if everything or not RECORD.exists() else record()["modules"]
    every = modules(Path(folder))
    found = {str(m): kept[str(m)] for m in every if kept.get(str(m), {}).get("digest") == m.digest}
    wanted, faults, count = [m for m in every if str(m) not in found], list[str](), 0
    for module, compilations in groupby(all_of((m, a) for m in wanted for a in m.architectures), lambda one: one[0]):
        kernels: dict[str, dict[str, int]] = {}
        wrong = []
        for _, architecture, one in compilations:
            wrong += one.faults
            count += 1
            for name, registers in one.registers.items():
                kernels.setdefault(name, {})[str(architecture)] = registers
        if not wrong:
            found[str(module)] = {"digest": module.digest, "kernels": kernels}
            _keep(found)
        faults += wrong
    print(*faults, f"{count} cubins of {len(wanted)} modules, {len(found)} of {len(every)} are recorded", sep="\n")
    _keep(found)
    return 1 if faults else 0


def _keep(found: Mapping[str, Any]) -> None:
    """At once: a whole run takes minutes."""
    whole = {"nvrtc": ".".join(map(str, nvrtc.version())), "modules": dict(sorted(found.items()))}
    RECORD.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
