"""The answers of the Vulkan backend's self-test, from the NumPy reference.

python -m tests.support.vulkan_answers      write them
"""

from __future__ import annotations

import json

import numpy as np

from pie_edge.backends.vulkan.selftest import ANSWERS, digest, examination, precision
from pie_edge.program import reference
from pie_edge.program.ops import Role
from pie_edge.weights.widen import dequantise_planes


def answers() -> dict[str, dict[str, list[float]]]:
    """What the reference gives for every output, by the precision of keys and values."""
    found = {}
    for halves in (True, False):
        exam = examination(halves)
        dense = {
            name: np.asarray(dequantise_planes(s.target, dict(s.planes(0, s.shape[0]))), np.float32).reshape(s.shape)
            for name, s in exam.sources.items()
        }
        states = {name: array.copy() for name, array in exam.states.items()}
        env = reference.run(exam.program, dense | states, exam.block)
        found[precision(halves)] = {v.name: digest(env[v.name]) for v in exam.program.by_role(Role.OUTPUT)}
    return found


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps(answers(), indent=1) + "\n", encoding="utf-8")
