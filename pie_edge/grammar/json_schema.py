"""JSON Schemas: what can be enforced, and what is refused."""

from __future__ import annotations

import json

from pie_edge.errors import GrammarError


def prepare(text: str) -> str:
    """The schema as the library takes it. Raises GrammarError."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the schema is no JSON: {error}") from None
    return json.dumps(schema)
