"""Op cases, copies and tiny models on the wgpu backend. Run as a module it checks some of them, or all, in a process of its own,
for drivers and adapters are chosen when they are loaded:

    python -m tests.backend.wgpu_cases [--tuning hardware] [--no-subgroups] [--halves] [--all] NAME...
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pie_edge.backends.shared.tuning import Tuning
from pie_edge.backends.wgpu.device import survey
from pie_edge.backends.wgpu.tuning import default_tuning
from tests.backend import copy_cases, device_cases, openers
from tests.backend.families_on_device import check_family
from tests.support.family_configs import CONFIGS

COPIES, FAMILY = "copies: ", "family "
"""How the names of those begin that aren't op cases."""
SOME = (
    "linear affine4g32-f16-min 1 rows",
    "linear affine4g16-f32-z8 3 rows",
    "linear affine6g64-f16-min 61 rows",
    "linear bf16 7 rows",
    "linear f16 7 rows",
    "embed affine8g16-f16-z128",
    "adapter_linear 33x67 8 rows",
    "rms_norm 7x3 8 rows",
    "add_rms_norm 10 7 rows",
    "layer_norm 13 7 rows",
    "rope interleaved in part",
    "gelu 13 7 rows",
    "activation silu 13 7 rows",
    "softcap 13 7 rows",
    "scale 13 7 rows",
    "mul by row 13 7 rows",
    "clamped_glu 13",
    "gather_rows",
    "store of a linear",
    "route 8 of 128 11 rows",
    "a mixture of experts",
    "expert_linear affine6g16-f32-z32, a prefill",
    "short_conv bf16",
    "gated_delta",
    "attention batch",
    "attention sinks, masked, window",
    "halves attention long decode",
    "halves attention batch",
    "halves observed attention softcap",
    "copies: several pages",
    "copies: tokens, swapped",
    "family llama",
)
"""All kinds of ops, and most of what kernels are specialised for."""
ALL = (*device_cases.NAMES, *(COPIES + name for name in copy_cases.PAIRS), *(FAMILY + name for name in CONFIGS))


def chosen_tuning(name: str, subgroups: bool, halves: bool) -> Tuning:
    facts = survey()[0]
    if halves and not facts.half_floats:
        raise SystemExit(f"{facts.name} has no shader-f16")
    chosen = default_tuning(replace(facts, kind={"software": "CPU", "hardware": "DiscreteGPU"}.get(name, facts.kind)))
    return replace(chosen, subgroups=chosen.subgroups and subgroups, half_floats=halves)


def failures(tuning: Tuning, names: Sequence[str]) -> Iterator[str]:
    """What disagrees, a line each."""
    backend, families = openers.wgpu(tuning=tuning), openers.wgpu(tuning=tuning, exact=True)
    with asyncio.Runner() as runner:
        for name in names:
            try:
                if name.startswith(FAMILY):
                    with tempfile.TemporaryDirectory() as folder:
                        check_family(name.removeprefix(FAMILY), (runner, families), Path(folder))
                elif name.startswith(COPIES):
                    runner.run(copy_cases.check(backend, name.removeprefix(COPIES)))
                else:
                    device_cases.check(backend, name)
            except Exception as error:
                yield f"{name}: {type(error).__name__}: {error}"
        for opened in (backend, families):
            runner.run(opened.close())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tuning", default="", choices=["", "software", "hardware"])
    parser.add_argument("--no-subgroups", action="store_true")
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args(arguments)
    tuning = chosen_tuning(given.tuning, not given.no_subgroups, given.halves)
    names = ALL if given.all else given.names or SOME
    failed = 0
    for line in failures(tuning, names):
        print(line, flush=True)
        failed += 1
    print(f"{len(names) - failed} of {len(names)} cases agree on {survey()[0].name}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
