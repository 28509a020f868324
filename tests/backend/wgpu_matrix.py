"""All op cases, copies and tiny models with every variant of the wgpu backend that a machine can run, each in a process of its
own: minutes, where the tests check a subset in seconds.

    python -m tests.backend.wgpu_matrix [WORD...]    of all variants, or of those whose names have these words
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NO_VULKAN = {"VK_ICD_FILENAMES": os.devnull, "VK_DRIVER_FILES": os.devnull}
"""No driver file: the Vulkan loader finds nothing, and OpenGL is what there is."""
_WIDTHS = {4: "128", 16: "512"}
"""Subgroups of Mesa's software device, by the bits of its vectors; it has 256 else."""


@dataclass(frozen=True)
class Variant:
    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def _variants() -> tuple[Variant, ...]:
    found = []
    for tuning, subgroups, halves in product(("software", "hardware"), (True, False), (False, True)):
        words = [f"{tuning} tuning", "subgroups" if subgroups else "no subgroups", "halves" if halves else "words"]
        arguments = ["--tuning", tuning, *["--no-subgroups"] * (not subgroups), *["--halves"] * halves]
        found.append(Variant(", ".join(words), tuple(arguments)))
    for tuning, (width, bits) in product(("software", "hardware"), _WIDTHS.items()):
        environment = {"LP_NATIVE_VECTOR_WIDTH": bits}
        found.append(Variant(f"{tuning} tuning, subgroups of {width}", ("--tuning", tuning), environment))
    for tuning in ("software", "hardware"):
        found.append(Variant(f"{tuning} tuning, OpenGL", ("--tuning", tuning), NO_VULKAN))
    return tuple(found)


VARIANTS = _variants()


def run(variant: Variant, *more: str, timeout: float = 860) -> subprocess.CompletedProcess[str]:
    """``wgpu_cases`` with a variant; drivers and adapters are chosen when they are loaded."""
    command = [sys.executable, "-m", "tests.backend.wgpu_cases", *variant.arguments, *more]
    environment = {**os.environ, **variant.environment}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def main(words: Sequence[str]) -> int:
    failed = 0
    for variant in VARIANTS:
        if not all(word in variant.name for word in words):
            continue
        began = time.monotonic()
        done = run(variant, "--all", timeout=3600)
        failed += done.returncode != 0
        told = (done.stdout or done.stderr[-2000:]).strip()
        print(f"{variant.name} ({time.monotonic() - began:.0f} s): {told}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
