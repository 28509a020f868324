"""Epilogues run by NumPy, where the device's memory is the host's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.errors import Unsupported
from pie_edge.program.encodings import DType
from pie_edge.program.node_reference import MEANINGS, NodeRunner
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Program, Role

DTYPES: Mapping[DType, np.dtype[Any]] = {
    DType.F32: np.dtype("<f4"),
    DType.U32: np.dtype("<u4"),
    DType.I32: np.dtype("<i4"),
    DType.U8: np.dtype("u1"),
}


class HostEpilogue:
    """A Program of nodes made ready to run many times."""

    def __init__(self, program: Program, title: str) -> None:
        """Raises Unsupported for what is no node that NumPy knows."""
        for op in program.ops:
            if op.kind.removeprefix(PREFIX) not in MEANINGS or not op.kind.startswith(PREFIX):
                raise Unsupported(
                    f"epilogue {program.name} has a node {op.kind!r}, which the {title} backend doesn't know"
                )
        self.program = program
        self._runner = NodeRunner(program)

    def run(
        self, states: Mapping[str, NDArray[Any]], inputs: Mapping[str, bytes | memoryview]
    ) -> dict[str, memoryview]:
        """Its outputs, flat. The pool of tokens is changed where it lies."""
        given = {
            value.name: np.frombuffer(inputs[value.name], DTYPES[value.dtype]).reshape(value.shape)
            for value in self.program.by_role(Role.INPUT)
        }
        found = self._runner({**states, **given})
        # A result may be a view of a state, which the next step overwrites.
        return {name: memoryview(np.array(array).reshape(-1)) for name, array in found.items()}
