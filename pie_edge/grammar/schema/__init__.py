"""JSON Schemas: what can be enforced is written for the matching library, everything else refused."""

from pie_edge.grammar.schema.prepare import Prepared, prepare

__all__ = ["Prepared", "prepare"]
