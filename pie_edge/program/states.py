"""What a Program keeps between steps: which states have a page a number of tokens, which a slot a context."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pie_edge.program.ops import KINDS, Op, Program, Role, Value


@dataclass(frozen=True, slots=True)
class States:
    """``paged`` states have pages on their first axis, ``slotted`` ones slots; ``convolved`` is how many tokens before its own
    the widest convolution sees; ``recurs`` is whether some state follows from all tokens, which only running them again
    brings back."""

    paged: tuple[Value, ...]
    slotted: tuple[Value, ...]
    convolved: int
    recurs: bool

    @property
    def page_bytes(self) -> int:
        """Keys and values of one page; what else a page has, its positions, is a few bytes."""
        return sum(map(_each, (value for value in self.paged if len(value.shape) > 2)))

    @property
    def slot_bytes(self) -> int:
        return sum(map(_each, self.slotted))

    @property
    def largest_page(self) -> int:
        """Bytes that one page has of the state that has most of it."""
        return max(map(_each, self.paged), default=1)

    @property
    def largest_slot(self) -> int:
        return max(map(_each, self.slotted), default=1)


def states_of(program: Program) -> States:
    slotted = {name for op in program.ops if KINDS[op.kind].slotted for name in _written(program, op)}
    paged = {name for op in program.ops if op.kind == "kv_append" for name in op.outputs}
    kept = program.by_role(Role.STATE)
    convolutions = (op for op in program.ops if op.kind == "short_conv")
    return States(
        paged=tuple(value for value in kept if value.name in paged),
        slotted=tuple(value for value in kept if value.name in slotted),
        convolved=max((program.values[op.inputs[1]].shape[1] - 1 for op in convolutions), default=0),
        recurs=any(op.kind == "gated_delta" for op in program.ops),
    )


def _written(program: Program, op: Op) -> Iterable[str]:
    return (name for name in op.outputs if program.values[name].role is Role.STATE)


def _each(value: Value) -> int:
    """Bytes of one page or slot."""
    return value.nbytes // value.shape[0]
