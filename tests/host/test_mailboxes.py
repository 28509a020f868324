"""How much waits between an inferlet and its client; signals and files."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pie_edge.errors import ResourceError, UsageError
from pie_edge.host import Limits
from pie_edge.host.mailbox import File, Item, Mailbox
from tests.host.hosting import run, together


def test_draining_waits_until_the_client_has_read_all_but_a_rest() -> None:
    source = """
from inferlet import session
async def main(input):
    for number in range(8):
        session.send(str(number) * 40_000)
        await session.drain()
    return "all sent"
"""

    async def body(host: Any, _: Any) -> None:
        instance = host.launch(source, {})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(instance.result(), 0.2)
        got = [await instance.receive() for _ in range(8)]
        assert [text[0] for text in got] == list("01234567")
        assert (await instance.result()).result == "all sent"

    together(body, unread=100_000)


def test_draining_without_a_client_returns_at_once() -> None:
    source = "from inferlet import session\nasync def main(input):\n    session.send('x' * 200_000)\n    await session.drain()"
    assert run(source).error is None


def test_a_client_that_hangs_up_ends_the_draining() -> None:
    source = "from inferlet import session\nasync def main(input):\n    session.send('x' * 200_000)\n    await session.drain()"

    async def body(host: Any, _: Any) -> None:
        instance = host.launch(source, {})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(instance.result(), 0.2)
        instance.hang_up()
        await instance.result()

    together(body)


def test_signals_and_files_arrive_beside_messages() -> None:
    source = """
import asyncio
from inferlet import session
async def main(input):
    signal, file = await asyncio.gather(session.signal(), session.receive_file())
    session.send_file("back.bin", file.data[::-1] + b"!")
    session.send_file("empty", b"")
    return [signal, file.name, len(file.data), await session.receive()]
"""
    data = bytes(range(256)) * 3000

    async def body(host: Any, _: Any) -> None:
        instance = host.launch(source, {})
        box = instance.guest.mailbox
        box.takes_files = True
        box.post("text")
        box.files.post(File("some name.bin", data))
        box.signals.post("stop")
        assert (await instance.result()).result == ["stop", "some name.bin", len(data), "text"]
        assert await box.outbox.take() == File("back.bin", data[::-1] + b"!")
        assert await box.outbox.take() == File("empty", b"")
        assert await box.outbox.take() is None

    together(body)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a\\b", "..", "x\n", "x" * 256])
def test_a_file_s_name_is_no_path(name: str) -> None:
    box = Mailbox("sender", Limits())
    box.takes_files = True
    with pytest.raises(UsageError, match="is no name of a file"):
        box.send_file(name, b"", True)


def test_files_are_refused_to_who_takes_none_and_beyond_the_limit() -> None:
    box = Mailbox("sender", Limits(file=10))
    with pytest.raises(ResourceError, match="takes no files"):
        box.send_file("x", b"", True)
    box.takes_files = True
    box.send_file("x", b"123456", False)
    with pytest.raises(ResourceError, match="more than 10 bytes"):
        box.send_file("y", b"12345", True)
    box.send_file("x", b"7890", True)


def test_what_is_delivered_is_in_order_and_stops_where_the_reader_has_no_room() -> None:
    box = Mailbox("sender", Limits())
    got: list[Item] = []
    room = 2

    def deliver(item: Item) -> bool:
        nonlocal room
        room -= 1
        if room < 0:
            return False
        got.append(item)
        return True

    box.send("a")
    box.outbox.deliver_to(deliver)
    for text in "bcd":
        box.send(text)
    assert got == ["a", "b"]
    room = 5
    box.outbox.resume()
    box.send("e")
    assert got == ["a", "b", "c", "d", "e"]
