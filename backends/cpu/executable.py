"""Compiled Programs: model Programs as instructions in linear memory, epilogues in NumPy over the same memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from pie_edge.backend import BytesLike
from pie_edge.backends.cpu.crew import Crew
from pie_edge.backends.cpu.instructions import HEADER_BYTES, INSTRUCTION_BYTES, Span, encode
from pie_edge.backends.cpu.lowering import CONSTANTS, Lowering, lower
from pie_edge.backends.cpu.memory import LinearMemory, Region
from pie_edge.backends.cpu.weights import Format, Weight
from pie_edge.backends.shared.host_epilogue import DTYPES, HostEpilogue
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Op, Program, Role, Value
from pie_edge.program.plan import arena

_STEP = "step"

Outputs = dict[str, memoryview]
Buffers = Mapping[str, Region | Weight]


class Arena:
    """Temporaries and working memory of all Programs: one runs at a time, so they share it."""

    def __init__(self, memory: LinearMemory) -> None:
        self._memory = memory
        self._region = Region(0, 0)

    def growth(self, nbytes: int) -> int:
        """What reserving so much would allocate."""
        return max(nbytes, 2 * self._region.nbytes) if nbytes > self._region.nbytes else 0

    def reserve(self, nbytes: int) -> int:
        """An offset with ``nbytes`` free behind it. Programs compiled before keep the smaller arena that they know."""
        if nbytes > self._region.nbytes:
            self._region = self._memory.allocate(self.growth(nbytes), "temporaries")
        return self._region.offset


@dataclass(frozen=True)
class ModelExecutable:
    """A Program of table ops, placed in linear memory."""

    program: Program
    inputs: Mapping[str, Span]
    """Where each input lies; a step's block is all of them in order."""
    address: int
    outputs: Mapping[str, int]
    region: Region
    """Its own memory: code, constants, inputs and outputs."""

    def check(self, inputs: Mapping[str, BytesLike]) -> None:
        _check_inputs(self.program, inputs, allow_step=True)

    def run(self, memory: LinearMemory, crew: Crew, inputs: Mapping[str, bytes]) -> Outputs:
        for name, data in inputs.items():
            offset = next(iter(self.inputs.values())).offset if name == _STEP else self.inputs[name].offset
            memory.view(offset, len(data))[:] = data
        crew.run(self.address)
        return {name: _copied(memory, offset, self.program.values[name]) for name, offset in self.outputs.items()}


@dataclass(frozen=True)
class EpilogueExecutable:
    """A Program of nodes, run by NumPy on views of linear memory."""

    program: Program
    epilogue: HostEpilogue
    states: Mapping[str, NDArray[Any]]

    def check(self, inputs: Mapping[str, BytesLike]) -> None:
        _check_inputs(self.program, inputs, allow_step=False)

    def run(self, memory: LinearMemory, crew: Crew, inputs: Mapping[str, bytes]) -> Outputs:
        return self.epilogue.run(self.states, inputs)


AnyExecutable = ModelExecutable | EpilogueExecutable


def compile_program(
    program: Program, buffers: Buffers, memory: LinearMemory, shared: Arena, threads: int
) -> AnyExecutable:
    """Raises Unsupported for what the kernels lack, OutOfMemory, and ValueError for buffers that don't fit the Program."""
    _check_buffers(program, buffers)
    if any(op.kind.startswith(PREFIX) for op in program.ops):
        return _epilogue(program, buffers, memory)
    weights = {name: buffer for name, buffer in buffers.items() if isinstance(buffer, Weight)}
    return _place(lower(program, weights), buffers, memory, shared, threads)


