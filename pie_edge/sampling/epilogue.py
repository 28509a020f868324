"""An epilogue as the engine holds it, and ``parse``, the way in for what an inferlet traced."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from pie_edge.errors import EpilogueError
from pie_edge.program.node_types import Element, TensorType
from pie_edge.program.ops import Program
from pie_edge.sampling import wire
from pie_edge.sampling.check import check
from pie_edge.sampling.graph import Graph
from pie_edge.sampling.lower import NO_POOL, Pool, lower
from pie_edge.sampling.presets import recognise

CACHED_EPILOGUES = 256
MAX_EMBEDDED = 64
"""Entries of an output that later passes may embed without a channel."""


@dataclass(frozen=True)
class Epilogue:
    """A checked epilogue. Passes with equal ``digest`` may run in one call, each with ``rows`` rows of logits.

    ``returned`` of its outputs, the first ones, are given back; the others only go into channels.
    """

    graph: Graph
    returned: int

    @property
    def digest(self) -> str:
        return self.graph.digest

    @property
    def rows(self) -> int:
        """Rows a pass reads out."""
        return self.graph.rows

    @property
    def reads_logits(self) -> bool:
        return self.graph.reads_logits

    @property
    def reads_hidden(self) -> bool:
        return self.graph.hidden > 0

    @cached_property
    def outputs(self) -> tuple[TensorType, ...]:
        """``(dtype, shape)`` of what one pass gets back, in order; dtype is f32, i32, u32 or bool."""
        return tuple(self.graph.type_of(reference) for reference in self.graph.outputs)

    @property
    def parameters(self) -> tuple[TensorType, ...]:
        """``(dtype, shape)`` of what one pass gives, in order."""
        return self.graph.parameters

    @cached_property
    def embeddable(self) -> tuple[int, ...]:
        """The outputs, by number, that could be tokens of a later pass: whole numbers, one or a row of a few."""
        return tuple(number for number, tensor in enumerate(self.outputs) if could_be_tokens(tensor))

    def described(self, number: int) -> tuple[TensorType, int, str]:
        """An output's type, its entries, and ``line_of_output``."""
        return self._described[number]

    @cached_property
    def _described(self) -> tuple[tuple[TensorType, int, str], ...]:
        return tuple((one, prod(one.shape), self.line_of_output(number)) for number, one in enumerate(self.outputs))

    def line_of_output(self, number: int) -> str:
        """The author's line that made it, as the beginning of a message; empty where it isn't known."""
        return _where(self.graph.nodes[self.graph.outputs[number].node].line)

    def line_of_parameter(self, number: int) -> str:
        """The author's line that takes it, in the same way."""
        parameters = (node for node in self.graph.nodes if node.kind.name == "param")
        return next((_where(node.line) for node in parameters if dict(node.attributes)["index"] == number), "")

    @cached_property
    def preset(self) -> str | None:
        """The name of the preset it is, if it is one: ``argmax``, ``sample(temperature, top_p)``, …"""
        found = recognise(self.program(self.rows))
        return str(found) if found else None

    @cached_property
    def chooses_token(self) -> bool:
        """Whether its first output is one token of the vocabulary, which a next pass could embed unseen."""
        reference = self.graph.outputs[0]
        node = self.graph.nodes[reference.node]
        return node.kind.name in ("reduce_argmax", "gumbel_max") and (
            self.outputs[0].shape == () and self.graph.type_of(node.inputs[0]).shape == (self.graph.vocabulary,)
        )

    def passes(self, bucket_rows: int) -> int:
        """How many passes a call with ``bucket_rows`` rows has room for."""
        return bucket_rows // self.rows

    def program(
        self, bucket_rows: int, logits_rows: int | None = None, pool: Pool = NO_POOL, hidden_rows: int | None = None
    ) -> Program:
        """What a backend compiles for up to ``bucket_rows`` rows; the logits state has ``logits_rows``, or as many, and that of
        the hidden states ``hidden_rows``, or as many as the logits.

        See ``lower`` for its inputs and outputs. Raises EpilogueError where not even one pass fits.
        """
        passes, state = self.passes(bucket_rows), logits_rows or bucket_rows
        hidden = state if hidden_rows is None else hidden_rows
        if not passes or (self.reads_logits and state < self.rows) or (self.reads_hidden and hidden < self.rows):
            raise EpilogueError(
                f"the epilogue reads {self.rows} rows a pass; the bucket has {bucket_rows}, the logits {state} and the hidden "
                f"states {hidden}; read out fewer rows"
            )
        return lower(self.graph, passes, state, pool, hidden)


def could_be_tokens(tensor: TensorType, most: int = MAX_EMBEDDED) -> bool:
    """Whether a pass can embed it: one whole number, or a row of up to ``most``."""
    whole = tensor.dtype in (Element.U32, Element.I32)
    return whole and len(tensor.shape) < 2 and (tensor.shape or (1,))[0] <= most


def _where(line: str) -> str:
    return f"{line}: " if line else ""


def parse(text: str | bytes, *, vocabulary: int, rows: int, hidden: int = 0) -> Epilogue:
    """Read, check and cache an epilogue's wire form for passes that read out ``rows`` rows of ``vocabulary`` logits, and of
    ``hidden`` entries of a hidden state.

    Raises EpilogueError, with the author's line, for anything that isn't a well-typed epilogue within the limits; the
    text may be anything. The same text gives the same object.
    """
    if len(text) > wire.MAX_BYTES:
        wire.read(text)
    return _parse(text, vocabulary, max(rows, 1), hidden)


@lru_cache(maxsize=CACHED_EPILOGUES)
def _parse(text: str | bytes, vocabulary: int, rows: int, hidden: int) -> Epilogue:
    try:
        found = wire.read(text)
        return Epilogue(check(found, vocabulary, rows, hidden), len(found.outputs) - found.unreturned)
    except RecursionError:
        raise EpilogueError("the epilogue's wire form is nested too deeply") from None
