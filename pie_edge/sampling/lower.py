"""From a checked epilogue to the Program that a backend compiles: one call runs several passes of the same epilogue.

Every value has a leading batch axis, one entry a pass; nodes map over it (``program/nodes.py``). With ``n`` rows a pass
and room for ``B`` passes the Program's values are

    state  logits    f32 [logits_rows, vocabulary]
    input  counts    u32 [1]         true number of passes, 1 … B
    input  rows      u32 [B·n]       which row of logits is row i of pass b, at b·n + i
    input  positions u32 [B·n]       the position of that row's token
    input  draw_keys u32 [B·n, 2]    low and high word of that row's seed
    input  param<i>  [B, *shape]     a value that each pass gives
    output out<i>    [B, *shape]     what the author's function returned; bool as bytes

and, where a node reads hidden states,

    state  hidden      f32 [hidden_rows, width]
    input  hidden_rows u32 [B·n]     which row of them is row i of pass b

and, where values go to later passes or come from earlier ones without leaving the device (``Pool``),

    state  tokens    u32 [pool.slots]
    input  kept<i>   u32 [B, *shape] the slot that each entry of output i goes to; one past the end keeps nothing
    input  slots<i>  u32 [B, *shape] the slot that each entry of parameter i comes from, and
    input  given<i>  [B, *shape]     what it is where that is past the end: both in place of param<i>

Entries past the true number of passes are never read, and outputs there mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from pie_edge.program.encodings import DType
from pie_edge.program.node_types import TensorType
from pie_edge.program.nodes import KEEP_TOKEN, PREFIX, TAKE_KEPT
from pie_edge.program.ops import Attribute, Op, Program, Role, Value
from pie_edge.sampling.graph import Graph, Node
from pie_edge.sampling.wire import Reference

_SOURCE_INPUTS: Mapping[str, tuple[str, ...]] = {
    "logits": ("logits", "rows"),
    "hidden": ("hidden", "hidden_rows"),
    "position": ("positions",),
    "uniform": ("draw_keys", "positions"),
    "gumbel": ("draw_keys", "positions"),
    "gumbel_max": ("draw_keys", "positions"),
}


@dataclass(frozen=True, slots=True)
class Pool:
    """What of an epilogue passes through the device's pool of ``slots`` words: outputs that are kept there, and parameters that
    are taken from it, by their numbers. None of them may be bools."""

    slots: int = 0
    kept: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kept or self.taken)

    def __str__(self) -> str:
        kept, taken = ("".join(f"{mark}{one}" for one in ones) for mark, ones in (("k", self.kept), ("t", self.taken)))
        return f"-P{self.slots}{kept}{taken}" if self else ""


NO_POOL = Pool()


@lru_cache(maxsize=256)
def lower(graph: Graph, passes: int, logits_rows: int, pool: Pool = NO_POOL, hidden_rows: int = 0) -> Program:
    """The Program for up to ``passes`` passes over a logits state of ``logits_rows`` rows, and one of ``hidden_rows`` rows of
    hidden states; cached."""
    return _Lowering(graph, passes, logits_rows, pool, hidden_rows).program()


class _Lowering:
    def __init__(self, graph: Graph, passes: int, logits_rows: int, pool: Pool, hidden_rows: int) -> None:
        self._graph = graph
        self._passes = passes
        self._pool = pool
        rows = passes * graph.rows
        self._values = {
            value.name: value
            for value in (
                Value("logits", Role.STATE, DType.F32, (logits_rows, graph.vocabulary)),
                Value("counts", Role.INPUT, DType.U32, (1,)),
                Value("rows", Role.INPUT, DType.U32, (rows,)),
                Value("positions", Role.INPUT, DType.U32, (rows,)),
                Value("draw_keys", Role.INPUT, DType.U32, (rows, 2)),
                *(self._value(self._given(i), Role.INPUT, tensor) for i, tensor in enumerate(graph.parameters)),
            )
        }
        if graph.hidden:
            self._add(Value("hidden", Role.STATE, DType.F32, (hidden_rows, graph.hidden)))
            self._add(Value("hidden_rows", Role.INPUT, DType.U32, (rows,)))
        self._ops: list[Op] = []
        self._names: dict[Reference, str] = {}
        self._draws = count()

    def program(self) -> Program:
        graph = self._graph
        if self._pool:
            self._add(Value("tokens", Role.STATE, DType.U32, (self._pool.slots,)))
        for number in self._pool.taken:
            self._take_kept(number)
        for index, node in enumerate(graph.nodes):
            if node.kind.name == "param":
                self._names[Reference(index)] = f"param{dict(node.attributes)['index']}"
            else:
                self._node(index, node)
        for number, reference in enumerate(graph.outputs):
            self._output(f"out{number}", reference)
        for number in self._pool.kept:
            self._keep_token(number)
        return Program(f"epilogue-{graph.digest[:16]}-B{self._passes}{self._pool}", self._values, tuple(self._ops))

    def _given(self, number: int) -> str:
        """The name of the input that a parameter comes in."""
        return f"given{number}" if number in self._pool.taken else f"param{number}"

    def _keep_token(self, number: int) -> None:
        name, kept = f"out{number}", f"kept{number}"
        self._add(Value(kept, Role.INPUT, DType.U32, self._values[name].shape))
        self._ops.append(Op(PREFIX + KEEP_TOKEN, (name, kept, "tokens"), ("tokens",)))

    def _take_kept(self, number: int) -> None:
        slots, name = f"slots{number}", f"param{number}"
        value = self._value(name, Role.TEMP, self._graph.parameters[number])
        self._add(value)
        self._add(Value(slots, Role.INPUT, DType.U32, value.shape))
        self._ops.append(Op(PREFIX + TAKE_KEPT, (self._given(number), slots, "tokens"), (name,)))

    def _add(self, value: Value) -> None:
        self._values[value.name] = value

    def _node(self, index: int, node: Node) -> None:
        names = []
        for result, tensor in enumerate(node.types):
            reference = Reference(index, result)
            name, role = self._place(reference, f"{node.kind.name}{index}" + "_indices" * result)
            self._values[name] = self._value(name, role, tensor)
            self._names[reference] = name
            names.append(name)
        inputs = (*(self._names[reference] for reference in node.inputs), *_SOURCE_INPUTS.get(node.kind.name, ()))
        self._ops.append(Op(PREFIX + node.kind.name, inputs, tuple(names), self._attributes(node)))

    def _place(self, reference: Reference, name: str) -> tuple[str, Role]:
        """A result that is an output is written there at once; further outputs of it are copies."""
        if reference in self._graph.outputs:
            return f"out{self._graph.outputs.index(reference)}", Role.OUTPUT
        return name, Role.TEMP

    def _output(self, name: str, reference: Reference) -> None:
        if name not in self._values:
            self._values[name] = self._value(name, Role.OUTPUT, self._graph.type_of(reference))
            self._ops.append(Op(PREFIX + "broadcast", (self._names[reference],), (name,)))

    def _attributes(self, node: Node) -> tuple[tuple[str, Attribute], ...]:
        """Numbers and choices; shapes and types are those of the op's values.

        ``pass_rows`` is how many rows a pass has, ``rows`` how many the node sees: 0 is the last one, without an axis.
        """
        given = dict(node.attributes)
        kept: dict[str, Attribute] = {
            name: value
            for name, value in given.items()
            if isinstance(value, int | float | str) and name not in ("dtype", "size")
        }
        if node.kind.name in _SOURCE_INPUTS:
            kept |= {"rows": int(kept.get("rows", 0)), "pass_rows": self._graph.rows}
        if node.kind.random:
            kept["draw"] = next(self._draws)
        return tuple(sorted(kept.items()))

    def _value(self, name: str, role: Role, tensor: TensorType) -> Value:
        return Value(name, role, tensor.dtype.storage, (self._passes, *tensor.shape))
