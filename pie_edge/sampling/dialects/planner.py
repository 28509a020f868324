"""From a lowered epilogue to a Plan: which values are stored, which kernel makes them, and where they lie.

Elementwise and structural nodes are written into the kernels that need them. One is stored where it is an output, where an
algorithm reads it, or where making it again for each of its users would cost more than reading it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from pie_edge.program import plan as arenas
from pie_edge.program.encodings import DType
from pie_edge.program.node_types import Element
from pie_edge.program.ops import Op, Program, Role, Value
from pie_edge.sampling.dialects.decompose import decompose
from pie_edge.sampling.dialects.group import Domain, Group, NotHereError
from pie_edge.sampling.dialects.kernel import Call, Kernel, Packing, Place, Plan
from pie_edge.sampling.dialects.scalar import Memory
from pie_edge.sampling.dialects.view import ALGORITHMS, REDUCTIONS, Shape, View, kind

MAX_INLINED = 400
"""Scalar operations that a value written into its users may take."""
CHEAP = 8
"""Scalar operations that may be done again rather than stored, for a second user or a larger tensor."""
ALIGNMENT = 16
"""Of a value's start, in words."""
ROUND_BYTES = 64 << 20
"""Of the temporaries of one round of passes."""
SCRATCH = "scratch."
"""Begins the names of the algorithms' scratch, and ends with the step's number."""
TOP_K_SORTED = 1024
"""Above this ``top_k`` is made by sorting the whole row."""


def plan(program: Program, round_bytes: int = ROUND_BYTES) -> Plan:
    """``round_bytes`` is what the temporaries of one round may take; a single pass always makes a round."""
    return _Planner(View(decompose(program))).plan(round_bytes)


def scratch_words(op: Op, shape: Shape) -> int:
    """Room that an algorithm needs for one pass, in words; ``shape`` is its operand's."""
    if kind(op) == "sort" or (kind(op) == "top_k" and op.integer("k") > TOP_K_SORTED):
        return 2 * prod(shape)
    return 0


