"""Batches of requests from a file: over an application in this process, and over a server at an address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pie_edge.errors import Disconnected, UsageError
from pie_edge.server.batch.calls import InProcess, Remote
from pie_edge.server.batch.lines import Answer
from pie_edge.server.batch.work import Batch
from tests.server.loopback import serving


class Endpoint:
    """Answers what it is asked; remembers how many were under way at once. ``busy`` requests are told to come again."""

    def __init__(self, busy: int = 0, delay: float = 0.0) -> None:
        self.asked: list[Any] = []
        self.most = 0
        self._now = 0
        self._busy = busy
        self._delay = delay
        self.routes = [Route("/v1/chat/completions", self.answer, methods=["POST"])]

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        if self._busy:
            self._busy -= 1
            return JSONResponse({"error": "busy"}, 429)
        self.asked.append(body)
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(self._delay)
        self._now -= 1
        if body.get("fail"):
            return PlainTextResponse("oh", 500)
        return JSONResponse({"echo": body, "key": request.headers.get("authorization")}, headers={"x-request-id": "r1"})


def line(name: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}


def write(path: Path, lines: Sequence[Any]) -> Path:
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines), encoding="utf-8")
    return path


def answers(path: Path) -> list[Any]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def run(endpoint: Endpoint, source: Path, target: Path, parallel: int = 4) -> Batch:
    batch = Batch(InProcess(Starlette(routes=endpoint.routes)), parallel, pause=0.01)
    asyncio.run(batch.run(source, target))
    return batch


def test_each_line_gets_its_answer(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [line("a", text="ü"), "", line("b", fail=True)])
    batch = run(Endpoint(), source, tmp_path / "out")
    first, second = sorted(answers(tmp_path / "out"), key=lambda one: one["custom_id"])
    assert first["id"].startswith("batch_req_") and first["error"] is None
    assert first["response"] == {
        "status_code": 200,
        "request_id": "r1",
        "body": {"echo": {"text": "ü"}, "key": None},
    }
    assert second["response"] == {"status_code": 500, "request_id": "", "body": "oh"}
    assert (batch.tally.total, batch.tally.done, batch.tally.failed) == (2, 2, 1)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ([], "an object with a custom_id"),
        ({"custom_id": 5}, "an object with a custom_id"),
        (line("a", n=2), "line 1 has the custom_id 'a' already"),
        (line("x") | {"method": "GET"}, "the method is 'GET'"),
        (line("x") | {"url": "/v1/models"}, "the url is '/v1/models'"),
        (line("x") | {"body": "{}"}, "the body is str"),
        (line("x") | {"model": "tiny"}, "model, which no request has"),
        (line("x", stream=True), "leave stream out"),
        ('{"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"seed": 1e999}}', "as 1e999"),
        ('{"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"seed": NaN}}', "as 1e999"),
    ],
)
def test_a_line_that_is_no_request_gets_an_error_and_harms_no_other(tmp_path: Path, bad: Any, told: str) -> None:
    source, target = write(tmp_path / "in", [line("a", n=1), bad, line("b")]), tmp_path / "out"
    endpoint = Endpoint()
    assert run(endpoint, source, target).tally.failed == 1
    [error] = [one for one in answers(target) if one["error"]]
    assert told in error["error"]["message"] and error["error"]["line"] == 2 and error["response"] is None
    assert len(endpoint.asked) == 2
    again = run(endpoint, source, target)
    assert (again.tally.before, again.tally.done, len(answers(target))) == (3, 0, 3), "and it stays at one"


def test_many_are_under_way_at_once_and_no_more_than_that(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [line(str(number)) for number in range(40)])
    endpoint = Endpoint(delay=0.01)
    run(endpoint, source, tmp_path / "out", parallel=8)
    assert (len(endpoint.asked), endpoint.most) == (40, 8)


def test_a_busy_server_is_asked_again(tmp_path: Path) -> None:
    batch = run(Endpoint(busy=3), write(tmp_path / "in", [line("a"), line("b")]), tmp_path / "out")
    assert (batch.tally.done, batch.tally.failed) == (2, 0)


def test_an_interrupted_batch_goes_on_where_it_was(tmp_path: Path) -> None:
    source, target = (
        write(tmp_path / "in", [line(str(number), number=number) for number in range(20)]),
        tmp_path / "out",
    )
    endpoint = Endpoint(delay=0.005)

    async def interrupted() -> None:
        batch = Batch(
            InProcess(Starlette(routes=endpoint.routes)), 2, lambda tally: tally.done == 7 and task.cancel() and None
        )
        task = asyncio.create_task(batch.run(source, target))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    kept = len(answers(target))
    assert 7 <= kept < 20
    with target.open("a") as file:
        file.write('{"id": "batch_req_1", "custom')  # as if the machine had failed in the middle
    second = run(endpoint, source, target)
    assert (second.tally.before, second.tally.done) == (kept, 20 - kept)
    assert sorted(int(one["custom_id"]) for one in answers(target)) == list(range(20))


def test_files_that_cant_be_used_are_named(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [line("a")])
    with pytest.raises(UsageError, match="nothing can't be read"):
        run(Endpoint(), tmp_path / "nothing", tmp_path / "out")
    with pytest.raises(UsageError, match="has no answer of a batch in line 1"):
        run(Endpoint(), source, source)
    assert len(answers(source)) == 1, "and are left as they were"


def test_a_server_at_an_address(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in", [line("a", text="ü")]), tmp_path / "out"
    with serving(Endpoint().routes) as address:
        asyncio.run(Batch(Remote(address, "secret", 2), 2).run(source, target))
    [answer] = answers(target)
    assert answer["response"]["body"] == {"echo": {"text": "ü"}, "key": "Bearer secret"}


def test_a_server_that_never_answers_is_told_of(tmp_path: Path) -> None:
    async def gone(url: str, body: bytes) -> Answer:
        raise Disconnected("nobody there")

    with pytest.raises(Disconnected, match="nobody there"):
        asyncio.run(Batch(gone, 2, pause=0.001).run(write(tmp_path / "in", [line("a")]), tmp_path / "out"))
    with pytest.raises(UsageError, match="no server's address"):
        Remote("localhost:80", None, 1)
