"""HTTP from inside of an inferlet: what a program gets, what it can catch, and what goes on beside it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from pie_edge.errors import PieError
from tests.host.hosting import finish, hosting
from tests.host.serving import Asked, Tool, answer, echo, serving

HEAD = "import asyncio\nfrom inferlet import errors, http\n"


def ask(source: str, answering: Callable[[Asked], bytes | None] = echo, **limits: Any) -> tuple[Any, Tool]:
    async def inside() -> tuple[Any, Tool]:
        async with serving(answering) as tool, hosting(**{"http": (tool.host,), **limits}) as (host, _):
            ended = await finish(host, HEAD + source, {"url": tool.url}, name="program")
            assert ended.error is None, ended.traceback or ended.error
            for _turn in range(100):
                if tool.open == 0:
                    break
                await asyncio.sleep(0.01)
            assert tool.open == 0, "a connection outlives its inferlet"
            return ended.result, tool

    return asyncio.run(inside())


def test_a_program_gets_an_answer_s_every_part() -> None:
    result, tool = ask(
        """
async def main(input):
    r = await http.post(input["url"] + "x?a=1", json={"k": [1, "ä"]}, headers={"X-Own": "1"}, timeout=5)
    return r.status, r.ok, r.url, r.header("X-MANY"), r.header("none"), r.text, r.json(), list(r.body)
""",
        lambda asked: (
            answer(asked.body, X_Many="1")[: -len(asked.body)].replace(b"\r\n\r\n", b"\r\nX-Many: 2\r\n\r\n")
            + asked.body
        ),
    )
    document = '{"k": [1, "\\u00e4"]}'
    assert result == [200, True, tool.url + "x?a=1", "1, 2", None, document, {"k": [1, "ä"]}, list(document.encode())]
    assert tool.asked[0].headers["content-type"] == "application/json"
    assert tool.asked[0].headers["x-own"] == "1"


def test_a_long_body_arrives_whole() -> None:
    body = bytes(range(256)) * 4096  # in pieces: no call takes long
    result, _ = ask(
        """
import zlib
async def main(input):
    r = await http.get(input["url"])
    return len(r.body), zlib.crc32(r.body)
""",
        lambda asked: answer(body),
    )
    assert result == [len(body), zlib.crc32(body)]


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/html; charset=iso-8859-1", "grüße".encode("latin-1"), "grüße"),
        ('text/plain; charset="utf-8"', "grüße".encode(), "grüße"),
        ("text/plain; charset=nonsense", "grüße".encode(), "grüße"),
        ("text/plain", b"\xff", "�"),
    ],
)
def test_text_is_decoded_by_its_charset(kind: str, body: bytes, text: str) -> None:
    source = "async def main(input): return (await http.get(input['url'])).text"
    assert ask(source, lambda asked: answer(body, Content_Type=kind))[0] == text


ERRORS = {
    "a status of failure": (
        "(await http.get(url + 'nothing')).raise_for_status()",
        "HttpError",
        "with status 404: no such page",
    ),
    "a host that isn't allowed": ("await http.get('http://example.org/')", "HttpDenied", "may not ask example.org:80"),
    "a timeout": ("await http.get(url + 'slow', timeout=0.05)", "HttpError", "within 0.05 s"),
    "a scheme": ("await http.get('ftp://x/')", "UsageError", "give http://HOST"),
    "two bodies": ("await http.post(url, json=1, body='x')", "UsageError", "give json or body"),
    "a timeout of nothing": ("await http.get(url, timeout=0)", "UsageError", "must be above 0"),
    "fewer than no redirects": ("await http.get(url, redirects=-1)", "UsageError", "must be 0 or more"),
    "a method": ("await http.request('BREW', url)", "UsageError", "the method 'BREW'"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_goes_wrong_is_an_error_that_the_program_can_catch(case: str) -> None:
    statement, kind, said = ERRORS[case]
    result, _ = ask(f"""
async def main(input):
    url = input["url"]
    try:
        {statement}
    except errors.PieError as error:
        return type(error).__name__, str(error)
""")
    assert result[0] == kind
    assert said in result[1]
    assert issubclass(getattr(__import__("pie_edge.errors").errors, kind), PieError)


def test_requests_go_side_by_side_with_one_another_and_with_everything_else() -> None:
    """Thirty answers that each take 50 ms, a timer, and a pass; more than so many at once wait their turn."""
    delayed = """
import time
async def main(input):
    start = time.monotonic()
    async def one(i): return int((await http.get(input["url"] + f"echo?q={i}")).text)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(i)) for i in range(30)]
        group.create_task(asyncio.sleep(0.01))
    return [task.result() for task in tasks], time.monotonic() - start
"""
    for at_once in (32, 3):
        (result, took), tool = ask(delayed, http_at_once=at_once)
        assert result == list(range(30))
        assert took < 5
        assert len(tool.asked) == 30


def test_a_request_that_nobody_waits_for_any_more_is_broken_off_and_makes_room_for_the_next() -> None:
    source = """
async def main(input):
    try:
        await asyncio.wait_for(http.get(input["url"] + "slow"), 0.05)
    except TimeoutError:
        return (await http.get(input["url"] + "echo?q=next")).text
"""
    result, tool = ask(source, http_at_once=1)
    assert result == "next"
    assert [asked.path for asked in tool.asked] == ["/slow", "/echo?q=next"]


def test_a_request_that_is_cancelled_before_it_was_sent_is_never_sent() -> None:
    source = """
async def main(input):
    task = asyncio.ensure_future(http.get(input["url"] + "echo?q=first"))
    await asyncio.sleep(0)
    task.cancel()
    return (await http.get(input["url"] + "echo?q=second")).text
"""
    result, tool = ask(source)
    assert result == "second"
    assert [asked.path for asked in tool.asked] == ["/echo?q=second"]


def test_a_request_that_nobody_waits_for_any_more_ends_with_its_program() -> None:
    source = """
async def main(input):
    try:
        await asyncio.wait_for(http.get(input["url"] + "slow"), 0.05)
    except TimeoutError:
        return "gave up"
"""
    assert ask(source)[0] == "gave up"
