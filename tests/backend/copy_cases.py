"""Copies between pages and between tokens: what a device holds afterwards, against the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pie_edge.backend import Backend
from pie_edge.program import reference
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Program, Role, Value
from pie_edge.program.trace import copy_program
from tests.backend.device import put

PAGES, PAGE = 9, 8
SHAPES = {"k": (PAGES, 2, 4, PAGE, 4), "v": (PAGES, 2, PAGE, 16), "key_positions": (PAGES, PAGE)}
CAPACITY = 16

PAIRS: dict[str, tuple[bool, list[tuple[int, int]]]] = {
    "one page": (False, [(3, 5)]),
    "several pages": (False, [(3, 5), (3, 1), (2, 8)]),
    "no page": (False, []),
    "one token": (True, [(9, 33)]),
    "tokens of one page, overlapping": (True, [(8, 9), (9, 10), (10, 11)]),
    "tokens, swapped": (True, [(12, 70), (70, 12)]),
    "as many tokens as there is room for": (True, [(i, 40 + i) for i in range(CAPACITY)]),
}


def states() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    found = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    found["key_positions"] = rng.integers(0, 1000, SHAPES["key_positions"]).astype(np.uint32)
    return found


def program(slots: bool) -> Program:
    values = [
        Value(name, Role.STATE, DType.U32 if len(shape) == 2 else DType.F32, shape) for name, shape in SHAPES.items()
    ]
    return copy_program(values, CAPACITY, slots=slots)


def inputs(pairs: Sequence[tuple[int, int]]) -> dict[str, np.ndarray]:
    padded = [*pairs, *[(0, 0)] * (CAPACITY - len(pairs))]
    sources, targets = (np.array(column, np.uint32) for column in zip(*padded, strict=True))
    return {"counts": np.array([len(pairs)], np.uint32), "sources": sources, "targets": targets}


def expected(slots: bool, pairs: Sequence[tuple[int, int]]) -> dict[str, np.ndarray]:
    held = states()
    copied(program(slots), inputs(pairs), held)
    return held


def copied(program: Program, given: Mapping[str, np.ndarray], held: Mapping[str, np.ndarray]) -> None:
    """What a Program of copies makes of states."""
    for op in program.ops:
        reference._MEANING[op.kind](op, *(given[name] for name in op.inputs), held[op.outputs[0]])


async def check(backend: Backend, name: str) -> None:
    """A pair of ``PAIRS`` against the reference."""
    slots, pairs = PAIRS[name]
    held = states()
    buffers = {key: await put(backend, array) for key, array in held.items()}
    compiled = await backend.compile(program(slots), buffers)
    backend.run(compiled, {key: array.tobytes() for key, array in inputs(pairs).items()})
    ticket = backend.download([(buffers[key], 0, array.nbytes) for key, array in held.items()])
    found = list((await backend.read(ticket)).values())
    for data, (key, array) in zip(found, expected(slots, pairs).items(), strict=True):
        np.testing.assert_array_equal(np.frombuffer(data, array.dtype).reshape(array.shape), array, err_msg=key)
    for buffer in buffers.values():
        backend.free(buffer)
