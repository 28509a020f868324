"""The answers of the cpu backend's self-test, from the reference. ``python -m tests.backend.selftest_answers`` writes them."""

from __future__ import annotations

import json

import numpy as np

from pie_edge.backends.cpu import selftest
from pie_edge.program import reference
from pie_edge.program.ops import Role
from pie_edge.weights.widen import dequantise_planes


def answers() -> dict[str, list[float]]:
    """A digest of every output."""
    exam = selftest.examination()
    weights = {
        name: np.asarray(dequantise_planes(s.target, dict(s.planes(0, 1 << 30))), np.float32).reshape(s.shape)
        for name, s in exam.sources.items()
    }
    states = {name: array.copy() for name, array in exam.states.items()}
    found = reference.run(exam.program, weights | states, exam.block)
    return {value.name: selftest.digest(found[value.name]) for value in exam.program.by_role(Role.OUTPUT)}


if __name__ == "__main__":
    selftest.ANSWERS.write_text(json.dumps(answers(), indent=1) + "\n", encoding="utf-8")
