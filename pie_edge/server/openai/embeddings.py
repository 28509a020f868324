"""``POST /v1/embeddings``: vectors of texts, where the model gives any."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from pie_edge.server import streams, wire
from pie_edge.server.generation import Service
from pie_edge.server.openai.completions_request import Tokens
from pie_edge.server.openai.errors import check_model
from pie_edge.server.openai.parameters import Parameters, accepted, parse, refused

MOST_INPUTS = 2048


class EmbeddingsBody(Parameters):
    input: str | Tokens | Annotated[list[str] | list[Tokens], Field(min_length=1, max_length=MOST_INPUTS)]
    model: str
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Any = refused("vectors have the model's own length")
    user: str | None = accepted("there is one user")

    NOTES: ClassVar[Mapping[str, str]] = {
        "input": f"a text, tokens, or up to {MOST_INPUTS} of them",
        "model": "the one that is served",
    }

    def texts(self) -> list[str | Sequence[int]]:
        given: Any = self.input
        return [given] if isinstance(given, str) or isinstance(given[0], int) else given


async def create(service: Service, request: Request) -> Response:
    body = parse(EmbeddingsBody, await request.body())
    check_model(body.model, service.card)
    vectors, tokens = await streams.attended(request, service.embed(body.texts()))
    packed = body.encoding_format == "base64"
    shown = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if packed else vector}
        for index, vector in enumerate(vectors)
    ]
    used = {"prompt_tokens": tokens, "total_tokens": tokens}
    return wire.json_response({"object": "list", "data": shown, "model": service.card.name, "usage": used})


def _packed(vector: Sequence[float]) -> str:
    """As little-endian 32-bit floats."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
