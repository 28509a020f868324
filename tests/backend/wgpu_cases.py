"""Op cases on the wgpu backend. Run as a module it checks some of them in a process of its own, for drivers and adapters are
chosen when they are loaded:

    python -m tests.backend.wgpu_cases [--tuning hardware] [--no-subgroups] NAME...
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace

from pie_edge.backends.wgpu.backend import Live, Options, WgpuBackend
from pie_edge.backends.wgpu.device import survey
from pie_edge.backends.wgpu.tuning import Tuning, default_tuning
from pie_edge.program.observe import MASSES
from tests.backend import vulkan_cases
from tests.backend.device import assert_close, run_case

SOME = (
    "linear affine4g32-f16-min 1 rows",
    "linear affine4g16-f32-z8 3 rows",
    "linear affine6g64-f16-min 61 rows",
    "linear bf16 7 rows",
    "embed affine8g16-f32-z128",
    "rms_norm 7x3 8 rows",
    "layer_norm 13 7 rows",
    "attention batch",
    "halves attention long decode",
    "halves observed attention softcap",
)


def check(backend: WgpuBackend, name: str) -> None:
    case = vulkan_cases.build(name)
    found = asyncio.run(run_case(backend, case))
    for output, expected in case.expected().items():
        width = expected.shape[-1] if output == MASSES else None
        assert_close(found[output][..., :width], expected, case)


def chosen_tuning(name: str, subgroups: bool) -> Tuning:
    facts = survey()[0]
    chosen = default_tuning(replace(facts, kind={"software": "CPU", "hardware": "DiscreteGPU"}.get(name, facts.kind)))
    return replace(chosen, subgroups=chosen.subgroups and subgroups)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tuning", default="", choices=["", "software", "hardware"])
    parser.add_argument("--no-subgroups", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args(arguments)
    options = Options(tuning=chosen_tuning(given.tuning, not given.no_subgroups))
    backend = WgpuBackend(options, Live(options))
    for name in given.names or SOME:
        check(backend, name)
    print(f"{len(given.names or SOME)} cases agree on {backend.limits.device}")
    asyncio.run(backend.close())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
