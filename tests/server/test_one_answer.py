"""One conversation through the three providers' SDKs: a real model's answer is the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from google import genai
from google.genai import types
from openai import OpenAI
from starlette.routing import Route

from pie_edge.server import anthropic, google, openai
from pie_edge.server.generation import Service
from tests.server.host_service import serving

MODEL = "smollm2-135m"
SYSTEM = "Answer in one short sentence."
TURNS = (("user", "What is the capital of France?"), ("assistant", "It is Paris."), ("user", "And of Italy?"))


def routes(service: Service) -> Sequence[Route]:
    return [*anthropic.routes(service), *google.routes(service), *openai.routes(service)]


@pytest.fixture(scope="module")
def url(smollm2_path: Path) -> Iterator[str]:
    with serving(smollm2_path, routes) as served:
        yield served.url


def by_openai(url: str, stop: str) -> tuple[str, int, int]:
    said: list[Any] = [{"role": "system", "content": SYSTEM}, *({"role": who, "content": text} for who, text in TURNS)]
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        made = client.chat.completions.create(model=MODEL, messages=said, temperature=0, max_tokens=16, stop=stop)
    assert made.usage is not None
    return made.choices[0].message.content or "", made.usage.prompt_tokens, made.usage.completion_tokens


def by_anthropic(url: str, stop: str) -> tuple[str, int, int]:
    said: list[Any] = [{"role": who, "content": text} for who, text in TURNS]
    with Anthropic(base_url=url, api_key="none") as client:
        made = client.messages.create(
            model=MODEL,
            system=SYSTEM,
            messages=said,
            max_tokens=16,
            stop_sequences=[stop],
            extra_body={"temperature": 0},
        )
    read = made.usage.input_tokens + (made.usage.cache_read_input_tokens or 0)
    return "".join(block.text for block in made.content if block.type == "text"), read, made.usage.output_tokens


def by_google(url: str, stop: str) -> tuple[str, int, int]:
    said: list[Any] = [
        types.Content(role="model" if who == "assistant" else who, parts=[types.Part(text=text)]) for who, text in TURNS
    ]
    client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))
    config = types.GenerateContentConfig(
        system_instruction=SYSTEM, temperature=0, max_output_tokens=16, stop_sequences=[stop]
    )
    made = client.models.generate_content(model=MODEL, contents=said, config=config)
    client.close()
    assert made.usage_metadata is not None
    return made.text or "", made.usage_metadata.prompt_token_count or 0, made.usage_metadata.candidates_token_count or 0


@pytest.mark.parametrize("stop", ["never said", " of"])
def test_the_answer_is_the_same_through_each_api(url: str, stop: str) -> None:
    first = by_openai(url, stop)
    assert first[0] and first[1] > 30 and stop not in first[0]
    assert by_anthropic(url, stop) == by_google(url, stop) == first
