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
from pie_edge.backends.cuda import examination as cuda
from pie_edge.backends.metal import examination as metal
from pie_edge.backends.shared import examination
from pie_edge.backends.shared.selftest import Examination
from pie_edge.program import reference
from pie_edge.program.node_reference import run_nodes
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Role
from pie_edge.weights.widen import dequantise_planes
from tests.backend.copy_cases import copied


def answers() -> dict[Path, Mapping[str, Any]]:
    """What the references give for every output and every state that is looked at, by the file where it is kept and, but for
    cpu's, by the key there."""
    found: dict[Path, dict[str, Any]] = {cpu.ANSWERS: _outputs(cpu.examination())}
    for halves in (True, False):
        for paper in (examination.paper(halves), *cuda.papers(halves), *metal.papers(halves)):
            kept = found.setdefault(paper.answers, {})
            if paper.key not in kept:
                kept[paper.key] = _outputs(paper.exam)
    return dict(found)


def _outputs(exam: Examination) -> dict[str, list[float]]:
    names = [*(value.name for value in exam.program.by_role(Role.OUTPUT)), *exam.kept]
    computed = _computed(exam)
    return {name: exam.digest(computed[name]) for name in names}


def _computed(exam: Examination) -> Mapping[str, Any]:
    """By the reference of such a Program: an epilogue's, a model's, or that of copies."""
    states = {name: array.copy() for name, array in exam.states.items()}
    if any(op.kind.startswith(PREFIX) for op in exam.program.ops):
        arrays = states | _arrays(exam)
        return states | run_nodes(exam.program, arrays)
    if "step" not in exam.inputs:
        copied(exam.program, _arrays(exam), states)
        return states
    dense = {
        name: np.asarray(dequantise_planes(s.target, dict(s.planes(0, s.shape[0]))), np.float32).reshape(s.shape)
        for name, s in exam.sources.items()
    }
    return reference.run(exam.program, dense | states, exam.inputs["step"])


def _arrays(exam: Examination) -> dict[str, Any]:
    return {
        value.name: np.frombuffer(exam.inputs[value.name], reference.NUMPY[value.dtype]).reshape(value.shape)
        for value in exam.program.by_role(Role.INPUT)
    }


if __name__ == "__main__":
    for path, found in answers().items():
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
