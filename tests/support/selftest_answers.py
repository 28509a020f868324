"""The answers of the backends' self-tests, from the NumPy reference.

python -m tests.support.selftest_answers      write them
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pie_edge.backends.cpu import selftest as cpu
from pie_edge.backends.shared import examination
from pie_edge.backends.shared.selftest import Examination, digest
from pie_edge.program import reference
from pie_edge.program.ops import Role
from pie_edge.weights.widen import dequantise_planes


def answers() -> dict[Path, Mapping[str, Any]]:
    """What the reference gives for every output, by the file where it is kept; of Vulkan and wgpu by the precision of keys
    and values."""
    halves = {examination.precision(halves): _outputs(examination.examination(halves)) for halves in (True, False)}
    return {cpu.ANSWERS: _outputs(cpu.examination()), examination.ANSWERS: halves}


def _outputs(exam: Examination) -> dict[str, list[float]]:
    dense = {
        name: np.asarray(dequantise_planes(s.target, dict(s.planes(0, s.shape[0]))), np.float32).reshape(s.shape)
        for name, s in exam.sources.items()
    }
    states = {name: array.copy() for name, array in exam.states.items()}
    env = reference.run(exam.program, dense | states, exam.block)
    return {v.name: digest(env[v.name]) for v in exam.program.by_role(Role.OUTPUT)}


if __name__ == "__main__":
    for path, found in answers().items():
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
