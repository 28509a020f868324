"""Recurrent state on the remembering device: a number that follows from all tokens in their order, and tails of tokens.

It is kept in the slots that a step names, moved by the same copies, and lost in the same ways as a real model's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pie_edge.program.ops import Program, Value

Key = tuple[int, int]
"""(token, position)"""


def advance(state: int, key: Key) -> int:
    """What a state is after one more token."""
    return (state * 1000003 + 31 * key[0] + 17 * key[1] + 7) & 0xFFFFFFFF


def convolved(keys: Sequence[Key]) -> int:
    """What a convolution makes of the last tokens, the latest one last."""
    return sum(3**back * (31 * token + 17 * position + 7) for back, (token, position) in enumerate(reversed(keys)))


def remembered(keys: Sequence[Key], kernel: int, *, recurs: bool) -> int:
    """What of an answer comes from recurrent state, after all these tokens."""
    state = 0
    for key in keys:
        state = advance(state, key)
    return convolved(keys[-kernel:]) + (state if recurs else 0)


@dataclass(frozen=True)
class Places:
    """Which states of a Program are looked at."""

    kernel: int
    tail: Value
    state: Value | None
    """None where nothing follows from all tokens."""


def places_of(program: Program) -> Places | None:
    convolution = next((op for op in program.ops if op.kind == "short_conv"), None)
    if convolution is None:
        return None
    delta = next((op for op in program.ops if op.kind == "gated_delta"), None)
    state = None if delta is None else program.values[delta.outputs[1]]
    return Places(program.values[convolution.inputs[1]].shape[1], program.values[convolution.inputs[2]], state)


class Recurrence:
    """One step's part: gives each row what its state adds to its answer, and leaves the slots as the step does."""

    def __init__(self, places: Places, memories: Mapping[str, Any], step: Mapping[str, memoryview]) -> None:
        self._places = places
        self._tail = memories[places.tail.name].data
        self._state = None if places.state is None else memories[places.state.name].data
        self._step = step

    def run(self, keys: Sequence[Key]) -> list[int]:
        starts = self._step["query_starts"].tolist()
        sequences = self._step["counts"][1]
        self._check(sequences)
        return [found for s in range(sequences) for found in self._sequence(s, list(keys[starts[s] : starts[s + 1]]))]

    def _check(self, sequences: int) -> None:
        """No sequence reads or writes a slot that another one writes."""
        slots = [self._step["state_slots"][3 * s : 3 * s + 3].tolist() for s in range(sequences)]
        written = [slot for _, home, fold in slots for slot in {home, fold} - {0}]
        assert len(written) == len(set(written)), f"two sequences of a step write one slot: {slots}"
        assert all(home for _, home, _ in slots), slots
        for s, (source, _, _) in enumerate(slots):
            others = {slot for other, (_, home, fold) in enumerate(slots) if other != s for slot in (home, fold)}
            assert source == 0 or source not in others, f"a sequence reads what another one writes: {slots}"

    def _sequence(self, number: int, rows: list[Key]) -> Iterator[int]:
        source, home, fold = self._step["state_slots"][3 * number : 3 * number + 3].tolist()
        start, replayed, folded = self._step["state_spans"][3 * number : 3 * number + 3].tolist()
        kernel, length = self._places.kernel, self._places.tail.shape[1]
        before = {place: self._kept(home, place) for place in range(max(start - length, 0), start)}
        state = self._get(source) if source else 0
        if fold and not folded:
            self._put(fold, state)
        for done, place in enumerate(range(start - replayed, start + len(rows)), 1):
            if place >= start:
                before[place] = rows[place - start]
            state = advance(state, before[place])
            if fold and done == folded:
                self._put(fold, state)
            if place >= start:
                self._keep(home, place, rows[place - start])
                seen = [before[at] for at in range(max(place - kernel + 1, 0), place + 1)]
                yield convolved(seen) + (0 if self._state is None else state)
        self._put(home, state)

    def _get(self, slot: int) -> int:
        return 0 if self._state is None else int(struct.unpack_from("<I", self._state, self._at(slot))[0])

    def _put(self, slot: int, state: int) -> None:
        if self._state is not None:
            struct.pack_into("<I", self._state, self._at(slot), state)

    def _at(self, slot: int) -> int:
        assert self._places.state is not None
        return slot * (self._places.state.nbytes // self._places.state.shape[0])

    def _kept(self, slot: int, place: int) -> Key:
        token, position = struct.unpack_from("<II", self._tail, self._row(slot, place))
        return token, position

    def _keep(self, slot: int, place: int, key: Key) -> None:
        struct.pack_into("<II", self._tail, self._row(slot, place), *key)

    def _row(self, slot: int, place: int) -> int:
        _, length, columns = self._places.tail.shape
        return (slot * length + place % length) * columns * 4
