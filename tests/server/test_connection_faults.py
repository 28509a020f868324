"""A fault of ours in one message is no reason for the others of the connection to wait for ever."""

from __future__ import annotations

import asyncio

import pytest

from pie_edge.errors import Disconnected, PieError
from pie_edge.protocol.connection import Event, Remote
from pie_edge.protocol.messages import Send
from pie_edge.server.supervisor import Supervisor
from tests.server.engines import connected, launched, with_engine

WAITS = "from inferlet import session\n\nasync def main(input):\n    session.send(await session.receive())\n"


def test_a_request_that_fails_as_none_should_is_answered_and_others_go_on() -> None:
    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as connection:
            watched = await launched(connection, WAITS)
            with pytest.raises(PieError, match="KeyError: 'null'; please report it"):
                await asyncio.wait_for(connection.ask("fail"), 20)
            await connection.tell(Send, watched.remote.instance, "still there")
            await watched.until(1)
            assert watched.texts == ["still there"]

    with_engine(body)


def test_a_connection_whose_messages_can_t_be_taken_any_more_has_ended() -> None:
    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as connection:

            def broken(_: Event) -> None:
                raise KeyError("sink")

            lost: list[Disconnected] = []
            remote = Remote(connection, 2**16, broken, lost.append)
            await connection.launch(remote, '"hi"', source="async def main(input):\n    return input\n")
            await asyncio.wait_for(connection.ended.wait(), 20)
            with pytest.raises(Disconnected, match="KeyError"):
                await connection.ask("held")

    with_engine(body)
