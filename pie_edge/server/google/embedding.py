"""``embedContent`` and ``batchEmbedContents``: vectors of texts, where the model gives any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from pie_edge.errors import UsageError
from pie_edge.server import streams, wire
from pie_edge.server.generation import Service
from pie_edge.server.google.contents import Content
from pie_edge.server.google.wire import Whole, Wire
from pie_edge.server.naming import check_model
from pie_edge.server.refusals import read

MOST_INPUTS = 2048


class EmbedBody(Wire):
    content: Content
    task_type: (
        Literal[
            "TASK_TYPE_UNSPECIFIED",
            "RETRIEVAL_QUERY",
            "RETRIEVAL_DOCUMENT",
            "SEMANTIC_SIMILARITY",
            "CLASSIFICATION",
            "CLUSTERING",
            "QUESTION_ANSWERING",
            "FACT_VERIFICATION",
            "CODE_RETRIEVAL_QUERY",
        ]
        | None
    ) = None
    title: str | None = None
    output_dimensionality: Whole | None = Field(None, ge=1)
    model: str | None = None
    """The path's, again."""

    def text(self) -> str:
        """Of all parts. Raises UsageError for parts that are no text, and where there is none."""
        texts = [part.text for part in self.content.parts if part.text is not None]
        if len(texts) < len(self.content.parts) or not any(texts):
            raise UsageError("content: vectors are of text; give parts with text")
        return "".join(texts)


class BatchBody(Wire):
    requests: list[EmbedBody] = Field(min_length=1, max_length=MOST_INPUTS)


async def one(request: Request, service: Service) -> Response:
    (vector,) = await _vectors(request, service, [await read(EmbedBody, request)])
    return wire.json_response({"embedding": vector})


async def several(request: Request, service: Service) -> Response:
    body = await read(BatchBody, request)
    return wire.json_response({"embeddings": await _vectors(request, service, body.requests)})


async def _vectors(request: Request, service: Service, bodies: Sequence[EmbedBody]) -> list[dict[str, Sequence[float]]]:
    card = service.card
    for body in bodies:
        if body.model is not None:
            check_model(body.model.removeprefix("models/"), card)
    sizes = {body.output_dimensionality for body in bodies}
    if len(sizes) > 1:
        raise UsageError("requests: their outputDimensionality differs; send those of one size together")
    (size,) = sizes
    if size is not None and card.embeds and size > card.hidden:
        raise UsageError(f"outputDimensionality is {size}; vectors of {card.name} have {card.hidden}")
    vectors, _ = await streams.attended(request, service.embed([body.text() for body in bodies], size))
    return [{"values": list(vector)} for vector in vectors]
