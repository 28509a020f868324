"""Running epilogues in tests: from a wire form and some passes to the NumPy reference's results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pie_edge.program.node_reference import run_nodes
from pie_edge.program.nodes import NODES
from pie_edge.program.ops import Program
from pie_edge.sampling import Epilogue
from tests.support.node_oracle import Pass, Plain

HIDDEN = 12
"""The width of tests' hidden states."""
NUMPY = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, "bool": np.bool_}


class Wire:
    """Writes a wire form node by node."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.outputs: list[Any] = []
        self._parameters = 0

    def add(self, op: str, *inputs: Any, line: str = "program.py:1", **attributes: Any) -> int:
        self.nodes.append({"op": op, "in": list(inputs), "attrs": attributes, "line": line})
        return len(self.nodes) - 1

    def parameter(self, dtype: str, shape: Sequence[int]) -> int:
        self._parameters += 1
        return self.add("param", index=self._parameters - 1, dtype=dtype, shape=list(shape))

    def text(self, *outputs: Any) -> str:
        result = "one" if len(outputs) == 1 else "tuple"
        return json.dumps({"v": 1, "nodes": self.nodes, "outputs": list(outputs), "result": result})


def check_results(found: Mapping[str, Any], program: Program, arrays: dict[str, Any]) -> None:
    """That they are the reference's."""
    expected = run_nodes(program, arrays)
    assert found.keys() == expected.keys()
    for name, want in expected.items():
        got = found[name]
        assert got.dtype == want.dtype
        if want.dtype == np.float32:
            np.testing.assert_allclose(got, want, rtol=3e-6, atol=3e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)


def arrays_of(epilogue: Epilogue, passes: Sequence[Pass], spare: int = 0) -> tuple[Program, dict[str, Any]]:
    """A Program with room for ``spare`` passes more, and its state and inputs. Rows of logits are laid out backwards, and those
    of hidden states after three of nobody's."""
    rows = [row for given in passes for row in given.logits]
    logits = np.asarray(rows[::-1], dtype=np.float32)
    capacity = len(passes) + spare
    program = epilogue.program(capacity * epilogue.rows, len(rows) + 5, hidden_rows=len(rows) + 3)
    arrays = {
        "logits": np.concatenate([logits, np.full((5, logits.shape[1]), np.nan, np.float32)]),
        "counts": np.asarray([len(passes)], np.uint32),
        "rows": padded(np.arange(len(rows), dtype=np.uint32)[::-1], spare * epilogue.rows),
        "positions": padded(
            np.asarray([p for given in passes for p in given.positions], np.uint32), spare * epilogue.rows
        ),
        "draw_keys": padded(np.asarray([s for given in passes for s in given.seeds], np.uint32), spare * epilogue.rows),
    }
    if epilogue.reads_hidden:
        hidden = np.asarray([row for given in passes for row in given.hidden], np.float32)
        arrays["hidden"] = np.concatenate([np.full((3, HIDDEN), np.nan, np.float32), hidden])
        arrays["hidden_rows"] = padded(np.arange(3, len(rows) + 3, dtype=np.uint32), spare * epilogue.rows)
    for number, (dtype, shape) in enumerate(epilogue.parameters):
        values = np.asarray([given.parameters[number].flat for given in passes], dtype=NUMPY[dtype])
        stored = values.view(np.uint8) if dtype == "bool" else values
        arrays[f"param{number}"] = padded(stored.reshape(len(passes), *shape), spare)
    return program, arrays


def run(epilogue: Epilogue, passes: Sequence[Pass], spare: int = 0) -> list[list[Plain]]:
    """Every pass's outputs, from one call with room for ``spare`` passes more."""
    program, arrays = arrays_of(epilogue, passes, spare)
    found = run_nodes(program, arrays)
    outputs: list[list[Plain]] = [[] for _ in passes]
    for number, (dtype, shape) in enumerate(epilogue.outputs):
        array = found[f"out{number}"]
        assert array.shape == (len(passes), *shape)
        assert array.dtype == NUMPY[dtype]
        for index, entry in enumerate(array):
            outputs[index].append(Plain(shape, entry.reshape(-1).tolist()))
    return outputs


def padded(array: Any, count: int) -> Any:
    """Entries past the true ones hold what must never be read."""
    return np.concatenate([array, np.full((count, *array.shape[1:]), 0xFE, array.dtype)])


def node_table() -> str:
    """The table of nodes in ``docs/epilogues.md``, from the table in the code."""
    lines = ["| node | operands | attributes | gives | meaning |", "|---|---|---|---|---|"]
    for kind in NODES.values():
        operands = ", ".join(f"{name}: {kind.domain if domain == 'T' else domain}" for name, domain in kind.operands)
        given = ", ".join(a.name if a.required else f"{a.name} = {a.default}" for a in kind.attributes)
        gives = ", ".join("same" if result == "T" else result for result in kind.results)
        lines.append(f"| `{kind.name}` | {operands} | {given} | {gives} | {kind.meaning.replace('|', '&#124;')} |")
    return "\n".join(lines) + "\n"


def random_arrays(
    epilogue: Epilogue, given: Sequence[tuple[str, Sequence[int], int]], passes: int, spare: int, seed: int
) -> tuple[Program, dict[str, Any]]:
    """A Program, and small whole numbers for its state and inputs; ``given`` has a parameter's dtype, shape and bound."""
    noise = np.random.default_rng(seed)
    rows = passes * epilogue.rows
    program = epilogue.program((passes + spare) * epilogue.rows, rows + 2)
    vocabulary = program.values["logits"].shape[1]
    logits = noise.integers(-20, 21, (rows + 2, vocabulary)).astype(np.float32)
    arrays = {
        "logits": logits,
        "counts": np.asarray([passes], np.uint32),
        "rows": padded(noise.permutation(rows + 2)[:rows].astype(np.uint32), spare * epilogue.rows),
        "positions": padded(noise.integers(0, 2**32, rows, dtype=np.uint32), spare * epilogue.rows),
        "draw_keys": padded(noise.integers(0, 2**32, (rows, 2), dtype=np.uint32), spare * epilogue.rows),
    }
    for number, (dtype, shape, bound) in enumerate(given):
        low = 0 if dtype in ("u32", "bool") else -bound
        values = noise.integers(low, bound + 1, (passes, *shape))
        arrays[f"param{number}"] = padded(values.astype(np.uint8 if dtype == "bool" else NUMPY[dtype]), spare)
    return program, arrays
