"""Passes of one step that share an epilogue: their inputs in one call, and its outputs taken apart again."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pie_edge.control.batch import Batch, Readout
from pie_edge.control.cells import Cell
from pie_edge.control.queue import HostTensor
from pie_edge.errors import EpilogueError
from pie_edge.program.node_types import TensorType
from pie_edge.sampling import Epilogue

NOWHERE = 0xFFFFFFFF
"""A slot past the end of the device's pool."""


@dataclass(slots=True)
class Group:
    """Readouts whose epilogues have one digest. ``rows`` are theirs of the logits state, in order, ``hidden_rows`` those of the
    hidden states, with their ``positions`` and ``draw_keys``.

    ``kept`` are the outputs, by number, that some of the passes keep for later ones; ``taken`` the parameters that some of them
    take from the device's pool.
    """

    epilogue: Epilogue
    readouts: tuple[Readout, ...]
    rows: Sequence[int]
    hidden_rows: Sequence[int]
    positions: Sequence[int]
    draw_keys: Sequence[int]
    kept: tuple[int, ...]
    taken: tuple[int, ...]

    @property
    def capacity(self) -> int:
        """Passes of the Program that runs it: a power of eight, so that few are compiled."""
        size = 1
        while size < len(self.readouts):
            size *= 8
        return size

    def inputs(self) -> dict[str, memoryview]:
        """The inputs of ``sampling.lower`` by name, padded to the capacity."""
        rows = self.capacity * self.epilogue.rows
        found = {
            "counts": words([len(self.readouts)], 1),
            "rows": words(self.rows, rows),
            "positions": words(self.positions, rows),
            "draw_keys": words(self.draw_keys, 2 * rows),
        }
        if self.epilogue.reads_hidden:
            found["hidden_rows"] = words(self.hidden_rows, rows)
        works = [readout.part.work for readout in self.readouts]
        for number in self.kept:
            cells: list[object] = [work.cells.get(number) for work in works]
            found[f"kept{number}"] = self._slots(cells, _product(self.epilogue.outputs[number].shape))
        for number, parameter in enumerate(self.epilogue.parameters):
            given = [work.parameters[number] for work in works]
            name = f"given{number}" if number in self.taken else f"param{number}"
            found[name] = _joined(given, nbytes(parameter), self.capacity)
            if number in self.taken:
                found[f"slots{number}"] = self._slots(given, _product(parameter.shape))
        return found

    def _slots(self, cells: Sequence[object], size: int) -> memoryview:
        """Where the entries of each pass's cell are in the pool; past its end for what is no cell that is there."""
        slots: list[int] = []
        for cell in cells:
            slots += cell.slots if isinstance(cell, Cell) and cell.slots else (NOWHERE,) * size
        return words(slots, self.capacity * size)

    def split(self, outputs: Mapping[str, memoryview]) -> dict[Readout, tuple[HostTensor, ...]]:
        """Each readout's part of every output."""
        computed = [
            (str(dtype), shape, _product(shape), outputs[f"out{number}"])
            for number, (dtype, shape) in enumerate(self.epilogue.outputs)
        ]
        found: dict[Readout, tuple[HostTensor, ...]] = {}
        for index, readout in enumerate(self.readouts):
            tensors = []
            for dtype, shape, size, data in computed:
                tensors.append(HostTensor(dtype, shape, data[index * size : (index + 1) * size]))
            found[readout] = tuple(tensors)
        return found


def group(step: Batch) -> list[Group]:
    """The step's readouts by epilogue digest; those without one are in no group."""
    by_digest: dict[str, list[Readout]] = {}
    for readout in step.readouts:
        if readout.part.work.epilogue is not None:
            by_digest.setdefault(readout.part.work.epilogue.digest, []).append(readout)
    return [_group(readouts) for readouts in by_digest.values()]


def _group(readouts: Sequence[Readout]) -> Group:
    works = [readout.part.work for readout in readouts]
    epilogue = works[0].epilogue
    assert epilogue is not None
    rows = [row for one in readouts for row in range(one.first, one.first + one.count)]
    hidden = [row for one in readouts for row in range(one.hidden, one.hidden + one.hidden_count)]
    positions = [work.placement.positions[row] for work in works for row in work.rows]
    keys = [word for work in works for word in work.draw_key * len(work.rows)]
    kept = {number for work in works for number, cell in work.cells.items() if cell.slots}
    numbers = range(len(epilogue.parameters))
    taken = tuple(number for number in numbers if any(_is_there(work.parameters[number]) for work in works))
    return Group(epilogue, tuple(readouts), rows, hidden, positions, keys, tuple(sorted(kept)), taken)


def check_parameters(epilogue: Epilogue, given: Sequence[bytes | Cell], who: str) -> None:
    """Each parameter is there and as long as its type says, or a value of that type; else EpilogueError."""
    if len(given) != len(epilogue.parameters):
        raise EpilogueError(
            f"{who}'s epilogue takes {len(epilogue.parameters)} parameters, the pass gives {len(given)}"
        )
    for index, (parameter, data) in enumerate(zip(epilogue.parameters, given, strict=True)):
        if isinstance(data, Cell):
            if data.type != parameter:
                raise EpilogueError(
                    f"{epilogue.line_of_parameter(index)}{who}'s epilogue takes {parameter} as parameter {index}; the pass "
                    f"gives a value on the device of {data.type}"
                )
        elif len(data) != nbytes(parameter):
            raise EpilogueError(
                f"{who}'s epilogue takes {parameter} as parameter {index}, {nbytes(parameter)} bytes; "
                f"the pass gives {len(data)}"
            )


def check_kept(epilogue: Epilogue, kept: Sequence[tuple[int, TensorType]], who: str) -> None:
    """The outputs that are to be put into channels, by number, are of the channels' types; else EpilogueError."""
    for number, wanted in kept:
        if number >= len(epilogue.outputs):
            raise EpilogueError(
                f"{who} puts output {number} into a channel, of an epilogue that has {len(epilogue.outputs)}"
            )
        if epilogue.outputs[number] != wanted:
            raise EpilogueError(
                f"{epilogue.line_of_output(number)}{who} puts {epilogue.outputs[number]} into a channel of {wanted}; "
                "cast or reshape it"
            )


def _is_there(given: bytes | Cell) -> bool:
    return isinstance(given, Cell) and bool(given.slots)


def _joined(given: Sequence[bytes | Cell], each: int, capacity: int) -> memoryview:
    """The values of all passes, zeros for those that are on the device alone."""
    parts = [one if isinstance(one, bytes) else one.value or bytes(each) for one in given]
    return memoryview(b"".join(parts).ljust(each * capacity, b"\0"))


def words(values: Iterable[int], count: int) -> memoryview:
    """``count`` little-endian u32 words, zeros after the values."""
    filled = array("I", values)
    if len(filled) < count:
        filled.frombytes(bytes(filled.itemsize * (count - len(filled))))
    return memoryview(filled).cast("B")


def nbytes(tensor: TensorType) -> int:
    dtype, shape = tensor
    return _product(shape) * dtype.storage.nbytes


def _product(shape: Iterable[int]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total
