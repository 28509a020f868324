"""Messages between an inferlet and its client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pie_edge.errors import InferletCancelled, InferletError, InferletFailed, InferletTimeout, ResourceError
from pie_edge.host import State
from tests.host.hosting import run, together

ECHO = """
from inferlet import session
async def main(input):
    session.send("ready")
    while (text := await session.receive()) != "stop":
        session.send(text.upper())
    return "stopped"
"""


def test_messages_go_both_ways_in_order() -> None:
    async def body(host: Any, _: Any) -> None:
        instance = host.launch(ECHO, {})
        assert await instance.receive() == "ready"
        for text in ("one", "zwö", "\U0001f600"):
            instance.send(text)
        assert [await instance.receive() for _ in range(3)] == ["ONE", "ZWÖ", "\U0001f600"]
        instance.send("stop")
        assert (await instance.result()).result == "stopped"
        assert await instance.receive() is None
        assert instance.state is State.DONE
        with pytest.raises(InferletError, match="has ended"):
            instance.send("too late")

    together(body)


def test_messages_sent_before_the_program_asks_wait_for_it() -> None:
    async def body(host: Any, _: Any) -> list[Any]:
        instance = host.launch(
            "from inferlet import session\nasync def main(i): return [await session.receive() for _ in 'ab']", {}
        )
        instance.send("1")
        instance.send("2")
        return list((await instance.result()).result)

    assert together(body) == ["1", "2"]


def test_a_cancelled_receive_loses_no_message() -> None:
    source = """
import asyncio
from inferlet import session
async def main(input):
    for _ in range(3):
        try:
            await asyncio.wait_for(session.receive(), 0.005)
        except TimeoutError:
            pass
    session.send("now")
    return [await session.receive() for _ in range(2)]
"""

    async def body(host: Any, _: Any) -> Any:
        instance = host.launch(source, {})
        assert await instance.receive() == "now"
        instance.send("a")
        instance.send("b")
        return (await instance.result()).result

    assert together(body) == ["a", "b"]


def test_a_client_that_gives_up_waiting_loses_no_message() -> None:
    async def body(host: Any, _: Any) -> Any:
        instance = host.launch(ECHO, {})
        assert await instance.receive() == "ready"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(instance.receive(), 0.01)
        instance.send("x")
        answer = await instance.receive()
        instance.send("stop")
        await instance.result()
        return answer

    assert together(body) == "X"


def test_an_inferlet_whose_client_has_gone_is_told() -> None:
    async def body(host: Any, _: Any) -> None:
        instance = host.launch(ECHO, {})
        assert await instance.receive() == "ready"
        instance.hang_up()
        with pytest.raises(InferletFailed, match="no client is there") as caught:
            await instance.result()
        assert caught.value.cause == "resource"

    together(body)


def test_without_a_client_nothing_is_received_and_what_is_sent_is_text() -> None:
    ended = run(
        "from inferlet import session\nasync def main(input):\n    session.send('hello')\n    await session.receive()"
    )
    assert ended.text == "hello"
    assert "no client is there" in str(ended.error)


LONG = """
from inferlet import errors, session
async def main(input):
    try:
        for _ in range(input["times"]):
            session.send("x" * input["size"])
    except errors.ResourceError as error:
        return [error.code, str(error)]
"""


@pytest.mark.parametrize(
    ("size", "times", "said"), [(1001, 1, "1,001 characters; the most is 1,000"), (900, 9, "unread")]
)
def test_too_long_or_too_many_messages_are_refused(size: int, times: int, said: str) -> None:
    async def body(host: Any, _: Any) -> Any:
        instance = host.launch(LONG, {"size": size, "times": times})
        return (await instance.result()).result

    code, message = together(body, message=1000, unread=5000)
    assert code == "resource"
    assert said in message


def test_a_message_to_an_inferlet_has_the_same_bound() -> None:
    async def body(host: Any, _: Any) -> None:
        instance = host.launch(ECHO, {})
        with pytest.raises(ResourceError, match="1,001 characters"):
            instance.send("x" * 1001)
        instance.cancel()

    together(body, message=1000)


def test_waiting_for_a_client_that_says_nothing_ends_at_the_time_limit() -> None:
    async def body(host: Any, _: Any) -> None:
        instance = host.launch(ECHO, {})
        with pytest.raises(InferletTimeout):
            await instance.result()
        assert instance.state is State.FAILED

    together(body, time=0.1)


def test_a_cancelled_inferlet_says_so_to_all_who_wait() -> None:
    async def body(host: Any, _: Any) -> None:
        instance = host.launch(ECHO, {})
        assert await instance.receive() == "ready"
        waits = [asyncio.ensure_future(instance.result()), asyncio.ensure_future(instance.receive())]
        await asyncio.sleep(0)
        instance.cancel("the test is over")
        with pytest.raises(InferletCancelled, match="the test is over"):
            await waits[0]
        assert await waits[1] is None
        assert instance.state is State.CANCELLED
        instance.cancel()

    together(body)
