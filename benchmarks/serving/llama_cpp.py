"""llama.cpp's engine behind ``/v1/chat/completions``, streamed: the slots of ``benchmarks.calling.llama_cpp``, which do about
prompts what its own server does, and an HTTP front that costs next to nothing. Text and tokens are turned into each other by our
tokenizer and template, so that both sides read the same tokens. Started by ``servers``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.calling.llama_cpp import Request, Slot, Slots
from benchmarks.sides.side import Job
from pie_edge.text import open_text
from pie_edge.weights.checkpoint import open_checkpoint

LONGEST = 1 << 24


class Streaming(Slots):
    """Tells of each token as it comes."""

    def __init__(self, model: Any, slots: int, room: int) -> None:
        super().__init__(model, slots=slots, room=room)
        self._listeners: dict[int, asyncio.Queue[int | None]] = {}

    async def stream(self, prompt: list[int], count: int, listener: asyncio.Queue[int | None]) -> None:
        """Puts ``count`` tokens into the listener, and None after them."""
        self._listeners[id(prompt)] = listener
        try:
            await self._complete({"prompt": prompt, "max_tokens": count})
        finally:
            del self._listeners[id(prompt)]
            listener.put_nowait(None)

    def _made(self, slot: Slot, request: Request, token: int) -> None:
        if (listener := self._listeners.get(id(request.prompt))) is not None:
            listener.put_nowait(token)
        super()._made(slot, request, token)


class Front:
    def __init__(self, slots: Streaming, tokenizer: Any, turns: Any) -> None:
        self._slots = slots
        self._tokenizer = tokenizer
        self._turns = turns

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length:")[2].split("\r\n")[0] or 0)
            await self._answer(json.loads(await reader.readexactly(length)), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        # `conversation` is the cut template's, and what it gives is what our own server forwards.
        prompt = [*self._turns.conversation(body["messages"], None, None, True)]
        listener: asyncio.Queue[int | None] = asyncio.Queue()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        task = asyncio.create_task(self._slots.stream(prompt, body["max_tokens"], listener))
        count, sent, tokens = 0, 0, []
        while (token := await listener.get()) is not None:
            count += 1
            tokens.append(token)
            text = self._tokenizer.decode(tokens)
            if len(text) > sent and not text.endswith("\ufffd"):
                _send(writer, {"choices": [{"index": 0, "delta": {"content": text[sent:]}}]})
                sent = len(text)
        await _told(task, writer)
        _send(writer, {"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": count}})
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()


async def _told(task: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
    try:
        await task
    except ValueError as error:
        _send(writer, {"error": {"message": str(error)}})


def _send(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")


async def serve(job: Job, slots: int, room: int) -> None:
    """Until standard input ends. What it is, and where, is told in a line."""
    from benchmarks.sides.llama_cpp import LlamaCppSide

    with open_checkpoint(job.model) as checkpoint:
        tokenizer, turns = open_text(checkpoint)
    side = LlamaCppSide(job, slots * room, slots, unified=False)
    streaming = Streaming(side, slots, room)
    front = Front(streaming, tokenizer, turns)
    server = await asyncio.start_server(front.connected, "127.0.0.1", 0, limit=LONGEST, backlog=1024)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    print(json.dumps({"description": f"{side.description}, {slots} slots", "url": url}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()
    await streaming.close()
    side.close()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.serving.llama_cpp", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--room", type=int, required=True)
    asked = parser.parse_args(argv)
    try:
        asyncio.run(serve(Job(asked.model, "cpu", asked.threads), asked.slots, asked.room))
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)


if __name__ == "__main__":
    main()
