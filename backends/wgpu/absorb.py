"""Fewer launches still: what stands before and after a product of a matrix becomes a part of it.

Every ``linear``, ``linear_group`` and ``gated_linear`` becomes a ``product``. A norm whose result only products read is done
by each of them for itself, and a sum whose one side a product has just computed is added where that is written. A layer of a
decoder is six launches then: queries, keys and values; rope and append; attention; out; gate and up; down.

    product (x, weights…, norm?, biases…, residual?) → (y…)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pie_edge.program.expand import DECOMPOSITIONS
from pie_edge.program.ops import Op, Program, Role


@dataclass(frozen=True, slots=True)
class Product:
    """A ``product``, its inputs by what they are; "" for what isn't there."""

    x: str
    weights: tuple[str, ...]
    outputs: tuple[str, ...]
    act: str = ""
    """Of a gated unit: its weights are the gate's and the other's."""
    norm: str = ""
    eps: float = 0.0
    offset: float = 0.0
    biases: tuple[str, ...] = ()
    """One for each weight, or none."""
    residual: str = ""

    @classmethod
    def of(cls, op: Op) -> Product:
        names = iter(op.inputs)
        x, weights = next(names), tuple(next(names) for _ in range(op.integer("matrices")))
        norm = next(names) if op.attribute("norm") else ""
        biases = tuple(next(names) for _ in weights) if op.attribute("biases") else ()
        residual = next(names) if op.attribute("residual") else ""
        act, eps, offset = str(op.attribute("act")), op.number("eps"), op.number("offset")
        return cls(x, weights, op.outputs, act, norm, eps, offset, biases, residual)

    def op(self) -> Op:
        more = tuple(name for name in (self.norm, *self.biases, self.residual) if name)
        told = ("norm", bool(self.norm)), ("biases", bool(self.biases)), ("residual", bool(self.residual))
        numbers = ("eps", self.eps), ("offset", self.offset)
        attributes = (("matrices", len(self.weights)), ("act", self.act), *told, *numbers)
        return Op("product", (self.x, *self.weights, *more), self.outputs, attributes)


def absorb(program: Program, single: Callable[[str], bool]) -> Program:
    """``single`` says whether a weight lies in one part: only then may its product take a norm in."""
    ops = _norms_apart(program, [_product(op) for op in program.ops], single)
    return replace(program, ops=tuple(_sums_in(program, _norms_in(program, ops, single))))


def _product(op: Op) -> Op:
    if op.kind == "linear":
        return Product(op.inputs[0], op.inputs[1:2], op.outputs, biases=op.inputs[2:]).op()
    if op.kind == "linear_group":
        end = 1 + len(op.outputs)
        return Product(op.inputs[0], op.inputs[1:end], op.outputs, biases=op.inputs[end:]).op()
    if op.kind == "gated_linear":
        return Product(op.inputs[0], op.inputs[1:], op.outputs, act=str(op.attribute("act"))).op()
    return op


def _readers(ops: Sequence[Op], name: str) -> list[Op]:
    return [op for op in ops if name in op.inputs]


def _absorbable(program: Program, ops: Sequence[Op], normed: str, single: Callable[[str], bool]) -> bool:
    """Whether only products read it, which can all do the norm themselves."""
    readers = _readers(ops, normed)
    return (
        program.values[normed].role is Role.TEMP
        and bool(readers)
        and all(op.kind == "product" and not Product.of(op).norm for op in readers)
        and all(Product.of(op).x == normed and all(map(single, Product.of(op).weights)) for op in readers)
    )


def _norms_apart(program: Program, ops: Sequence[Op], single: Callable[[str], bool]) -> list[Op]:
    """``add_rms_norm`` as a sum and a norm where that norm can be absorbed."""
    found: list[Op] = []
    for op in ops:
        apart = op.kind == "add_rms_norm" and _absorbable(program, ops, op.outputs[1], single)
        found += DECOMPOSITIONS[op.kind](op) if apart else (op,)
    return found


def _norms_in(program: Program, ops: Sequence[Op], single: Callable[[str], bool]) -> list[Op]:
    """Without the norms that products do."""
    norms = {
        op.outputs[0]: op
        for op in ops
        if op.kind == "rms_norm"
        and op.integer("groups") == 1
        and _absorbable(program, ops, op.outputs[0], single)
        and _unchanged(program, op.inputs[0])
    }
    found = []
    for op in ops:
        norm = norms.get(op.inputs[0]) if op.kind == "product" else None
        if norm is not None:
            x, weight = norm.inputs
            eps, offset = norm.number("eps"), norm.number("offset")
            found.append(replace(Product.of(op), x=x, norm=weight, eps=eps, offset=offset).op())
        elif op.outputs[0] not in norms:
            found.append(op)
    return found


def _unchanged(program: Program, name: str) -> bool:
    """A state may be written between the norm and those who read what it gave."""
    return program.values[name].role is Role.TEMP


def _sums_in(program: Program, ops: Sequence[Op]) -> list[Op]:
    """Without the sums of what the op right before them computed for them alone."""
    found: list[Op] = []
    for op in ops:
        before = found[-1] if found else None
        if op.kind == "add" and before is not None and before.kind == "product" and _is_inner(program, ops, before, op):
            made = Product.of(before)
            other = op.inputs[1] if op.inputs[0] == before.outputs[0] else op.inputs[0]
            found[-1] = replace(made, outputs=op.outputs, residual=other).op()
        else:
            found.append(op)
    return found


def _is_inner(program: Program, ops: Sequence[Op], before: Op, op: Op) -> bool:
    made, (name, *more) = Product.of(before), before.outputs
    return (
        not more
        and not made.residual
        and name in op.inputs
        and op.inputs[0] != op.inputs[1]
        and len(_readers(ops, name)) == 1
        and program.values[name].role is Role.TEMP
    )


def sides(program: Program) -> dict[str, int]:
    """For each temporary one of two arenas, such that no product reads and writes the same: then it may read a uniform buffer."""
    found: dict[str, int] = {}
    for op in program.ops:
        given = [found[name] for name in op.inputs if name in found]
        side = given[0] if given else 0
        if op.kind == "product" and op.inputs[0] in found:
            side = 1 - found[op.inputs[0]]
        found |= {name: side for name in op.outputs if program.values[name].role is Role.TEMP}
    return found
