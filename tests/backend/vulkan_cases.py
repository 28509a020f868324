"""Some op cases on the Vulkan backend, in a process of its own.

That is how drivers are given other settings:

    python -m tests.backend.vulkan_cases [--tuning hardware] [--no-subgroups] NAME...
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pie_edge.backends.vulkan import tuning
from pie_edge.backends.vulkan.device import open_gpu
from tests.backend import device_cases, openers


def chosen_tuning(name: str, subgroups: bool) -> tuning.Tuning:
    gpu = open_gpu()
    facts = replace(gpu.facts, software=name == "software" if name else gpu.facts.software)
    gpu.close()
    chosen = tuning.default_tuning(facts)
    return replace(chosen, subgroups=chosen.subgroups and subgroups)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tuning", default="", choices=["", "software", "hardware"])
    parser.add_argument("--no-subgroups", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args(arguments)
    backend: Any = openers.vulkan(tuning=chosen_tuning(given.tuning, not given.no_subgroups))
    names = given.names or device_cases.AWKWARD
    for name in names:
        device_cases.check(backend, name)
    print(f"{len(names)} cases agree, subgroups of {backend._live.facts.subgroup} on {backend.limits.device}")
    asyncio.run(backend.close())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
