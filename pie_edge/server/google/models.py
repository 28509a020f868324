"""The model that is served, as Google's API describes models."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from pie_edge.server import wire
from pie_edge.server.generation import Card
from pie_edge.server.naming import check_model
from pie_edge.server.refusals import Paging

_METHODS = ["generateContent", "streamGenerateContent", "countTokens"]
_EMBEDDING = ["embedContent", "batchEmbedContents"]
_SAMPLING = {"temperature": "temperature", "top_p": "topP", "top_k": "topK"}


PAGING = Paging("pageSize", 1000, ("pageToken",))
QUERY = {"alt": ("json",), "$alt": ("json",), "prettyPrint": ("true", "false")}


def models_response(card: Card) -> Response:
    """The list, which has one model, on one page."""
    return wire.json_response({"models": [_model(card)]})


def model_response(card: Card, name: str) -> Response:
    """Raises ModelNotFound for another name."""
    check_model(name, card)
    return wire.json_response(_model(card))


def _model(card: Card) -> dict[str, Any]:
    return {
        "name": f"models/{card.name}",
        "baseModelId": card.name,
        "version": "1",
        "displayName": card.description or card.name,
        "description": card.description,
        "inputTokenLimit": card.context,
        "outputTokenLimit": card.context,
        "supportedGenerationMethods": [*_METHODS, *(_EMBEDDING if card.embeds else ())],
        "thinking": card.thinks != "never",
        **{ours: _number(card.sampling[name]) for name, ours in _SAMPLING.items() if name in card.sampling},
    }


def _number(value: float) -> int | float:
    """Whole where it is: ``topK`` is an integer."""
    return int(value) if value == int(value) else value
