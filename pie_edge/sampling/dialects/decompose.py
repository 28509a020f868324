"""A lowered epilogue in fewer kinds of node: softmax and its kin become reductions of one axis and elementwise nodes.

What is left is what ``planner`` knows: elementwise and structural nodes, reductions (``reduce_*``, ``gumbel_max``), and the
nodes that are algorithms of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pie_edge.program.encodings import DType
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Attribute, Op, Program, Role, Value
from pie_edge.sampling.dialects.view import ALGORITHMS


def decompose(program: Program) -> Program:
    """The same epilogue, its values and outputs under the same names; new temporaries have a ``.`` in theirs."""
    writer = _Writer(program)
    for op in program.ops:
        rule = _RULES.get(op.kind.removeprefix(PREFIX))
        if op.kind.removeprefix(PREFIX) in ALGORITHMS:
            writer.algorithm(op)
        elif rule is None:
            writer.ops.append(op)
        else:
            writer.output = op.outputs[0]
            rule(writer, op)
    return Program(program.name, writer.values, tuple(writer.ops))


@dataclass
class _Writer:
    """Ops so far. ``output`` is the value that the node being decomposed gives."""

    program: Program
    output: str = ""
    ops: list[Op] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = dict(self.program.values)

    def node(self, kind: str, inputs: tuple[str, ...], shape: tuple[int, ...], dtype: DType = DType.F32,
             **attributes: Attribute) -> str:  # fmt: skip
        """A node with a result of its own."""
        name = f"{self.output}.{len(self.ops)}"
        self.values[name] = Value(name, Role.TEMP, dtype, shape)
        self.ops.append(Op(PREFIX + kind, inputs, (name,), tuple(sorted(attributes.items()))))
        return name

    def result(self, kind: str, *inputs: str, **attributes: Attribute) -> None:
        """The node that gives the decomposed one's result."""
        self.ops.append(Op(PREFIX + kind, inputs, (self.output,), tuple(sorted(attributes.items()))))

    def algorithm(self, op: Op) -> None:
        """It reads temporaries alone: what the call was given is copied."""
        self.output = op.outputs[0]
        given = {value.name for value in (*self.program.by_role(Role.INPUT), *self.program.by_role(Role.STATE))}
        inputs = tuple(
            self.node("broadcast", (name,), self.shape(name), self.values[name].dtype) if name in given else name
            for name in op.inputs
        )
        self.ops.append(replace(op, inputs=inputs))

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def number(self, value: float) -> str:
        return self.node("constant", (), (self.shape(self.output)[0],), value=value)


def _kept(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of a reduction that keeps its axis; ``axis`` is negative."""
    return (*shape[: len(shape) + axis], 1, *shape[len(shape) + axis + 1 :])


def _below_maximum(writer: _Writer, x: str, axis: int) -> tuple[str, str]:
    """x − max, which is 0 for an entry equal to the maximum, also an infinite one; and the maximum."""
    shape = writer.shape(x)
    best = writer.node("reduce_max", (x,), _kept(shape, axis), axis=axis, keepdims=True)
    equal = writer.node("eq", (x, best), shape, DType.U8)
    difference = writer.node("sub", (x, best), shape)
    return writer.node("select", (equal, writer.number(0.0), difference), shape), best


def _total(writer: _Writer, x: str, axis: int) -> str:
    return writer.node("reduce_sum", (x,), _kept(writer.shape(x), axis), axis=axis, keepdims=True)


def _softmax(writer: _Writer, op: Op) -> None:
    shifted, _ = _below_maximum(writer, op.inputs[0], op.integer("axis"))
    weights = writer.node("exp", (shifted,), writer.shape(shifted))
    writer.result("div", weights, _total(writer, weights, op.integer("axis")))


def _log_softmax(writer: _Writer, op: Op) -> None:
    shifted, _ = _below_maximum(writer, op.inputs[0], op.integer("axis"))
    weights = writer.node("exp", (shifted,), writer.shape(shifted))
    total = _total(writer, weights, op.integer("axis"))
    writer.result("sub", shifted, writer.node("log", (total,), writer.shape(total)))


def _logsumexp(writer: _Writer, op: Op) -> None:
    shifted, best = _below_maximum(writer, op.inputs[0], op.integer("axis"))
    weights = writer.node("exp", (shifted,), writer.shape(shifted))
    total = _total(writer, weights, op.integer("axis"))
    shape = writer.shape(total)
    writer.result("reshape", writer.node("add", (best, writer.node("log", (total,), shape)), shape))


def _entropy(writer: _Writer, op: Op) -> None:
    """log Z − Σ p·(x − max), where an impossible entry adds nothing."""
    axis = op.integer("axis")
    shifted, _ = _below_maximum(writer, op.inputs[0], axis)
    shape = writer.shape(shifted)
    weights = writer.node("exp", (shifted,), shape)
    total = _total(writer, weights, axis)
    likely = writer.node("gt", (weights, writer.number(0.0)), shape, DType.U8)
    possible = writer.node("select", (likely, shifted, writer.number(0.0)), shape)
    weighted = _total(writer, writer.node("mul", (weights, possible), shape), axis)
    kept = writer.shape(total)
    mean = writer.node("div", (weighted, total), kept)
    writer.result("reshape", writer.node("sub", (writer.node("log", (total,), kept), mean), kept))


def _mean(writer: _Writer, op: Op) -> None:
    x, axis = op.inputs[0], op.integer("axis")
    total = _total(writer, x, axis)
    count = writer.number(float(writer.shape(x)[axis]))
    writer.result("reshape", writer.node("div", (total, count), writer.shape(total)))


def _min_p(writer: _Writer, op: Op) -> None:
    x, p = op.inputs
    lead = writer.shape(x)[:-1]
    best = writer.node("reduce_max", (x,), lead, axis=-1, keepdims=False)
    share = writer.node("log", (p,), writer.shape(p))
    writer.result("reshape", writer.node("add", (best, share), lead))


_RULES: Mapping[str, Callable[[_Writer, Op], None]] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "entropy": _entropy,
    "reduce_mean": _mean,
    "min_p": _min_p,
}
