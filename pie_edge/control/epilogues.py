"""Passes of one step that share an epilogue: their inputs in one call, and its outputs taken apart again."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pie_edge.control.batch import Batch, Readout
from pie_edge.control.queue import HostTensor
from pie_edge.errors import EpilogueError
from pie_edge.program.node_types import TensorType
from pie_edge.sampling import Epilogue

NOWHERE = 0xFFFFFFFF
"""The slot of a token that isn't kept."""


@dataclass(frozen=True, slots=True)
class Group:
    """Readouts whose epilogues have one digest. ``positions`` and ``draw_keys`` are those of their rows, in order; ``slots`` is
    where each pass keeps its token for a next one."""

    epilogue: Epilogue
    readouts: tuple[Readout, ...]
    positions: tuple[int, ...]
    draw_keys: tuple[int, ...]
    slots: tuple[int | None, ...]

    @property
    def keeps(self) -> bool:
        """Whether one of the passes keeps its token for a next one."""
        return any(slot is not None for slot in self.slots)

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
            "rows": words([r.first + i for r in self.readouts for i in range(r.count)], rows),
            "positions": words(self.positions, rows),
            "draw_keys": words(self.draw_keys, 2 * rows),
        }
        if self.keeps:
            found["slots"] = words((NOWHERE if slot is None else slot for slot in self.slots), self.capacity)
        for index, parameter in enumerate(self.epilogue.parameters):
            given = b"".join(readout.part.work.parameters[index] for readout in self.readouts)
            found[f"param{index}"] = memoryview(given.ljust(nbytes(parameter) * self.capacity, b"\0"))
        return found

    def split(self, outputs: Mapping[str, memoryview]) -> dict[Readout, tuple[HostTensor, ...]]:
        """Each readout's part of every output."""
        found: dict[Readout, tuple[HostTensor, ...]] = {}
        for index, readout in enumerate(self.readouts):
            tensors = []
            for number, (dtype, shape) in enumerate(self.epilogue.outputs):
                size = _product(shape)
                data = outputs[f"out{number}"][index * size : (index + 1) * size]
                tensors.append(HostTensor(str(dtype), tuple(shape), data))
            found[readout] = tuple(tensors)
        return found


def group(step: Batch) -> list[Group]:
    """The step's readouts by epilogue digest; those without one are in no group."""
    by_digest: dict[str, list[Readout]] = {}
    for readout in step.readouts:
        if readout.part.work.epilogue is not None:
            by_digest.setdefault(readout.part.work.epilogue.digest, []).append(readout)
    return [_group(readouts, step) for readouts in by_digest.values()]


def _group(readouts: Sequence[Readout], step: Batch) -> Group:
    epilogue = readouts[0].part.work.epilogue
    assert epilogue is not None
    rows = [row for readout in readouts for row in range(readout.first, readout.first + readout.count)]
    positions = tuple(step.inputs.positions[step.inputs.sample_rows[row]] for row in rows)
    keys = tuple(key for row in rows for key in step.inputs.draw_keys[2 * row : 2 * row + 2])
    slots = tuple(readout.part.work.slot for readout in readouts)
    return Group(epilogue, tuple(readouts), positions, keys, slots)


def check_parameters(epilogue: Epilogue, given: Sequence[bytes], who: str) -> None:
    """Each parameter is there and as long as its type says; else EpilogueError."""
    if len(given) != len(epilogue.parameters):
        raise EpilogueError(
            f"{who}'s epilogue takes {len(epilogue.parameters)} parameters, the pass gives {len(given)}"
        )
    for index, (parameter, data) in enumerate(zip(epilogue.parameters, given, strict=True)):
        if len(data) != nbytes(parameter):
            raise EpilogueError(
                f"{who}'s epilogue takes {parameter} as parameter {index}, {nbytes(parameter)} bytes; "
                f"the pass gives {len(data)}"
            )


def words(values: Iterable[int], count: int) -> memoryview:
    """``count`` little-endian u32 words, zeros after the values."""
    filled = array("I", values)
    filled.extend([0] * (count - len(filled)))
    return memoryview(filled).cast("B")


def nbytes(tensor: TensorType) -> int:
    dtype, shape = tensor
    return _product(shape) * dtype.storage.nbytes


def _product(shape: Iterable[int]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total
