"""A fault in the midst of a stream, with an engine behind it: its inferlet, its turn and its pages are given back."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pie_edge.server import wire
from pie_edge.server.serve import Serving
from tests.server.fronts import ask, front, write_model

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "[long]"}], "stream": True},
    "/v1/responses": {"input": "[long]", "stream": True},
    "/v1/messages": {"messages": [{"role": "user", "content": "[long]"}], "max_tokens": 250, "stream": True},
    "/v1beta/models/scripted:streamGenerateContent?alt=sse": {"contents": [{"parts": [{"text": "[long]"}]}]},
}


async def held(server: Serving) -> tuple[float, float]:
    """Generations, and pages that nobody may take."""
    figures = (await ask(server.url, "GET", "/metrics")).body.decode()
    working, pages = (
        re.search(rf"^pie_edge_{name}(?:{{.*}})? (\S+)$", figures, re.MULTILINE)
        for name in ("generations_working", "pages_used")
    )
    assert working is not None and pages is not None
    return float(working[1]), float(pages[1])


async def given_back(server: Serving) -> None:
    end = asyncio.get_running_loop().time() + 2
    while await server.supervisor.connection.instances() or await held(server) != (0, 0):
        assert asyncio.get_running_loop().time() < end, await held(server)
        await asyncio.sleep(0.05)


def test_broken_streams_leave_room_for_all_that_come_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = wire.text

    def broken(value: Any) -> str:
        text = write(value)
        if "w7" in text:
            raise ValueError("Out of range float values are not JSON compliant: inf")
        return text

    async def body() -> None:
        async with front(write_model(tmp_path), serve__generations=2) as server:
            for _ in range(2):
                for path, fields in BODIES.items():
                    named = fields if "beta" in path else {**fields, "model": "scripted", "temperature": 0}
                    found = await ask(server.url, "POST", path, json.dumps(named).encode())
                    assert found.status == 200 and b"please report it" in found.body and b"w6" in found.body
                    await given_back(server)

    monkeypatch.setattr(wire, "text", broken)
    asyncio.run(body())
