"""An assembler for SPIR-V: a module of one compute shader, word by word, with no compiler.

A module is a stream of 32-bit words in a prescribed order of sections. ``Assembler`` keeps the sections, hands out ids, and
makes each type and constant once; what it is told to emit goes to the body of ``main``. Numbers of instructions and
enumerants are those of the SPIR-V specification (Khronos, version 1.5, which Vulkan 1.2 takes).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

MAGIC, VERSION = 0x07230203, 0x00010500


class Op(IntEnum):
    EXTENSION_IMPORT = 11
    EXTENDED = 12
    MEMORY_MODEL = 14
    ENTRY_POINT = 15
    EXECUTION_MODE = 16
    CAPABILITY = 17
    TYPE_VOID = 19
    TYPE_BOOL = 20
    TYPE_INT = 21
    TYPE_FLOAT = 22
    TYPE_VECTOR = 23
    TYPE_ARRAY = 28
    TYPE_RUNTIME_ARRAY = 29
    TYPE_STRUCT = 30
    TYPE_POINTER = 32
    TYPE_FUNCTION = 33
    CONSTANT_TRUE = 41
    CONSTANT_FALSE = 42
    CONSTANT = 43
    FUNCTION = 54
    FUNCTION_END = 56
    VARIABLE = 59
    LOAD = 61
    STORE = 62
    ACCESS_CHAIN = 65
    DECORATE = 71
    MEMBER_DECORATE = 72
    COMPOSITE_EXTRACT = 81
    CONVERT_F_TO_U = 109
    CONVERT_F_TO_S = 110
    CONVERT_S_TO_F = 111
    CONVERT_U_TO_F = 112
    BITCAST = 124
    S_NEGATE = 126
    F_NEGATE = 127
    I_ADD = 128
    F_ADD = 129
    I_SUB = 130
    F_SUB = 131
    I_MUL = 132
    F_MUL = 133
    U_DIV = 134
    F_DIV = 136
    U_MOD = 137
    LOGICAL_EQUAL = 164
    LOGICAL_NOT_EQUAL = 165
    LOGICAL_OR = 166
    LOGICAL_AND = 167
    LOGICAL_NOT = 168
    SELECT = 169
    I_EQUAL = 170
    I_NOT_EQUAL = 171
    U_GREATER = 172
    S_GREATER = 173
    U_GREATER_EQUAL = 174
    S_GREATER_EQUAL = 175
    U_LESS = 176
    S_LESS = 177
    U_LESS_EQUAL = 178
    S_LESS_EQUAL = 179
    F_EQUAL = 180
    F_NOT_EQUAL = 183
    """Unordered: true of a NaN."""
    F_LESS = 184
    F_GREATER = 186
    F_LESS_EQUAL = 188
    F_GREATER_EQUAL = 190
    SHIFT_RIGHT_LOGICAL = 194
    SHIFT_RIGHT_ARITHMETIC = 195
    SHIFT_LEFT = 196
    BITWISE_OR = 197
    BITWISE_XOR = 198
    BITWISE_AND = 199
    NOT = 200
    CONTROL_BARRIER = 224
    LOOP_MERGE = 246
    SELECTION_MERGE = 247
    LABEL = 248
    BRANCH = 249
    BRANCH_CONDITIONAL = 250
    RETURN = 253


class Glsl(IntEnum):
    """Instructions of the extended set GLSL.std.450."""

    ROUND_EVEN = 2
    F_ABS = 4
    S_ABS = 5
    FLOOR = 8
    CEIL = 9
    SQRT = 31
    U_MIN = 38


class Storage(IntEnum):
    INPUT = 1
    WORKGROUP = 4
    FUNCTION = 7
    PUSH_CONSTANT = 9
    STORAGE_BUFFER = 12


class BuiltIn(IntEnum):
    NUM_WORKGROUPS = 24
    WORKGROUP_ID = 26
    LOCAL_INVOCATION_ID = 27


class Decoration(IntEnum):
    BLOCK = 2
    ARRAY_STRIDE = 6
    BUILT_IN = 11
    NON_WRITABLE = 24
    BINDING = 33
    DESCRIPTOR_SET = 34
    OFFSET = 35
    NO_CONTRACTION = 42


_SHADER, _PRESERVE = 1, 4466
"""Capabilities."""
_LOCAL_SIZE, _PRESERVE_MODE = 17, 4461
"""Execution modes."""
_WORKGROUP_SCOPE, _WORKGROUP_ACQUIRE_RELEASE = 2, 0x108


def instruction(op: int, *words: int) -> list[int]:
    return [(len(words) + 1) << 16 | op, *words]


def text(characters: str) -> list[int]:
    """A literal string: UTF-8, ended and filled with zeros to a whole word."""
    octets = characters.encode() + b"\0"
    return list(struct.unpack(f"<{-(-len(octets) // 4)}I", octets.ljust(-(-len(octets) // 4) * 4, b"\0")))


class Assembler:
    """A compute shader in the making. Everything that is a type, a constant or a result is told by its id."""

    def __init__(self) -> None:
        self._ids = 0
        self._decorations: list[int] = []
        self._globals: list[int] = []
        self._locals: list[int] = []
        self._body: list[int] = []
        self._interface: list[int] = []
        self._known: dict[tuple[int, ...], int] = {}
        self._extended = self.fresh()
        self.void = self._global(Op.TYPE_VOID)
        self.bool = self._global(Op.TYPE_BOOL)
        self.u32 = self._global(Op.TYPE_INT, 32, 0)
        self.f32 = self._global(Op.TYPE_FLOAT, 32)

    def fresh(self) -> int:
        self._ids += 1
        return self._ids

    # Types, constants, variables.

    def _global(self, op: Op, *words: int, of: int | None = None) -> int:
        """A type, or a constant ``of`` a type: one for the whole module."""
        key = (op, -1 if of is None else of, *words)
        if key not in self._known:
            self._known[key] = self.fresh()
            result = (self._known[key],) if of is None else (of, self._known[key])
            self._globals += instruction(op, *result, *words)
        return self._known[key]

    def pointer(self, storage: Storage, target: int) -> int:
        return self._global(Op.TYPE_POINTER, storage, target)

    def vector(self, element: int, count: int) -> int:
        return self._global(Op.TYPE_VECTOR, element, count)

    def array(self, element: int, length: int) -> int:
        return self._global(Op.TYPE_ARRAY, element, self.constant_u32(length))

    def constant_u32(self, value: int) -> int:
        return self._global(Op.CONSTANT, value & 0xFFFFFFFF, of=self.u32)

    def constant_f32(self, value: float) -> int:
        (word,) = struct.unpack("<I", struct.pack("<f", value))
        return self._global(Op.CONSTANT, word, of=self.f32)

    def constant_bool(self, value: bool) -> int:
        return self._global(Op.CONSTANT_TRUE if value else Op.CONSTANT_FALSE, of=self.bool)

    def words_struct(self, count: int | None, *decorations: Decoration) -> int:
        """A block of u32 words: ``count`` members, or one array without an end."""
        structure = self.fresh()
        if count is None:
            array = self.fresh()
            self._globals += instruction(Op.TYPE_RUNTIME_ARRAY, array, self.u32)
            self._decorate(array, Decoration.ARRAY_STRIDE, 4)
            members = [array]
        else:
            members = [self.u32] * count
        self._globals += instruction(Op.TYPE_STRUCT, structure, *members)
        self._decorate(structure, Decoration.BLOCK)
        for number in range(len(members)):
            self._decorations += instruction(Op.MEMBER_DECORATE, structure, number, Decoration.OFFSET, 4 * number)
            for decoration in decorations:
                self._decorations += instruction(Op.MEMBER_DECORATE, structure, number, decoration)
        return structure

    def variable(self, storage: Storage, target: int) -> int:
        """A variable of the module, or of ``main`` for Storage.FUNCTION."""
        found = self.fresh()
        words = instruction(Op.VARIABLE, self.pointer(storage, target), found, storage)
        if storage is Storage.FUNCTION:
            self._locals += words
        else:
            self._globals += words
            self._interface.append(found)
        return found

    def storage_buffer(self, binding: int, writable: bool) -> int:
        """An array of words; ``element`` reaches into it."""
        structure = self.words_struct(None, *(() if writable else (Decoration.NON_WRITABLE,)))
        found = self.variable(Storage.STORAGE_BUFFER, structure)
        self._decorate(found, Decoration.DESCRIPTOR_SET, 0)
        self._decorate(found, Decoration.BINDING, binding)
        return found

    def built_in(self, which: BuiltIn) -> int:
        found = self.variable(Storage.INPUT, self.vector(self.u32, 3))
        self._decorate(found, Decoration.BUILT_IN, which)
        return found

    def _decorate(self, target: int, decoration: Decoration, *words: int) -> None:
        self._decorations += instruction(Op.DECORATE, target, decoration, *words)

    # The body of main.

    def emit(self, op: Op, *words: int) -> None:
        self._body += instruction(op, *words)

    def result(self, op: Op, kind: int, *words: int) -> int:
        """An instruction with a result of type ``kind``."""
        found = self.fresh()
        self._body += instruction(op, kind, found, *words)
        return found

    def exact(self, op: Op, kind: int, *words: int) -> int:
        """A float operation that must not be fused with another."""
        found = self.result(op, kind, *words)
        self._decorate(found, Decoration.NO_CONTRACTION)
        return found

    def extended(self, which: Glsl, kind: int, *operands: int) -> int:
        return self.result(Op.EXTENDED, kind, self._extended, which, *operands)

    def component(self, variable: int, number: int) -> int:
        """A u32 of a built-in vector."""
        vector = self.result(Op.LOAD, self.vector(self.u32, 3), variable)
        return self.result(Op.COMPOSITE_EXTRACT, self.u32, vector, number)

    def element(self, storage: Storage, variable: int, *indices: int) -> int:
        """A pointer to a word within a variable."""
        return self.result(Op.ACCESS_CHAIN, self.pointer(storage, self.u32), variable, *indices)

    def load(self, pointer: int, kind: int) -> int:
        return self.result(Op.LOAD, kind, pointer)

    def store(self, pointer: int, value: int) -> None:
        self.emit(Op.STORE, pointer, value)

    @contextmanager
    def loop(self, begin: int, end: int, step: int) -> Iterator[int]:
        """``for (uint i = begin; i < end; i += step)``; gives i."""
        variable = self.variable(Storage.FUNCTION, self.u32)
        header, check, body, following, done = (self.fresh() for _ in range(5))
        self.store(variable, begin)
        self._enter(header)
        self.emit(Op.LOOP_MERGE, done, following, 0)
        self._enter(check)
        index = self.load(variable, self.u32)
        self.emit(Op.BRANCH_CONDITIONAL, self.result(Op.U_LESS, self.bool, index, end), body, done)
        self.emit(Op.LABEL, body)
        yield index
        self._enter(following)
        self.store(variable, self.result(Op.I_ADD, self.u32, index, step))
        self.emit(Op.BRANCH, header)
        self.emit(Op.LABEL, done)

    @contextmanager
    def branch_if(self, condition: int) -> Iterator[None]:
        inside, done = self.fresh(), self.fresh()
        self.emit(Op.SELECTION_MERGE, done, 0)
        self.emit(Op.BRANCH_CONDITIONAL, condition, inside, done)
        self.emit(Op.LABEL, inside)
        yield
        self._enter(done)

    def _enter(self, label: int) -> None:
        self.emit(Op.BRANCH, label)
        self.emit(Op.LABEL, label)

    def barrier(self) -> None:
        """The workgroup's invocations wait for each other, and see each other's shared memory."""
        scope = self.constant_u32(_WORKGROUP_SCOPE)
        self.emit(Op.CONTROL_BARRIER, scope, scope, self.constant_u32(_WORKGROUP_ACQUIRE_RELEASE))

    # The finished module.

    def module(self, lanes: int, preserve: bool) -> bytes:
        """``lanes`` invocations make a workgroup. ``preserve`` asks the driver to keep infinities, NaNs and signed zeros;
        it must be able to."""
        main, entry = self.fresh(), self.fresh()
        function = self._global(Op.TYPE_FUNCTION, self.void)
        head = instruction(Op.CAPABILITY, _SHADER)
        modes = instruction(Op.EXECUTION_MODE, main, _LOCAL_SIZE, lanes, 1, 1)
        if preserve:
            head += instruction(Op.CAPABILITY, _PRESERVE)
            modes += instruction(Op.EXECUTION_MODE, main, _PRESERVE_MODE, 32)
        head += instruction(Op.EXTENSION_IMPORT, self._extended, *text("GLSL.std.450"))
        head += instruction(Op.MEMORY_MODEL, 0, 1)
        head += instruction(Op.ENTRY_POINT, 5, main, *text("main"), *self._interface)
        body = instruction(Op.FUNCTION, self.void, main, 0, function)
        body += [*instruction(Op.LABEL, entry), *self._locals, *self._body]
        body += [*instruction(Op.RETURN), *instruction(Op.FUNCTION_END)]
        header = [MAGIC, VERSION, 0, self._ids + 1, 0]
        words = [*header, *head, *modes, *self._decorations, *self._globals, *body]
        return struct.pack(f"<{len(words)}I", *words)
