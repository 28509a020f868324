"""The type check of an epilogue: from wire records to a Graph, or an EpilogueError with the author's line."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from math import prod

from pie_edge.errors import EpilogueError
from pie_edge.program.node_shapes import Attributes, AttributeValue, NodeError, Shape
from pie_edge.program.node_types import DOMAINS, Element, NodeKind, TensorType
from pie_edge.program.nodes import NODES
from pie_edge.sampling import attributes
from pie_edge.sampling.constants import Constant
from pie_edge.sampling.graph import Graph, Node, prune
from pie_edge.sampling.wire import Reference, Wire, WireNode

MAX_ELEMENTS = 2**24
"""Of one tensor."""
MAX_COST = 2**29
"""Work of one pass (``NodeKind.cost`` times entries): about a second on one CPU core."""
MAX_BYTES = 2**28
"""Of one pass's values alive at a time."""

Operand = Reference | Constant

_WIDTH = (Element.BOOL, Element.U32, Element.I32, Element.F32)


def check(wire: Wire, vocabulary: int, rows: int, hidden: int = 0) -> Graph:
    """``hidden`` is the width of a hidden state, 0 where none are read out. Raises EpilogueError naming the node, its operands'
    types and the author's line."""
    checker = _Checker(vocabulary, rows, hidden)
    for node in wire.nodes:
        checker.add(node)
    graph = prune(checker.graph(wire.outputs))
    if graph.peak_bytes > MAX_BYTES:
        raise EpilogueError(
            f"the epilogue keeps {graph.peak_bytes >> 20} MiB of values for one pass, the most is {MAX_BYTES >> 20}; "
            "read out fewer rows or reduce earlier"
        )
    return graph