class _Planner:
    def __init__(self, view: View) -> None:
        self._view = view
        self._steps: dict[str, int] = {}
        self._parts: list[Group | Op] = []
        self._needs: dict[str, int] = {}
        """For each value, the last step that it needs; −1 if none."""

    def plan(self, round_bytes: int) -> Plan:
        stored = _stored(self._view)
        for op in self._view.program.ops:
            name = op.outputs[0]
            needs = max((self._needed(operand) for operand in op.inputs), default=-1)
            self._needs[name] = needs
            if kind(op) in ALGORITHMS:
                self._algorithm(op)
            elif kind(op) in REDUCTIONS:
                self._reduction(op, needs)
            elif name in stored:
                self._value(name, needs)
        return self._laid(round_bytes)

    def _needed(self, name: str) -> int:
        return self._steps.get(name, self._needs.get(name, -1))

    def _algorithm(self, op: Op) -> None:
        self._steps.update(dict.fromkeys(op.outputs, len(self._parts)))
        self._parts.append(op)

    def _reduction(self, op: Op, needs: int) -> None:
        axis = -1 if kind(op) == "gumbel_max" else op.integer("axis")
        domain = Domain.of_reduction(self._view.shape(op.inputs[0]), axis)
        self._place(op.outputs[0], needs, domain, lambda group: group.add_reduction(op))

    def _value(self, name: str, needs: int) -> None:
        self._place(name, needs, Domain(), lambda group: group.add_value(name))

    def _place(self, name: str, needs: int, domain: Domain, add: Callable[[Group], None]) -> None:
        """Into the first kernel that can make it, or a new one."""
        for group in self._parts[max(needs, 0) :]:
            # A value goes along with reductions over its elements or its rows; a reduction needs its own domain.
            if isinstance(group, Group) and (domain.axis is None or group.domain == domain):
                try:
                    add(group)
                except NotHereError:
                    continue
                self._steps[name] = group.number
                return
        group = Group(self._view, domain, len(self._parts), self._steps)
        add(group)
        self._steps[name] = group.number
        self._parts.append(group)

    # Places.

    def _laid(self, round_bytes: int) -> Plan:
        kernels, reads, wanted = self._kernels()
        outputs = self._view.program.by_role(Role.OUTPUT)
        passes = outputs[0].shape[0]
        temporaries = self._temporaries(reads, wanted)
        each = temporaries.nbytes // 4
        slots = max(1, min(passes, round_bytes // (4 * max(each, 1))))
        packings, end = self._packings()
        places = {value.name: Place(value.name, self._view.memory(value.name), 0, self._view.size(value.name), True)
                  for value in outputs}  # fmt: skip
        for packing in packings:
            places[packing.name] = replace(places[packing.name], start=packing.start)
        for name, offset in temporaries.offsets.items():
            places[name] = Place(name, Memory.ARENA, end + offset // 4 * slots, self._entries(name), False)
        steps = (self._step(number, part, kernels, places) for number, part in enumerate(self._parts))
        starts = {name: place.start for name, place in places.items() if place.memory is Memory.ARENA}
        return Plan(passes, slots, tuple(step for step in steps if step), packings, max(end + each * slots, 1), starts)

    def _kernels(self) -> tuple[dict[int, Kernel], dict[int, set[str]], set[str]]:
        """The kernels by step, of what later steps and the outputs need; what every step reads; and all of that together."""
        wanted = {value.name for value in self._view.program.by_role(Role.OUTPUT)}
        kernels: dict[int, Kernel] = {}
        reads: dict[int, set[str]] = {}
        for number in range(len(self._parts) - 1, -1, -1):
            part = self._parts[number]
            if isinstance(part, Group):
                kernels[number], reads[number] = part.kernel(wanted)
            else:
                reads[number] = set(part.inputs)
            wanted |= reads[number]
        return kernels, reads, wanted

    def _packings(self) -> tuple[tuple[Packing, ...], int]:
        """The outputs of bools, and the size of their words together."""
        found, words = [], 0
        for value in self._view.program.by_role(Role.OUTPUT):
            if self._view.element(value.name) is Element.BOOL:
                found.append(Packing(value.name, words, value.size))
                words += -(-value.size // ALIGNMENT) * ALIGNMENT
        return tuple(found), words

    def _temporaries(self, reads: Mapping[int, set[str]], wanted: set[str]) -> arenas.Arena:
        """Offsets of one pass's temporaries, in bytes. A step is an op that reads some and writes others."""
        values: dict[str, Value] = {}
        ops = []
        for number, part in enumerate(self._parts):
            made = part.stored if isinstance(part, Group) else [*part.outputs, f"{SCRATCH}{number}"]
            # What nothing reads isn't made, unless an algorithm makes it.
            kept = [name for name in made if self._is_temporary(name) and (name in wanted or isinstance(part, Op))]
            values.update({name: Value(name, Role.TEMP, DType.U32, (self._entries(name),)) for name in kept})
            inputs = tuple(name for name in sorted(reads[number]) if name in self._steps and self._is_temporary(name))
            ops.append(Op("step", inputs, tuple(kept)))
        return arenas.arena(Program("epilogue", values, tuple(ops)), alignment=4 * ALIGNMENT)

    def _is_temporary(self, name: str) -> bool:
        return name.startswith(SCRATCH) or not self._view.is_output(name)

    def _entries(self, name: str) -> int:
        """Words of one pass."""
        if not name.startswith(SCRATCH):
            return self._view.size(name)
        op = self._parts[int(name.removeprefix(SCRATCH))]
        assert isinstance(op, Op)
        return max(scratch_words(op, self._view.shape(op.inputs[0])), 1)

    def _step(
        self, number: int, part: Group | Op, kernels: Mapping[int, Kernel], places: Mapping[str, Place]
    ) -> Kernel | Call | None:
        if isinstance(part, Group):
            kernel = kernels[number]
            return kernel if kernel.loops or kernel.stores else None
        names = (*part.inputs, *part.outputs)
        return Call(
            part,
            tuple(places[name] for name in part.inputs),
            tuple(places[name] for name in part.outputs),
            tuple(self._view.shape(name) for name in names),
            tuple(self._view.element(name) for name in names),
            places[f"{SCRATCH}{number}"],
        )


def _stored(view: View) -> set[str]:
    """Elementwise and structural values that a kernel of their own users can't or shouldn't make again."""
    found: set[str] = set()
    operations: dict[str, int] = {}
    users = _users(view)
    for op in view.program.ops:
        name = op.outputs[0]
        if kind(op) in ALGORITHMS or kind(op) in REDUCTIONS:
            operations.update(dict.fromkeys(op.outputs, 1))
            continue
        cost = view.operations(op) + sum(operations.get(operand, 1) for operand in op.inputs)
        if view.is_output(name) or _must_store(view, name) or cost > MAX_INLINED or (cost > CHEAP and users[name]):
            found.add(name)
            cost = 1
        operations[name] = cost
    return found


def _must_store(view: View, name: str) -> bool:
    return any(kind(op) in ALGORITHMS for op in view.consumers.get(name, ()))


def _users(view: View) -> dict[str, bool]:
    """Whether each value has several users, or one that is larger than itself."""
    found = {}
    for op in view.program.ops:
        name = op.outputs[0]
        users = view.consumers.get(name, [])
        larger = any(view.size(user.outputs[0]) > view.size(name) for user in users if kind(user) not in REDUCTIONS)
        found[name] = len(users) > 1 or larger
    return found
