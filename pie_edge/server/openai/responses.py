"""``/v1/responses``: answers that are kept, and conversations that go on from them."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from pie_edge.errors import PieError
from pie_edge.server import streams, wire
from pie_edge.server.generation import After, Conversation, Event, Kept, Request, Service
from pie_edge.server.openai import errors, items
from pie_edge.server.openai.messages import check_calls
from pie_edge.server.openai.parameters import parse
from pie_edge.server.openai.responses_output import Output
from pie_edge.server.openai.responses_request import ResponsesBody
from pie_edge.server.openai.responses_store import Store, Stored


class Responses:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, service: Service, request: HttpRequest) -> Response:
        body = parse(ResponsesBody, await request.body())
        errors.check_model(body.model, service.card)
        job = _Job(body, service, self._store)
        asked = job.request()
        events = errors.placed(service.generate(asked), "input", errors.form_of(asked, "text.format.schema"))
        if body.stream:
            return await streams.streamed(request, events, job.lines, job.failed)
        return wire.json_response(await streams.whole(request, events, job.whole))

    async def show(self, service: Service, request: HttpRequest) -> Response:
        if request.query_params.get("stream", "false") != "false":
            raise errors.BadRequest("a response is streamed while it is made, and not again", "stream")
        return wire.json_response(self._store.find(request.path_params["id"]).response)

    async def delete(self, service: Service, request: HttpRequest) -> Response:
        found = self._store.find(request.path_params["id"])
        self._store.remove(found.id)
        if found.tokens is not None:
            await service.forget(found.id)
        return wire.json_response({"id": found.id, "object": "response", "deleted": True})

    async def inputs(self, service: Service, request: HttpRequest) -> Response:
        """Of a stored response: what came in with it."""
        found = self._store.find(request.path_params["id"])
        listed = list(found.input)
        if request.query_params.get("order", "desc") == "desc":
            listed.reverse()
        ends = (listed[0]["id"], listed[-1]["id"]) if listed else (None, None)
        return wire.json_response(
            {"object": "list", "data": listed, "first_id": ends[0], "last_id": ends[1], "has_more": False}
        )


class _Job:
    """A response that is being made."""

    def __init__(self, body: ResponsesBody, service: Service, store: Store) -> None:
        self._body = body
        self._service = service
        self._card = service.card
        self._store = store
        self._id = f"resp_{secrets.token_hex(24)}"
        self._created = time.time()
        self._output = Output(body.logprobs is not None)
        self._number = 0
        self._tokens: tuple[int, ...] | None = None
        self._previous = None if body.previous_response_id is None else store.previous(body.previous_response_id)
        assert body.input is not None
        earlier = [] if self._previous is None else self._previous.messages
        self._messages = [*earlier, *items.messages(body.input)]
        answered = ["previous_response_id" for one in earlier if one["role"] == "tool"]
        called = ["previous_response_id" for one in earlier for _ in one.get("tool_calls") or ()]
        check_calls(
            self._messages,
            "input",
            [*answered, *items.answers(body.input)],
            [*called, *items.arguments(body.input)],
        )
        self._thinking = body.thinks(self._card)

    def request(self) -> Request:
        """Raises BadRequest."""
        body = self._body
        choice, tools = body.chosen_tools(self._card)
        system = [] if body.instructions is None else [{"role": "system", "content": body.instructions}]
        return Request(
            prompt=Conversation(
                messages=[*system, *self._messages],
                tools=tools,
                thinking=self._thinking,
                after=self._after(tools, len(system)),
                shorten=body.truncation == "auto",
            ),
            max_tokens=body.max_output_tokens,
            sampling=body.sampling(),
            logprobs=body.logprobs,
            tool_choice=choice,
            parallel_calls=body.parallel_tool_calls is not False,
            constraint=body.constraint(),
            keep=self._id if body.stored else None,
            keep_seconds=self._store.seconds,
        )

    def _after(self, tools: list[dict[str, Any]], system: int) -> After | None:
        """Where this one begins, if that is with the same instructions and tools."""
        known = self._previous
        if known is None or known.tokens is None:
            return None
        if (known.instructions, known.tools, known.thinking) != (self._body.instructions, tools, self._thinking):
            return None
        return After(known.id, known.tokens, system + len(known.messages))

    async def whole(self, events: AsyncIterator[Event]) -> Mapping[str, Any]:
        async with self._giving_back():
            async for event in events:
                for _ in self._take(event):
                    pass
            return self._ended()

    async def lines(self, events: AsyncIterator[Event]) -> AsyncGenerator[str, None]:
        async with self._giving_back():
            for kind in ("response.created", "response.in_progress"):
                yield self._line({"type": kind, "response": self._shown("in_progress")})
            async for event in events:
                for found in self._take(event):
                    yield self._line(found)
            response = self._ended()
            yield self._line({"type": f"response.{response['status']}", "response": response})

    def failed(self, error: PieError) -> str:
        told = errors.body(error)["error"]
        response = self._shown("failed") | {"error": {"code": "server_error", "message": told["message"]}}
        return self._line({"type": "response.failed", "response": response})

    @asynccontextmanager
    async def _giving_back(self) -> AsyncIterator[None]:
        """Pages that are kept for a response which then isn't stored are nobody's."""
        try:
            yield
        finally:
            if self._tokens is not None and not self._store.has(self._id):
                with suppress(PieError):
                    await self._service.forget(self._id)

    def _take(self, event: Event) -> Iterator[dict[str, Any]]:
        if isinstance(event, Kept):
            self._tokens = event.tokens
        return self._output.take(event)

    def _ended(self) -> Mapping[str, Any]:
        response = self._shown("completed" if self._output.reason is None else "incomplete")
        if self._body.stored:
            body = self._body
            self._store.add(
                Stored(
                    response,
                    items.listed(body.input),
                    [*self._messages, self._output.message()],
                    body.instructions,
                    body.chosen_tools(self._card)[1],
                    self._thinking,
                    self._tokens,
                )
            )
        return response

    def _shown(self, status: str) -> dict[str, Any]:
        reason = self._output.reason
        return {
            "id": self._id,
            "object": "response",
            "created_at": int(self._created),
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": None if reason is None else {"reason": reason},
            "model": self._card.name,
            "output": list(self._output.items),
            "usage": self._output.usage,
            **self._body.shown_settings(self._card.sampling),
        }

    def _line(self, found: dict[str, Any]) -> str:
        line = wire.event(found | {"sequence_number": self._number}, found["type"])
        self._number += 1
        return line
