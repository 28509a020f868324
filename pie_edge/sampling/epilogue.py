"""An epilogue as the engine holds it, and ``parse``, the way in for what an inferlet traced."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from pie_edge.errors import EpilogueError
from pie_edge.program.node_types import TensorType
from pie_edge.program.ops import Program
from pie_edge.sampling import wire
from pie_edge.sampling.check import check
from pie_edge.sampling.graph import Graph
from pie_edge.sampling.lower import lower
from pie_edge.sampling.presets import recognise

CACHED_EPILOGUES = 256


@dataclass(frozen=True)
class Epilogue:
    """A checked epilogue. Passes with equal ``digest`` may run in one call, each with ``rows`` rows of logits."""

    graph: Graph

    @property
    def digest(self) -> str:
        return self.graph.digest

    @property
    def rows(self) -> int:
        """Logit rows a pass reads out."""
        return self.graph.rows

    @cached_property
    def outputs(self) -> tuple[TensorType, ...]:
        """``(dtype, shape)`` of what one pass gets back, in order; dtype is f32, i32, u32 or bool."""
        return tuple(self.graph.type_of(reference) for reference in self.graph.outputs)

    @property
    def parameters(self) -> tuple[TensorType, ...]:
        """``(dtype, shape)`` of what one pass gives, in order."""
        return self.graph.parameters

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

    def program(self, bucket_rows: int, logits_rows: int | None = None, token_slots: int = 0) -> Program:
        """What a backend compiles for up to ``bucket_rows`` rows; the logits state has ``logits_rows``, or as many.

        With ``token_slots``, the size of the state ``tokens``, each pass's token is also kept in its slot there.

        See ``lower`` for its inputs and outputs. Raises EpilogueError where not even one pass fits.
        """
        passes, state = self.passes(bucket_rows), logits_rows or bucket_rows
        if not passes or state < self.rows:
            raise EpilogueError(
                f"the epilogue reads {self.rows} rows a pass; the bucket has {bucket_rows} and the logits {state}; "
                "read out fewer rows"
            )
        return lower(self.graph, passes, state, token_slots)


def parse(text: str | bytes, *, vocabulary: int, rows: int) -> Epilogue:
    """Read, check and cache an epilogue's wire form for passes that read out ``rows`` rows of ``vocabulary`` logits.

    Raises EpilogueError, with the author's line, for anything that isn't a well-typed epilogue within the limits; the
    text may be anything. The same text gives the same object.
    """
    if len(text) > wire.MAX_BYTES:
        wire.read(text)
    return _parse(text, vocabulary, max(rows, 1))


@lru_cache(maxsize=CACHED_EPILOGUES)
def _parse(text: str | bytes, vocabulary: int, rows: int) -> Epilogue:
    try:
        return Epilogue(check(wire.read(text), vocabulary, rows))
    except RecursionError:
        raise EpilogueError("the epilogue's wire form is nested too deeply") from None
