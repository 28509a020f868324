"""What is no HTTP is answered as everything else is."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.fronts import Answered, answer, tiny_front
from tests.server.test_providers import shape

HOST = b"Host: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


async def sent(url: str, data: bytes) -> Answered:
    host, port = url.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        return await answer(reader)
    finally:
        writer.close()


def bad_chunk(path: str) -> bytes:
    return b"POST " + path.encode() + b" HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\nzz\r\n"


CASES = {
    "a bad chunk of OpenAI's": (bad_chunk("/v1/chat/completions"), 400, "openai"),
    "a bad chunk of Anthropic's": (bad_chunk("/v1/messages"), 400, "anthropic"),
    "a bad chunk of Google's": (bad_chunk("/v1beta/models/tiny:generateContent"), 400, "google"),
    "a header of 200 kB": (b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 200_000 + b"\r\n\r\n", 431, ""),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400, ""),
    "no HTTP at all": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400, ""),
    "two lengths": (
        b"POST /v1/messages HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{",
        400,
        "",
    ),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Answered]:
    async def body() -> dict[str, Answered]:
        async with tiny_front("slow") as server:
            return {name: await sent(server.url, data) for name, (data, _, _) in CASES.items()}

    return asyncio.run(body())


@pytest.mark.parametrize("name", CASES)
def test_it_is_answered_in_json_with_a_request_id(name: str, answers: dict[str, Answered]) -> None:
    found, (_, status, whose) = answers[name], CASES[name]
    assert (found.status, found.headers["content-type"]) == (status, "application/json")
    assert found.headers["x-request-id"].startswith("req_") and found.headers["connection"] == "close"
    assert "no request of HTTP/1.1" in found.json["error"]["message"]
    assert not whose or shape(found.json) == whose
    if whose == "anthropic":
        assert found.json["request_id"] == found.headers["x-request-id"]
