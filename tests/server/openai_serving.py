"""OpenAI's routes over the scripted model, and its SDK as the client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest

from pie_edge.server.openai import routes
from tests.server.host_service import Served, serving
from tests.support.scripted import Scripted

MODEL = "scripted"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Today's weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
SCRIPTS = {
    "": ["Well", ",", " fine", "."],
    "hello": ["Hel", "lo w", "or", "ld! ", "Ünï", "cödé ", "\N{PARTY POPPER}", " the end"],
    "think": ["<think>", "Let me", " see.", "</think>", "\n\n", "Yes", " indeed"],
    "call": ["<tool", '_call>\n{"name": "weather", "argu', 'ments": {"city": "P', 'aris"}}\n</', "tool_call>"],
    "two": [
        "Two.",
        '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>',
        "\n<tool_call>",
        '{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>',
    ],
}
HELLO = "".join(SCRIPTS["hello"])


@dataclass(frozen=True)
class World:
    """What tests have: the client, what it talks to, and the model that answers."""

    client: openai.OpenAI
    served: Served
    scripted: Scripted


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scripted, Path]:
    made = Scripted(SCRIPTS)
    return made, made.write(tmp_path_factory.mktemp("models") / MODEL)


@pytest.fixture(scope="module")
def world(scripted: tuple[Scripted, Path]) -> Iterator[World]:
    made, folder = scripted
    with (
        serving(folder, routes) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield World(client, served, made)


def asking(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]
