"""``POST /v1/embeddings``: vectors of texts, where the model gives any."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from pie_edge.errors import ContextOverflow
from pie_edge.server import streams, wire
from pie_edge.server.generation import Card, Service
from pie_edge.server.openai.completions_request import Tokens, check_tokens, places, several
from pie_edge.server.openai.errors import BadRequest, TooLong, check_model
from pie_edge.server.openai.parameters import Parameters, accepted, parse

MOST_INPUTS = 2048
_SEVERAL = Field(min_length=1, max_length=MOST_INPUTS)
_Text = Annotated[str, Field(min_length=1)]


class EmbeddingsBody(Parameters):
    input: _Text | Tokens | Annotated[list[_Text], _SEVERAL] | Annotated[list[Tokens], _SEVERAL]
    model: str
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, ge=1)
    user: str | None = accepted("there is one user")

    NOTES: ClassVar[Mapping[str, str]] = {
        "input": f"a text, tokens, or up to {MOST_INPUTS} of them; tokens are taken as they are, a text as the tokenizer begins "
        "and ends it",
        "model": "the one that is served",
        "encoding_format": "`base64`: little-endian float32",
        "dimensions": "up to the model's own: the first ones of a vector, which then get the length 1",
    }

    def texts(self) -> list[str | Sequence[int]]:
        return several(self.input)

    def kept(self, card: Card) -> int | None:
        """How many entries of a vector are. Raises BadRequest for more than it has."""
        if self.dimensions is not None and card.embeds and self.dimensions > card.hidden:
            raise BadRequest(
                f"dimensions is {self.dimensions}; vectors of {card.name} have {card.hidden}", "dimensions"
            )
        return self.dimensions


async def create(service: Service, request: Request) -> Response:
    body = parse(EmbeddingsBody, await request.body())
    card = service.card
    check_model(body.model, card)
    check_tokens("input", body.input, card)
    try:
        vectors, tokens = await streams.attended(request, service.embed(body.texts(), body.kept(card)))
    except ContextOverflow as error:
        raise TooLong(error, places("input", body.input)[error.part or 0]) from None
    packed = body.encoding_format == "base64"
    shown = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if packed else list(vector)}
        for index, vector in enumerate(vectors)
    ]
    used = {"prompt_tokens": tokens, "total_tokens": tokens}
    return wire.json_response({"object": "list", "data": shown, "model": card.name, "usage": used})


def _packed(vector: Sequence[float]) -> str:
    """As little-endian 32-bit floats."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