class _Checker:
    """What is known after the nodes seen so far: ``_results`` has each wire node's typed node, or its constant."""

    def __init__(self, vocabulary: int, rows: int, hidden: int) -> None:
        self._vocabulary = vocabulary
        self._rows = rows
        self._hidden = hidden
        self._nodes: list[Node] = []
        self._results: list[int | Constant] = []
        self._constants: dict[tuple[Element, str], Reference] = {}
        self._parameters: dict[int, TensorType] = {}
        self._cost = 0

    def add(self, wire: WireNode) -> None:
        try:
            self._results.append(self._typed(wire))
        except NodeError as error:
            operands = ", ".join(self._describe(reference) for reference in wire.inputs)
            where = f"{wire.line}: " if wire.line else ""
            raise EpilogueError(f"{where}{wire.op[:40]!r}({operands}): {error}") from None

    def graph(self, outputs: Sequence[Reference]) -> Graph:
        numbers = sorted(self._parameters)
        if numbers != list(range(len(numbers))):
            raise EpilogueError(f"the epilogue's parameters are numbered {numbers}; number them from 0")
        try:
            references = tuple(self._output(self._operand(reference)) for reference in outputs)
        except NodeError as error:
            raise EpilogueError(f"an output of the epilogue: {error}") from None
        parameters = tuple(self._parameters[number] for number in numbers)
        return Graph(tuple(self._nodes), references, parameters, self._vocabulary, self._rows)

    def _typed(self, wire: WireNode) -> int | Constant:
        kind = NODES.get(wire.op)
        if kind is None:
            near = get_close_matches(wire.op[:40], NODES, 3)
            raise NodeError(
                f"there is no such node; {'near are ' + ', '.join(near) if near else 'see docs/epilogues.md'}"
            )
        operands = [self._operand(reference) for reference in wire.inputs]
        _check_arity(kind, len(operands))
        if kind.name == "constant":
            value = attributes.check(kind, wire.attributes, 0, self._vocabulary)["value"]
            assert isinstance(value, int | float)
            return Constant(value)
        element = self._element(kind, operands)
        inputs = tuple(self._resolve(kind, position, operand, element) for position, operand in enumerate(operands))
        return self._emit(kind, wire, inputs, element)

    def _operand(self, reference: Reference) -> Operand:
        found = self._results[reference.node]
        count = 1 if isinstance(found, Constant) else len(self._nodes[found].types)
        if not 0 <= reference.result < count:
            raise NodeError(f"node {reference.node} has {count} results, and number {reference.result} is asked for")
        return found if isinstance(found, Constant) else Reference(found, reference.result)

    def _type_of(self, reference: Reference) -> TensorType:
        return self._nodes[reference.node].types[reference.result]

    def _element(self, kind: NodeKind, operands: Sequence[Operand]) -> Element | None:
        """What ``T`` stands for here: the first tensor decides, or else the constants' natural type."""
        shared = [operand for position, operand in enumerate(operands) if _domain_name(kind, position) == "T"]
        allowed = DOMAINS[kind.domain]
        for operand in shared:
            if isinstance(operand, Reference):
                return self._type_of(operand).dtype
        # Among constants alone a float makes all of them floats: f32 is the widest.
        naturals = [operand.natural(allowed) for operand in shared if isinstance(operand, Constant)]
        return max(naturals, key=_WIDTH.index) if naturals else None

    def _resolve(self, kind: NodeKind, position: int, operand: Operand, element: Element | None) -> Reference:
        """The operand as a typed node of the type this place takes."""
        shared = _domain_name(kind, position) == "T"
        allowed = DOMAINS[kind.domain if shared else _domain_name(kind, position)]
        if isinstance(operand, Constant):
            return self._constant(operand, element if shared and element else operand.natural(allowed))
        found, name = self._type_of(operand), kind.operands[min(position, len(kind.operands) - 1)][0]
        if found.dtype not in allowed:
            raise NodeError(
                f"{name.rstrip('*')} is {found.dtype}, and it takes {', '.join(sorted(allowed))}; cast it first"
            )
        if shared and found.dtype is not element:
            raise NodeError(f"{element} meets {found.dtype}; cast one of them")
        return operand

    def _constant(self, constant: Constant, element: Element) -> Reference:
        value = constant.as_type(element)
        # By its text: 0.0 and -0.0 are equal and not the same.
        key = (element, repr(value))
        if key not in self._constants:
            node = Node(NODES["constant"], (), (("value", value),), (TensorType(element, ()),), "")
            self._nodes.append(node)
            self._constants[key] = Reference(len(self._nodes) - 1)
        return self._constants[key]

    def _emit(self, kind: NodeKind, wire: WireNode, inputs: tuple[Reference, ...], element: Element | None) -> int:
        shapes = [self._type_of(reference).shape for reference in inputs]
        rank = (len(shapes[0]) if shapes else 0) + (kind.name == "stack")
        concrete = self._rows_given(kind, attributes.check(kind, wire.attributes, rank, self._vocabulary), shapes)
        if kind.normalise:
            concrete = kind.normalise(shapes, concrete)
        shape = kind.shape(shapes, {**concrete, "vocabulary": self._vocabulary, "hidden": self._hidden})
        types = tuple(TensorType(_result(name, element, concrete), shape) for name in kind.results)
        self._charge(kind, [*(self._type_of(reference) for reference in inputs), *types])
        if kind.name == "param":
            self._declare(concrete["index"], types[0])
        self._nodes.append(Node(kind, inputs, tuple(concrete.items()), types, wire.line))
        return len(self._nodes) - 1

    def _rows_given(self, kind: NodeKind, given: Attributes, shapes: Sequence[Shape]) -> Attributes:
        """``rows`` made concrete: without one it is all that the pass reads out, and a single row has no axis."""
        rows = given.get("rows")
        if isinstance(rows, int) and rows > self._rows:
            raise NodeError(f"rows={rows}, and the pass reads out {self._rows}; ask the pass for more rows")
        per_row = "rows" in given and rows is None and self._rows > 1
        # A drawing node follows its operand: only one with an entry a row draws for each.
        follows = not shapes or (len(shapes[0]) > 1 and shapes[0][0] == self._rows)
        return {**given, "rows": self._rows} if per_row and follows else given

    def _charge(self, kind: NodeKind, tensors: Sequence[TensorType]) -> None:
        for tensor in tensors:
            size = prod(tensor.shape)
            if min(tensor.shape, default=1) < 1 or len(tensor.shape) > attributes.MAX_RANK or size > MAX_ELEMENTS:
                raise NodeError(
                    f"{tensor} is no tensor it can make: axes have at least 1 entry, and there are at most "
                    f"{attributes.MAX_RANK} axes and {MAX_ELEMENTS} entries"
                )
            self._cost += kind.cost * size
        if self._cost > MAX_COST:
            raise NodeError(
                f"up to here the epilogue does {self._cost} units of work for one pass, the most is {MAX_COST}"
            )

    def _declare(self, index: AttributeValue, tensor: TensorType) -> None:
        assert isinstance(index, int)
        if index in self._parameters:
            raise NodeError(f"parameter {index} is declared twice; use the first")
        self._parameters[index] = tensor

    def _output(self, operand: Operand) -> Reference:
        if isinstance(operand, Constant):
            return self._constant(operand, operand.natural(DOMAINS["any"]))
        return operand

    def _describe(self, reference: Reference) -> str:
        try:
            operand = self._operand(reference)
        except NodeError:
            return "?"
        return str(operand.value) if isinstance(operand, Constant) else str(self._type_of(operand))


def _domain_name(kind: NodeKind, position: int) -> str:
    return kind.operands[0 if kind.variadic else position][1]


def _check_arity(kind: NodeKind, given: int) -> None:
    wanted = [name for name, _ in kind.operands]
    if given < 1 if kind.variadic else given != len(wanted):
        raise NodeError(f"it takes {len(wanted)} operands ({', '.join(wanted) or 'none'}), and {given} are given")


def _result(name: str, element: Element | None, concrete: Attributes) -> Element:
    if name == "T":
        assert element is not None
        return element
    return Element(str(concrete["dtype"]) if name == "dtype" else name)
