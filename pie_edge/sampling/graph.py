"""A checked epilogue: every node typed, every attribute concrete, nothing that no output needs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

from pie_edge.program.node_shapes import AttributeValue
from pie_edge.program.node_types import NodeKind, TensorType
from pie_edge.sampling.wire import Reference


@dataclass(frozen=True, slots=True)
class Node:
    """``line`` is the author's; it is for messages and is no part of what the epilogue means."""

    kind: NodeKind
    inputs: tuple[Reference, ...]
    attributes: tuple[tuple[str, AttributeValue], ...]
    types: tuple[TensorType, ...]
    line: str


@dataclass(frozen=True, eq=False)
class Graph:
    """Compared by identity; ``digest`` says whether two are the same epilogue.

    ``rows`` is how many logit rows a pass reads out; ``parameters`` are the pass's own inputs, in order.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[Reference, ...]
    parameters: tuple[TensorType, ...]
    vocabulary: int
    rows: int

    @cached_property
    def hidden(self) -> int:
        """The width of the hidden states that it reads; 0 where it reads none."""
        return next((node.types[0].shape[-1] for node in self.nodes if node.kind.name == "hidden"), 0)

    @cached_property
    def reads_logits(self) -> bool:
        """Whether it needs its rows' logits: what reads hidden states alone doesn't."""
        return not self.hidden or any(node.kind.name == "logits" for node in self.nodes)

    def type_of(self, reference: Reference) -> TensorType:
        return self.nodes[reference.node].types[reference.result]

    @cached_property
    def digest(self) -> str:
        """Equal for two epilogues that compute the same nodes in the same order, wherever they were written."""
        nodes = [
            [node.kind.name, [(ref.node, ref.result) for ref in node.inputs], node.attributes, node.types]
            for node in self.nodes
        ]
        outputs = [(ref.node, ref.result) for ref in self.outputs]
        text = json.dumps([self.vocabulary, self.rows, self.parameters, nodes, outputs], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def last_uses(self) -> dict[int, int]:
        """For each node, the last node that reads it; outputs live to the end."""
        last = {ref.node: index for index, node in enumerate(self.nodes) for ref in node.inputs}
        return last | {ref.node: len(self.nodes) for ref in self.outputs}

    @property
    def peak_bytes(self) -> int:
        """The most that one pass's values take at a time."""
        sizes = [sum(_nbytes(result) for result in node.types) for node in self.nodes]
        ends: dict[int, list[int]] = {}
        for index in range(len(self.nodes)):
            ends.setdefault(self.last_uses[index], []).append(index)
        live = peak = 0
        for index, size in enumerate(sizes):
            live += size
            peak = max(peak, live)
            live -= sum(sizes[dead] for dead in ends.get(index, ()))
        return peak


def prune(graph: Graph) -> Graph:
    """Without the nodes that no output needs, renumbered. Parameters stay: a pass gives them all."""
    needed: set[int] = set()
    pending = [ref.node for ref in graph.outputs]
    while pending:
        index = pending.pop()
        if index not in needed:
            needed.add(index)
            pending += [ref.node for ref in graph.nodes[index].inputs]
    kept = sorted(needed)
    number = {old: new for new, old in enumerate(kept)}

    def moved(references: tuple[Reference, ...]) -> tuple[Reference, ...]:
        return tuple(Reference(number[ref.node], ref.result) for ref in references)

    nodes = (graph.nodes[index] for index in kept)
    return Graph(
        tuple(Node(node.kind, moved(node.inputs), node.attributes, node.types, node.line) for node in nodes),
        moved(graph.outputs),
        graph.parameters,
        graph.vocabulary,
        graph.rows,
    )


def _nbytes(tensor: TensorType) -> int:
    total = tensor.dtype.storage.nbytes
    for extent in tensor.shape:
        total *= extent
    return total
