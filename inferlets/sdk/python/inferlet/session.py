"""The client that started this inferlet."""

from __future__ import annotations

from inferlet import _check, _loop
from inferlet._host import Drain, File, NextSignal, Receive, ReceiveFile, host
from inferlet._inbox import Inbox

__all__ = ["File", "drain", "receive", "receive_file", "send", "send_file", "signal"]

_PART = 256 * 1024  # bytes of a file in one call
_inbox: Inbox[str] = Inbox(Receive)
_signals: Inbox[str] = Inbox(NextSignal)
_files: Inbox[File] = Inbox(ReceiveFile)


def send(text: str) -> None:
    """A message to the client. Raises ResourceError if it is too long or the client has stopped reading."""
    host().send(_check.text(text, "session.send"))


async def drain() -> None:
    """Waits until the client has read what was sent to it, but for a rest of 64 Ki characters. A program that sends much does so
    after each message: then a client that reads slowly makes it wait, and no message is refused."""
    if host().is_full():
        await _loop.current().submit(Drain())


async def receive() -> str:
    """The client's next message. Raises ResourceError if no client is there to send one.

    A cancelled ``receive`` (by ``asyncio.wait_for``, say) loses nothing: the message goes to the next one.
    """
    return await _inbox.receive()


async def signal() -> str:
    """The name of the client's next signal: ``Instance.signal`` of the Python client, ``pie-edge kill --signal``. Raises
    ResourceError if no client is there to send one. A task that waits for it can end what another one does."""
    return await _signals.receive()


async def receive_file() -> File:
    """The client's next file, with its ``name`` and ``data``. Raises ResourceError if no client is there to send one."""
    return await _files.receive()


def send_file(name: str, data: bytes) -> None:
    """A file to the client, under a name that is no path. Raises ResourceError if it is too long, the client has stopped reading,
    or it takes no files, as ``pie-edge run`` and parents don't."""
    name = _check.text(name, "session.send_file")
    for start in range(0, max(len(data), 1), _PART):
        host().send_file(name, data[start : start + _PART], start + _PART >= len(data))
