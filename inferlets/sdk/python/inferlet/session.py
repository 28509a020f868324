"""The client that started this inferlet."""

from __future__ import annotations

from inferlet import _check
from inferlet._host import Receive, host
from inferlet._inbox import Inbox

_inbox: Inbox[str] = Inbox(Receive)


def send(text: str) -> None:
    """A message to the client. Raises ResourceError if it is too long or the client has stopped reading."""
    host().send(_check.text(text, "session.send"))


async def receive() -> str:
    """The client's next message. Raises ResourceError if no client is there to send one.

    A cancelled ``receive`` (by ``asyncio.wait_for``, say) loses nothing: the message goes to the next one.
    """
    return await _inbox.receive()
