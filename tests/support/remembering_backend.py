"""A device whose keys are the tokens themselves: an answer is a hash of all that its row may see. Whoever sees a token too many
or too few, a stale page, or another's, notices it. It moves pages as real devices do, and takes no time."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.null_backend import Compiled, NullBackend, Ran
from pie_edge.backend import BytesLike
from pie_edge.program.ops import Program, Role
from tests.support.counting_backend import step_fields
from tests.support.remembering_states import Recurrence, places_of

Seen = Iterable[tuple[int, int]]
"""(token, position) of each place."""


def answer(seen: Seen, vocabulary: int, remembered: int = 0) -> int:
    """What follows the places that a row sees, in whatever order they lie, and what recurrent state adds."""
    return (sum((31 * token + 17 * position + 7) ** 2 for token, position in seen) + remembered) % vocabulary


@dataclass(eq=False)
class Memory:
    data: bytearray

    @property
    def nbytes(self) -> int:
        return len(self.data)


class RememberingBackend(NullBackend):
    """Runs model steps, copies of pages and tokens, and epilogues that are one greedy token. The first eight bytes of a token's
    key are the token and its position. A row sees the last ``window`` positions, or all. ``fail_next`` makes the next step's read
    raise it."""

    def __init__(self, vocabulary: int, page_size: int, window: int = 0) -> None:
        super().__init__()
        self._window = window
        self.fail_next: Exception | None = None
        self._vocabulary = vocabulary
        self._page_size = page_size
        self._answers: list[int] = []
        self._kept: dict[int, int] = {}

    async def allocate(self, nbytes: int, role: Role) -> Memory:  # type: ignore[override]
        return Memory(bytearray(nbytes))

    def write(self, buffer: Any, data: BytesLike, offset: int = 0) -> None:
        buffer.data[offset : offset + len(data)] = data

    def download(self, spans: Sequence[tuple[Any, int, int]]) -> Ran:
        parts = [memoryview(bytes(buffer.data[offset : offset + nbytes])) for buffer, offset, nbytes in spans]
        return Ran({str(index): part for index, part in enumerate(parts)}, self._end)

    async def compile(self, program: Program, buffers: Mapping[str, Any]) -> Any:
        compiled = await super().compile(program, buffers)
        return _Bound(compiled, {v.name: buffers[v.name] for v in program.by_role(Role.STATE)})

    def run(self, executable: Any, inputs: Mapping[str, BytesLike]) -> Ran:
        ran = super().run(executable.compiled, inputs)
        program: Program = executable.compiled.program
        if "step" in inputs:
            self._step(program, executable, memoryview(inputs["step"]).cast("I"))
            return ran
        given = {name: memoryview(data).cast("I") for name, data in inputs.items()}
        if program.name.startswith("copy-"):
            self._copy(program, executable, given)
            return ran
        # Unused rows name the first: it is computed for nothing.
        best = array("I", [self._answers[row] for row in given["rows"]])
        for index in range(given["counts"][0] if "kept0" in given else 0):
            self._kept[given["kept0"][index]] = best[index]
        # A distribution has its ids first, each row's likeliest first; of these only that one is right.
        width = program.values["out0"].nbytes // 4 // len(best)
        ids = array("I", [token for token in best for _ in range(width)])
        return Ran({**ran.outputs, "out0": memoryview(ids)}, ran.end)

    async def read(self, ticket: Any) -> Mapping[str, memoryview]:
        found = await super().read(ticket)
        failure, self.fail_next = self.fail_next, None
        if failure is not None:
            raise failure
        return found

    def _copy(self, program: Program, executable: _Bound, given: Mapping[str, memoryview]) -> None:
        for index in range(given["counts"][0]):
            source, target = given["sources"][index], given["targets"][index]
            if program.name.startswith("copy-slots"):
                executable.put(target, self._page_size, executable.get(source, self._page_size))
            else:
                executable.copy(source, target)

    def _step(self, program: Program, executable: _Bound, block: memoryview) -> None:
        step = step_fields(program, block)
        rows, sequences, sampled, _ = step["counts"]
        written = step["write_slots"][:rows].tolist()
        if len(set(written)) != rows or min(written) < self._page_size:
            raise AssertionError(f"two rows of a step are written to one slot, or one to page 0: {written}")
        sources = memoryview(step["token_src"].tobytes()).cast("i")
        tokens = [source if source >= 0 else self._kept[-1 - source] for source in sources[:rows]]
        keys = list(zip(tokens, step["positions"][:rows].tolist(), strict=True))
        for slot, key in zip(written, keys, strict=True):
            executable.put(slot, self._page_size, key)
        places = places_of(program)
        added = [0] * rows if places is None else Recurrence(places, executable.states, step).run(keys)
        starts = step["query_starts"].tolist()
        of = {row: s for s in range(sequences) for row in range(starts[s], starts[s + 1])}
        self._answers = [
            answer(self._seen(step, executable, of[row], row), self._vocabulary, added[row])
            for row in step["sample_rows"][:sampled].tolist()
        ]

    def _seen(self, step: Mapping[str, memoryview], executable: _Bound, sequence: int, row: int) -> Seen:
        size = self._page_size
        first, last = step["page_starts"][sequence], step["page_starts"][sequence + 1]
        mask = step["mask_starts"][sequence] if "mask_starts" in step else 0
        for entry in range(first, last):
            bits = step["page_bits"][entry]
            if mask:
                own = row - step["query_starts"][sequence]
                bits &= step["mask"][mask - 1 + own * (last - first) + entry - first]
            for slot in range(size):
                later = step["fresh_bits"][entry] >> slot & 1 and (entry - first) * size + slot > step["row_index"][row]
                if bits >> slot & 1 and not later:
                    token, position = executable.get(step["pages"][entry] * size + slot, size)
                    if not self._window or step["positions"][row] - position < self._window:
                        yield token, position


@dataclass(eq=False)
class _Bound:
    compiled: Compiled
    states: Mapping[str, Memory]

    @property
    def program(self) -> Program:
        return self.compiled.program

    def get(self, slot: int, page_size: int) -> tuple[int, int]:
        memory, offset = self._place(slot, page_size)
        token, position = struct.unpack_from("<II", memory, offset)
        return token, position

    def put(self, slot: int, page_size: int, key: tuple[int, int]) -> None:
        memory, offset = self._place(slot, page_size)
        struct.pack_into("<II", memory, offset, *key)

    def copy(self, source: int, target: int) -> None:
        """A page, or slot, of all states."""
        for name, memory in self.states.items():
            size = memory.nbytes // self.program.values[name].shape[0]
            memory.data[target * size : (target + 1) * size] = memory.data[source * size : (source + 1) * size]

    def _place(self, slot: int, page_size: int) -> tuple[bytearray, int]:
        """A slot's eight bytes in the first keys: its page, and there its own share."""
        name = next(name for name in self.states if name.startswith("k."))
        page, own = divmod(slot, page_size)
        return self.states[name].data, page * (self.states[name].nbytes // self.program.values[name].shape[0]) + own * 8
