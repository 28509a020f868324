"""An exception that nobody expects, in the midst of any API's answer: the client is told, and the generation is closed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Message

from pie_edge.config import ServeSettings
from pie_edge.errors import Disconnected
from pie_edge.server import streams, wire
from pie_edge.server.admission import Admission
from pie_edge.server.app import build
from pie_edge.server.generation import Began, CallArguments, CallBegan, Ended, Event, Kept, Piece, Request, Usage
from tests.server.test_left import EMBEDDED, GENERATED, STREAMED
from tests.server.told import CARD, Told, answer

GOOGLE = "/v1beta/models/tiny:streamGenerateContent"
STREAMS = {**STREAMED, f"{GOOGLE}?alt=sse": STREAMED[GOOGLE]}
EVENTS = [Began(12, 8), *(Piece(0, f"word{number} ") for number in range(40)), Ended(0, "stop"), Usage(12, 8, 40)]


class Turned(Told):
    """Each generation takes a turn of two, and yields it when it is closed, as the engine's do."""

    def __init__(self, fault: Exception | None) -> None:
        super().__init__(EVENTS, replace(CARD, embeds=True, hidden=2))
        self.admission = Admission(2, 8)
        self.fault = fault
        self.forgotten: list[str] = []

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        self.asked.append(request)
        async with self.admission.turn():
            for number, event in enumerate(self.events):
                await asyncio.sleep(0)
                if self.fault is not None and number == 3:
                    raise self.fault
                if isinstance(event, Usage) and request.keep is not None:
                    yield Kept((1, 2, 3))
                assert not isinstance(event, Exception | float)
                yield event

    async def embed(self, *_: Any) -> Any:
        raise self.fault or AssertionError("nobody asks for vectors here")

    async def forget(self, name: str) -> None:
        self.forgotten.append(name)


Send = Callable[[Message], Any]


async def asked(service: Turned, path: str, body: dict[str, Any] | str, send: Send | None = None) -> tuple[int, str]:
    """The status and the body. By then its turn must be back."""
    sent: list[Message] = []
    whole = body if isinstance(body, str) else json.dumps(body)
    incoming = [{"type": "http.request", "body": whole.encode(), "more_body": False}]

    async def receive() -> Message:
        if not incoming:
            await asyncio.get_running_loop().create_future()
        return incoming.pop()

    async def keep(message: Message) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    more = {"headers": headers, "http_version": "1.1", "asgi": {"version": "3.0"}, "scheme": "http", "client": None}
    async with asyncio.timeout(10):
        # What was answered with 500 is the server's to log, and a client that left is the gate's.
        with suppress(ValueError, IndexError, Disconnected):
            await build(service, ServeSettings(), []).asgi({**scope, **more}, receive, send or keep)
    # At once, and not when a collector of garbage comes by.
    assert service.admission.working == 0
    text = b"".join(message.get("body", b"") for message in sent).decode()
    return (sent[0]["status"] if sent else 0), text


def told_once(path: str, text: str) -> str:
    """The message of the one error event that ends a stream."""
    if path == GOOGLE:
        [error] = [one["error"] for one in json.loads(text) if "error" in one]
        return str(error["message"])
    lines = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    found = [line.get("response", line)["error"] for line in lines if line.get("response", line).get("error")]
    [error] = found
    assert found[-1] == lines[-1].get("response", lines[-1])["error"]
    return str(error["message"])


@pytest.mark.parametrize(("path", "body"), STREAMS.items())
@pytest.mark.parametrize(
    "fault", [ValueError("inf is no JSON"), KeyError("choice"), ExceptionGroup("two", [OSError()])]
)
def test_a_stream_ends_with_an_error_event_and_gives_its_turn_back(
    path: str, body: dict[str, Any], fault: Exception
) -> None:
    service = Turned(fault)
    status, text = asyncio.run(asked(service, path, body))
    assert status == 200 and "word0" in text
    message = told_once(path, text)
    assert type(fault).__name__ in message and "please report it" in message


