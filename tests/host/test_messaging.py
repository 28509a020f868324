"""Messages between inferlets by topic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pie_edge.errors import ResourceError
from pie_edge.host.limits import Limits
from pie_edge.host.topics import LONGEST_TOPIC, Topics
from tests.host.hosting import finish, run, together

SMALL = Limits(backlog=10, message=8)


def test_everybody_who_is_subscribed_gets_every_message_in_order() -> None:
    async def body() -> None:
        topics = Topics()
        first, second = (topics.subscribe("news", name, Limits()) for name in ("first", "second"))
        assert topics.broadcast("news", "one", "writer", Limits()) == 2
        third = topics.subscribe("news", "third", Limits())
        assert topics.broadcast("news", "two", "writer", Limits()) == 3
        assert topics.broadcast("other", "three", "writer", Limits()) == 0
        assert [await first.receive(), await first.receive()] == ["one", "two"]
        assert [await second.receive(), await second.receive()] == ["one", "two"]
        assert await third.receive() == "two"
        for one in (first, second, third):
            one.close()
        assert len(topics) == 0

    asyncio.run(body())


def test_a_slow_reader_is_told_once_how_many_messages_it_missed_and_goes_on() -> None:
    async def body() -> None:
        topics = Topics()
        slow, fast = topics.subscribe("news", "slow", SMALL), topics.subscribe("news", "fast", SMALL)
        for number in range(5):
            topics.broadcast("news", f"text{number}", "writer", SMALL)
            assert await fast.receive() == f"text{number}"
        assert await slow.receive() == "text0"
        assert await slow.receive() == "text1"
        with pytest.raises(ResourceError, match="slow: 3 messages of topic 'news' were lost"):
            await slow.receive()
        topics.broadcast("news", "text5", "writer", SMALL)
        assert await slow.receive() == "text5"

    asyncio.run(body())


def test_a_message_goes_past_a_receiver_that_gave_up() -> None:
    async def body() -> None:
        topics = Topics()
        subscription = topics.subscribe("news", "reader", SMALL)
        given_up, waiting = subscription.receive(), subscription.receive()
        given_up.cancel()
        topics.broadcast("news", "one", "writer", SMALL)
        assert await waiting == "one"

    asyncio.run(body())


@pytest.mark.parametrize("topic", ["", "x" * (LONGEST_TOPIC + 1)])
def test_a_topic_has_a_name_of_some_length(topic: str) -> None:
    with pytest.raises(ResourceError, match=f"a topic of {len(topic)} characters"):
        Topics().subscribe(topic, "reader", Limits())
    with pytest.raises(ResourceError, match=f"a topic of {len(topic)} characters"):
        Topics().broadcast(topic, "text", "writer", Limits())


def test_a_message_has_a_most_length() -> None:
    with pytest.raises(ResourceError, match="a message of 9 characters to topic 'news'; the most is 8"):
        Topics().broadcast("news", "123456789", "writer", SMALL)


READER = """
from inferlet import messaging, session
async def main(input):
    with messaging.subscribe("work") as work:
        session.send("ready")
        got = []
        async for text in work:
            if text == "stop":
                return got
            got.append(text)
"""
WRITER = """
from inferlet import messaging
async def main(input):
    return [messaging.broadcast("work", text) for text in input["texts"]]
"""


def test_one_inferlet_s_messages_reach_the_others() -> None:
    texts = ["a", "zwö", "\U0001f600", "stop"]

    async def body(host: Any, _: Any) -> tuple[Any, list[Any]]:
        readers = [host.launch(READER, {}) for _ in range(3)]
        for reader in readers:
            assert await reader.receive() == "ready"
        sent = await finish(host, WRITER, {"texts": texts})
        return sent, [(await reader.result()).result for reader in readers]

    sent, got = together(body)
    assert sent.result == [3, 3, 3, 3], sent
    assert got == [texts[:-1]] * 3


PROGRAMS = {
    "its own messages reach it": (
        """
    s = messaging.subscribe("mine")
    n = messaging.broadcast("mine", "hello")
    return n, await s.receive()
""",
        [1, "hello"],
    ),
    "a receive that is cancelled loses nothing": (
        """
    s = messaging.subscribe("mine")
    try:
        await asyncio.wait_for(s.receive(), 0.01)
    except TimeoutError:
        pass
    messaging.broadcast("mine", "hello")
    return await s.receive()
""",
        "hello",
    ),
    "loss is told even if the one who waited gave up": (
        """
    s = messaging.subscribe("mine")
    for i in range(3): messaging.broadcast("mine", "x" * 700_000)
    await s.receive()
    lost = asyncio.create_task(s.receive())
    await asyncio.sleep(0)
    lost.cancel()
    await asyncio.sleep(0.01)
    try:
        await s.receive()
    except errors.ResourceError as error:
        messaging.broadcast("mine", "again")
        return str(error).split(";")[0], await s.receive()
""",
        ["program: 2 messages of topic 'mine' were lost, because the ones before weren't taken in time", "again"],
    ),
    "a closed subscription gets nothing": (
        """
    s = messaging.subscribe("mine")
    s.close()
    s.close()
    try:
        await s.receive()
    except errors.UsageError as error:
        return messaging.broadcast("mine", "hello"), str(error)
""",
        [0, "this subscription to 'mine' was closed; make another one"],
    ),
    "one that is forgotten gets nothing": (
        """
    messaging.subscribe("mine")
    return messaging.broadcast("mine", "hello")
""",
        0,
    ),
    "too many are refused": (
        """
    held = []
    try:
        while True: held.append(messaging.subscribe(str(len(held))))
    except errors.ResourceError as error:
        return len(held), str(error)
""",
        [256, "program has 256 subscriptions; drop some before making more"],
    ),
    "a topic without a name is refused": (
        """
    try:
        messaging.subscribe("")
    except errors.ResourceError as error:
        return str(error)
""",
        "program: a topic of 0 characters; give it 1 to 256",
    ),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_what_a_program_may_rely_on(case: str) -> None:
    body, expected = PROGRAMS[case]
    ended = run(f"import asyncio\nfrom inferlet import errors, messaging\nasync def main(input):{body}")
    assert ended.error is None, ended.traceback or ended.error
    assert ended.result == expected
