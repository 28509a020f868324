"""``embedContent`` and ``batchEmbedContents``: vectors of texts, where the model gives any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from pie_edge.errors import ContextOverflow, ModelNotFound, UsageError
from pie_edge.server import streams, wire
from pie_edge.server.generation import Card, Service
from pie_edge.server.google.contents import Content
from pie_edge.server.google.errors import TooLong
from pie_edge.server.google.wire import Whole, Wire
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

    def text(self, place: str) -> str:
        """Of all parts. Raises UsageError for parts that are no text, and where there is none."""
        texts = [part.text for part in self.content.parts if part.text is not None]
        if len(texts) < len(self.content.parts) or not any(texts):
            raise UsageError(f"{place}content: vectors are of text; give parts with text")
        return "".join(texts)

    def check(self, place: str, card: Card) -> None:
        """Raises ModelNotFound for another model, UsageError for more entries than a vector has."""
        if self.model is not None and self.model.removeprefix("models/") != card.name:
            raise ModelNotFound(
                f"{place}model: {self.model!r:.80} isn't here; the model that is served is {card.name!r}"
            )
        size = self.output_dimensionality
        if size is not None and card.embeds and size > card.hidden:
            raise UsageError(f"{place}outputDimensionality is {size}; vectors of {card.name} have {card.hidden}")


class BatchBody(Wire):
    requests: list[EmbedBody] = Field(min_length=1, max_length=MOST_INPUTS)


async def one(request: Request, service: Service) -> Response:
    (vector,) = await _vectors(request, service, [await read(EmbedBody, request)], [""])
    return wire.json_response({"embedding": vector})


async def several(request: Request, service: Service) -> Response:
    bodies = (await read(BatchBody, request)).requests
    places = [f"requests[{number}]." for number in range(len(bodies))]
    return wire.json_response({"embeddings": await _vectors(request, service, bodies, places)})


async def _vectors(
    request: Request, service: Service, bodies: Sequence[EmbedBody], places: Sequence[str]
) -> list[dict[str, Sequence[float]]]:
    """``places`` are what the fields of each body are told by."""
    card, size = service.card, bodies[0].output_dimensionality
    for place, body in zip(places, bodies, strict=True):
        body.check(place, card)
        if body.output_dimensionality != size:
            raise UsageError(
                f"{place}outputDimensionality: it is {_or_none(body.output_dimensionality)}, and {_or_none(size)} in "
                f"{places[0]}outputDimensionality; send those of one size together"
            )
    texts = [body.text(place) for place, body in zip(places, bodies, strict=True)]
    try:
        vectors, _ = await streams.attended(request, service.embed(texts, size))
    except ContextOverflow as error:
        raise TooLong(error, f"{places[error.part or 0]}content") from None
    return [{"values": list(vector)} for vector in vectors]


def _or_none(size: int | None) -> str:
    return "left out" if size is None else str(size)