@pytest.mark.parametrize(("path", "body"), STREAMS.items())
def test_an_event_that_can_t_be_written_ends_the_stream_so_too(
    path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, write = Turned(None), wire.text

    def text(value: Any) -> str:
        written = write(value)
        if "word7" in written and '"error"' not in written.replace('"error":null', ""):
            raise ValueError("Out of range float values are not JSON compliant: inf")
        return written

    monkeypatch.setattr(wire, "text", text)
    status, found = asyncio.run(asked(service, path, body))
    assert status == 200 and "word6" in found
    assert "Out of range" in told_once(path, found)


@pytest.mark.parametrize(("path", "body"), [*GENERATED.items(), *EMBEDDED.items()])
def test_an_answer_that_comes_whole_is_the_provider_s_500_and_gives_its_turn_back(
    path: str, body: dict[str, Any]
) -> None:
    service = Turned(ValueError("inf is no JSON"))
    status, text = asyncio.run(asked(service, path, body))
    assert status == 500 and "please report it" in json.loads(text)["error"]["message"]


@pytest.mark.parametrize(("path", "body"), [*GENERATED.items()])
def test_an_answer_that_can_t_be_put_together_gives_its_turn_back(path: str, body: dict[str, Any]) -> None:
    service = Turned(None)
    service.events = [Began(12, 8), *(Piece(7, "of a choice that there isn't") for _ in range(9)), *answer()]
    asyncio.run(asked(service, path, body))


@pytest.mark.parametrize(("path", "body"), STREAMS.items())
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_client_that_can_t_be_written_to_gives_its_turn_back(path: str, body: dict[str, Any], after: int) -> None:
    service, sent = Turned(None), 0

    async def send(message: Message) -> None:
        nonlocal sent
        sent += 1
        if sent > after:
            raise Disconnected("the client read nothing")

    asyncio.run(asked(service, path, body, send))
    assert sent == after + 1


def test_streams_side_by_side_are_closed_while_nobody_takes_what_they_have() -> None:
    closed: list[int] = []

    async def words(number: int) -> AsyncGenerator[int, None]:
        try:
            while True:
                await asyncio.sleep(0)
                yield number
        finally:
            closed.append(number)

    async def body() -> None:
        both = streams.merged([words(0), words(1)])
        await anext(both)
        await asyncio.sleep(0.05)  # what is on its way is as much as may be
        async with asyncio.timeout(5):
            await both.aclose()

    asyncio.run(body())
    assert sorted(closed) == [0, 1]


@pytest.mark.parametrize("stream", [False, True])
def test_pages_kept_for_a_response_that_isn_t_stored_are_given_back(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Turned(None)

    def broken(*_: Any) -> Any:
        raise ValueError("the store is broken")

    monkeypatch.setattr("pie_edge.server.openai.responses_store.Store.add", broken)
    asyncio.run(asked(service, "/v1/responses", {"model": "tiny", "input": "hi", "stream": stream}))
    [name] = service.forgotten
    assert name.startswith("resp_")


@pytest.mark.parametrize("stream", [False, True])
def test_pages_kept_for_a_stored_response_stay(stream: bool) -> None:
    service = Turned(None)
    status, _ = asyncio.run(asked(service, "/v1/responses", {"model": "tiny", "input": "hi", "stream": stream}))
    assert status == 200 and service.forgotten == []


TOOLS = {"a": 1e400, "b": 2}
OVERFLOWING: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/responses": ({"tools": [{"type": "function", "name": "f", "parameters": TOOLS}]}, "tools[0].parameters.a"),
    "/v1/chat/completions": (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": TOOLS}}]},
        "tools[0].function.parameters.a",
    ),
    "/v1/messages": ({"tools": [{"name": "f", "input_schema": TOOLS}]}, "tools[0].input_schema.a"),
    "/v1beta/models/tiny:generateContent": (
        {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": TOOLS}]}]},
        "tools[0].functionDeclarations[0].parametersJsonSchema.a",
    ),
}


@pytest.mark.parametrize("path", OVERFLOWING)
@pytest.mark.parametrize("number", ["1e999", "-1E+400"])
def test_a_number_that_overflows_is_refused_at_its_place(path: str, number: str) -> None:
    more, place = OVERFLOWING[path]
    service = Turned(None)
    text = json.dumps(GENERATED[path] | more).replace("Infinity", number)
    status, found = asyncio.run(asked(service, path, text))
    assert (status, service.asked) == (400, [])
    message = json.loads(found)["error"]["message"]
    assert place in message and number in message


def test_items_of_a_response_have_no_infinite_numbers_to_be_shown_again() -> None:
    part = {"type": "output_text", "text": "so", "annotations": [1e400]}
    item = {"role": "assistant", "content": [part]}
    body = json.dumps({"model": "tiny", "input": [item]}).replace("Infinity", "1e999")
    status, found = asyncio.run(asked(Turned(None), "/v1/responses", body))
    assert (status, json.loads(found)["error"]["param"]) == (400, "input[0].content[0].annotations[0]")


CALLED = [CallBegan(0, 0, "call12345", "f"), CallArguments(0, 0, '{"a": [1e999, {"b": -1e999}]}')]


def test_arguments_of_the_model_s_that_overflow_are_the_nearest_numbers() -> None:
    nearest = {"a": [sys.float_info.max, {"b": -sys.float_info.max}]}

    def called(path: str) -> Any:
        service = Turned(None)
        service.events = answer(*CALLED, reason="calls")
        status, found = asyncio.run(asked(service, path, GENERATED[path]))
        assert status == 200
        return json.loads(found)

    assert called("/v1/messages")["content"][0]["input"] == nearest
    [candidate] = called("/v1beta/models/tiny:generateContent")["candidates"]
    assert candidate["content"]["parts"][0]["functionCall"]["args"] == nearest
