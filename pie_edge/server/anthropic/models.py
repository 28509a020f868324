"""``/v1/models`` in Anthropic's shape. The path is OpenAI's as well: a client of Anthropic's says so by the header
``anthropic-version``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from pie_edge.server import wire
from pie_edge.server.generation import Card
from pie_edge.server.naming import check_model
from pie_edge.server.refusals import Paging

PAGING = Paging("limit", 1000, ("after_id", "before_id"))
QUERY = {"beta": ("true",)}
"""As the SDK has it in all that it calls beta."""


def models_response(card: Card) -> Response:
    """The list, which has one model, on one page."""
    known = [_model(card)]
    return wire.json_response({"data": known, "has_more": False, "first_id": card.name, "last_id": card.name})


def model_response(card: Card, name: str) -> Response:
    """Raises ModelNotFound for another name."""
    check_model(name, card)
    return wire.json_response(_model(card))


def _model(card: Card) -> dict[str, Any]:
    return {
        "type": "model",
        "id": card.name,
        "display_name": card.description or card.name,
        "created_at": datetime.fromtimestamp(card.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": card.context,
        "max_tokens": card.context,
    }
