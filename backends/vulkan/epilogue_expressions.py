"""Scalar expressions as SPIR-V: each operation an instruction, each memory an array of words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pie_edge.backends.shared.epilogue_expressions import needed
from pie_edge.backends.vulkan.epilogue_instructions import CONVERSIONS, EXTENDED, INSTRUCTIONS
from pie_edge.backends.vulkan.spirv import Assembler, Op, Storage
from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.kernel import Store
from pie_edge.sampling.dialects.scalar import BOOL, F32, I32, U32, Memory, Scalar

MEMORIES = (Memory.LOGITS, Memory.HIDDEN, Memory.INPUTS, Memory.ARENA, Memory.OUTPUTS)
"""What a fused kernel is bound to, in order."""
WRITABLE = (Memory.ARENA, Memory.OUTPUTS)


class Expressions:
    """What has been computed so far, by expression. ``starts`` has the word where each value begins in its memory.

    ``leaves`` and ``reduced`` are the ids of what expressions start from; whoever writes the kernel sets them.
    """

    def __init__(self, assembler: Assembler, starts: Mapping[str, int]) -> None:
        self.assembler = a = assembler
        self.types = {F32: a.f32, I32: a.u32, U32: a.u32, BOOL: a.bool}
        self.leaves: dict[str, int] = {}
        self.reduced: dict[int, int] = {}
        self._starts = starts
        self._buffers = {memory: a.storage_buffer(number, memory in WRITABLE) for number, memory in enumerate(MEMORIES)}
        self._known: dict[Scalar, int] = {}

    def value(self, scalar: Scalar) -> int:
        self.compute(needed((scalar,)))
        return self._known[scalar]

    def compute(self, scalars: Iterable[Scalar]) -> None:
        """In order: arguments come before what uses them."""
        for scalar in scalars:
            if scalar not in self._known:
                self._known[scalar] = self._computed(scalar)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside a block can't be used after it."""
        outside = dict(self._known)
        yield
        self._known = outside

    def store(self, stores: Iterable[Store]) -> None:
        a = self.assembler
        for store in stores:
            word = self.as_word(self.value(store.value), store.value.element)
            a.store(self._place(store.memory, self.value(store.offset)), word)

    def input_word(self, name: str) -> int:
        """The first word of an input."""
        return self._read(Memory.INPUTS, self.assembler.constant_u32(self._starts[name]))

    def constant(self, element: Element, value: float) -> int:
        if element is F32:
            return self.assembler.constant_f32(value)
        return self.assembler.constant_bool(bool(value)) if element is BOOL else self.assembler.constant_u32(int(value))

    def as_word(self, value: int, element: Element) -> int:
        a = self.assembler
        if element is BOOL:
            return a.result(Op.SELECT, a.u32, value, a.constant_u32(1), a.constant_u32(0))
        return a.result(Op.BITCAST, a.u32, value) if element is F32 else value

    def from_word(self, word: int, element: Element) -> int:
        return self.assembler.result(Op.BITCAST, self.assembler.f32, word) if element is F32 else word

    def _computed(self, scalar: Scalar) -> int:
        a, op, element = self.assembler, scalar.op, scalar.element
        arguments = [self._known[argument] for argument in scalar.arguments]
        match op:
            case "constant":
                return self.constant(element, scalar.datum)
            case "start":
                return a.constant_u32(self._starts[scalar.datum])
            case "reduced":
                return self.reduced[scalar.datum]
            case "hidden":
                # There are fewer than 2³¹ passes.
                passes = self.input_word("counts")
                return a.result(Op.SHIFT_RIGHT_LOGICAL, a.u32, passes, a.constant_u32(31))
            case "load":
                return self.from_word(self._read(scalar.datum, arguments[0]), element)
            case "select":
                return a.result(Op.SELECT, self.types[element], *arguments)
            case "bits" | "convert":
                return self._retyped(scalar, arguments[0])
        if not arguments:
            return self.leaves[op]
        key = op, scalar.arguments[0].element
        if key in EXTENDED:
            return a.extended(EXTENDED[key], self.types[element], *arguments)
        make = a.exact if element is F32 and len(arguments) == 2 else a.result
        return make(INSTRUCTIONS[key], self.types[element], *arguments)

    def _retyped(self, scalar: Scalar, argument: int) -> int:
        source, target = scalar.arguments[0].element, scalar.element
        if scalar.op == "convert":
            return self.assembler.result(CONVERSIONS[source, target], self.types[target], argument)
        if self.types[source] == self.types[target]:
            return argument
        return self.assembler.result(Op.BITCAST, self.types[target], argument)

    def _read(self, memory: Memory, offset: int) -> int:
        return self.assembler.load(self._place(memory, offset), self.assembler.u32)

    def _place(self, memory: Memory, offset: int) -> int:
        a = self.assembler
        return a.element(Storage.STORAGE_BUFFER, self._buffers[memory], a.constant_u32(0), offset)
