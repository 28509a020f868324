"""``GET /v1/models``: the one that is served."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pie_edge.server import wire
from pie_edge.server.generation import Card, Service
from pie_edge.server.openai.errors import check_model


async def index(service: Service, request: Request) -> Response:
    return wire.json_response({"object": "list", "data": [_shown(service.card)]})


async def show(service: Service, request: Request) -> Response:
    check_model(request.path_params["model"], service.card)
    return wire.json_response(_shown(service.card))


def _shown(card: Card) -> dict[str, Any]:
    return {
        "id": card.name,
        "object": "model",
        "created": card.created,
        "owned_by": "pie-edge",
        "max_model_len": card.context,
    }