def _epilogue(program: Program, buffers: Buffers, memory: LinearMemory) -> EpilogueExecutable:
    made = HostEpilogue(program, "cpu")
    states = {}
    for value in program.by_role(Role.STATE):
        region = buffers[value.name]
        assert isinstance(region, Region)
        states[value.name] = memory.array(region.offset, DTYPES[value.dtype], value.shape)
    return EpilogueExecutable(program, made, states)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a Program: its temporaries, and what belongs to it alone."""

    arena: int
    own: int


def sizes(program: Program, threads: int) -> Sizes:
    """Of a model Program, before anything of it is there."""
    nowhere = Region(0, 0)
    weights = {
        value.name: Weight(value, nowhere, Format.of(value) if len(value.shape) == 2 else None)
        for value in program.by_role(Role.WEIGHT)
    }
    low = lower(program, weights)
    return Sizes(arena(_arena_program(low)).nbytes + threads * _stride(low), _own_layout(low)[1])


def _stride(low: Lowering) -> int:
    """Scratch of a thread."""
    return -(-max((i.scratch for i in low.instructions), default=0) // 64) * 64


def _place(low: Lowering, buffers: Buffers, memory: LinearMemory, shared: Arena, threads: int) -> ModelExecutable:
    """Find a place for everything, and write the instructions."""
    program = low.program
    plan = arena(_arena_program(low))
    stride = _stride(low)
    base = shared.reserve(plan.nbytes + threads * stride)
    temporaries = {**program.values, **low.temporaries}
    spans = {name: Span(base + offset, temporaries[name].nbytes) for name, offset in plan.offsets.items()}
    for value in program.values.values():
        if value.role in (Role.WEIGHT, Role.STATE):
            buffer = buffers[value.name]
            region = buffer.region if isinstance(buffer, Weight) else buffer
            spans[value.name] = Span(region.offset, region.nbytes)
    spans |= {name: spans[state] for name, state in low.aliases.items()}
    region, own = _own_spans(low, memory)
    spans |= own
    code = encode(low.instructions, spans, base + plan.nbytes, stride)
    memory.view(own[_CODE].offset, len(code))[:] = code
    memory.view(own[CONSTANTS].offset, len(low.constants))[:] = low.constants
    inputs = {value.name: own[value.name] for value in program.by_role(Role.INPUT)}
    outputs = {value.name: own[value.name].offset for value in program.by_role(Role.OUTPUT)}
    return ModelExecutable(program, inputs, own[_CODE].offset, outputs, region)


_CODE = "#code"


def _own_spans(low: Lowering, memory: LinearMemory) -> tuple[Region, dict[str, Span]]:
    """One region for what belongs to the executable."""
    spans, end = _own_layout(low)
    region = memory.allocate(end, f"program {low.program.name}")
    return region, {name: Span(region.offset + span.offset, span.nbytes) for name, span in spans.items()}


def _own_layout(low: Lowering) -> tuple[dict[str, Span], int]:
    """Code, constants, inputs as one block, outputs; and the bytes of all."""
    sizes = {_CODE: HEADER_BYTES + INSTRUCTION_BYTES * len(low.instructions), CONSTANTS: len(low.constants)}
    sizes |= {value.name: value.nbytes for value in low.program.by_role(Role.INPUT)}
    sizes |= {value.name: value.nbytes for value in low.program.by_role(Role.OUTPUT)}
    offsets, end = {}, 0
    for name, nbytes in sizes.items():
        packed = name in low.program.values and low.program.values[name].role is Role.INPUT
        end = end if packed else -(-end // 64) * 64
        offsets[name], end = end, end + nbytes
    return {name: Span(offsets[name], nbytes) for name, nbytes in sizes.items()}, end


def _arena_program(low: Lowering) -> Program:
    """The instructions as a Program, for the planner: what lies elsewhere is no temporary of it."""
    values = {**low.program.values, **low.temporaries}
    for name in low.aliases:
        values[name] = replace(values[name], role=Role.STATE)
    ops = tuple(Op(i.kernel, i.reads, i.writes) for i in low.instructions)
    return Program(low.program.name, values, ops)


def _check_buffers(program: Program, buffers: Buffers) -> None:
    for value in program.values.values():
        if value.role not in (Role.WEIGHT, Role.STATE):
            continue
        buffer = buffers.get(value.name)
        if buffer is None:
            raise ValueError(f"program {program.name} needs a buffer for {value}; given are {', '.join(buffers)}")
        if isinstance(buffer, Weight) is not (value.role is Role.WEIGHT):
            raise ValueError(
                f"program {program.name}: {value} was given {'a weight' if isinstance(buffer, Weight) else 'a state'}"
            )
        if isinstance(buffer, Weight) and (buffer.value.shape, buffer.value.encoding) != (value.shape, value.encoding):
            raise ValueError(f"program {program.name} wants {value}; loaded is {buffer.value}")
        if isinstance(buffer, Region) and buffer.nbytes < value.nbytes:
            raise ValueError(
                f"program {program.name}: {value} takes {value.nbytes} bytes, its buffer has {buffer.nbytes}"
            )


def _check_inputs(program: Program, inputs: Mapping[str, BytesLike], *, allow_step: bool) -> None:
    wanted = {value.name: value.nbytes for value in program.by_role(Role.INPUT)}
    if allow_step and _STEP in inputs:
        wanted = {_STEP: sum(wanted.values())}
    given = {name: memoryview(data).nbytes for name, data in inputs.items()}
    if given != wanted:
        raise ValueError(f"program {program.name} takes inputs of {wanted} bytes; given are {given}")


def _copied(memory: LinearMemory, offset: int, value: Value) -> memoryview:
    return memoryview(memory.array(offset, DTYPES[value.dtype], (value.size,)).copy())
