"""A null device whose next token is a function of the token and its position: who gets another's token notices it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.null_backend import NullBackend, Ran
from pie_edge.backend import BytesLike
from pie_edge.program.ops import Program, Role


def next_token(token: int, position: int, vocabulary: int) -> int:
    return (31 * token + 17 * position + 7) % vocabulary


def greedy(prompt: Sequence[int], count: int, vocabulary: int) -> list[int]:
    """What a lone program makes of a prompt."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens[-1], len(tokens) - 1, vocabulary))
    return tokens[len(prompt) :]


class CountingBackend(NullBackend):
    """Runs model steps and epilogues that are one greedy token. ``steps`` are the sequences of each step."""

    def __init__(self, vocabulary: int, page_size: int, seconds: float = 0.0) -> None:
        super().__init__(seconds=seconds)
        self.steps: list[int] = []
        self._vocabulary = vocabulary
        self._page_size = page_size
        self._chosen: list[int] = []
        self._pool: dict[int, int] = {}

    def run(self, executable: Any, inputs: Mapping[str, BytesLike]) -> Ran:
        ran = super().run(executable, inputs)
        if "step" in inputs:
            self._model(step_fields(executable.program, memoryview(inputs["step"]).cast("I")))
            return ran
        given = {name: memoryview(data).cast("I") for name, data in inputs.items()}
        best = array("I", [self._chosen[given["rows"][index]] for index in range(given["counts"][0])])
        for slot, token in zip(given.get("kept0", ()), best, strict=False):
            self._pool[slot] = token
        return Ran({"out0": memoryview(best)}, ran.end)

    def _model(self, step: Mapping[str, memoryview]) -> None:
        rows, sequences, sampled, _ = step["counts"]
        written = step["write_slots"][:rows].tolist()
        if len(set(written)) != rows or min(written) < self._page_size:
            raise AssertionError(f"two rows of a step are written to one slot, or one to page 0: {written}")
        self.steps.append(sequences)
        sources = memoryview(step["token_src"].tobytes()).cast("i")
        tokens = [source if source >= 0 else self._pool[-1 - source] for source in sources[:rows]]
        self._chosen = [
            next_token(tokens[r], step["positions"][r], self._vocabulary) for r in step["sample_rows"][:sampled]
        ]


def step_fields(program: Program, block: memoryview) -> dict[str, memoryview]:
    """The step's fields, which lie one after the other."""
    found, offset = {}, 0
    for value in program.by_role(Role.INPUT):
        size = value.nbytes // 4
        found[value.name] = block[offset : offset + size]
        offset += size
    return found
