"""Google's SDK against a model, through the inferlet that answers it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from pie_edge.server.google import routes
from tests.server import talking
from tests.server.host_service import Served, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(talking.write(tmp_path_factory.mktemp("model") / "tiny"), routes) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[genai.Client]:
    made = genai.Client(api_key="any", http_options=types.HttpOptions(base_url=served.url))
    yield made
    made.close()


def ask(contents: Any, **config: Any) -> dict[str, Any]:
    config = {"temperature": 0, "max_output_tokens": 40, **config}
    return {"model": "tiny", "contents": contents, "config": types.GenerateContentConfig(**config)}


def test_plain_and_streamed_answers_are_equal(client: genai.Client) -> None:
    whole = client.models.generate_content(**ask("[hello]"))
    assert whole.text == "Hello there, how are you?"
    chunks = list(client.models.generate_content_stream(**ask("[hello]")))
    assert "".join(chunk.text or "" for chunk in chunks) == whole.text
    assert len(chunks) > 2
    last = chunks[-1].usage_metadata
    assert last is not None and last.candidates_token_count == 5


def test_thoughts_are_counted_and_shown_where_they_are_asked_for(client: genai.Client) -> None:
    def made(**config: Any) -> tuple[list[str], list[str], int]:
        found = client.models.generate_content(**ask("[thought]", thinking_config=types.ThinkingConfig(**config)))
        assert found.candidates and found.candidates[0].content and found.usage_metadata
        parts = found.candidates[0].content.parts or []
        thoughts = [part.text or "" for part in parts if part.thought]
        return (
            thoughts,
            [part.text or "" for part in parts if not part.thought],
            found.usage_metadata.thoughts_token_count or 0,
        )

    assert made(include_thoughts=True) == (["Rain or shine?"], ["Bring a coat."], 5)
    assert made() == ([], ["Bring a coat."], 5)
    assert made(include_thoughts=True, thinking_budget=3)[0] == ["Rain or"]
    assert made(include_thoughts=True, thinking_budget=0)[2] == 0


def test_a_function_is_called_and_its_result_read(client: genai.Client) -> None:
    asked: list[str] = []

    def weather(city: str) -> str:
        """Today's weather."""
        asked.append(city)
        return "[hello]"

    made = client.models.generate_content(**ask("[call]", tools=[weather]))
    assert (asked, made.text) == (["Ürzig"], "Hello there, how are you?")
    assert made.usage_metadata and (made.usage_metadata.cached_content_token_count or 0) > 0


def test_a_function_that_is_forced_is_called_with_valid_arguments(client: genai.Client) -> None:
    city = {"type": "object", "properties": {"city": {"enum": ["Trier"]}}, "required": ["city"]}
    declared = [
        types.FunctionDeclaration(name=name, parameters_json_schema={**city, "additionalProperties": False})
        for name in ("weather", "time")
    ]
    calling = types.FunctionCallingConfig(mode="ANY", allowed_function_names=["time"])  # type: ignore[arg-type]
    made = client.models.generate_content(
        **ask(
            "[hello]",
            tools=[types.Tool(function_declarations=declared)],
            tool_config=types.ToolConfig(function_calling_config=calling),
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            max_output_tokens=60,
        )
    )
    assert made.function_calls
    assert {(call.name, (call.args or {}).get("city")) for call in made.function_calls} == {("time", "Trier")}


@pytest.mark.parametrize("format", ["int32", "int64"])
@pytest.mark.parametrize("minimum", [None, 0])
def test_whole_numbers_of_a_format_are_held_to_it(client: genai.Client, format: str, minimum: float | None) -> None:
    number = types.Schema(type=types.Type.INTEGER, format=format, minimum=minimum)
    found = client.models.generate_content(
        **ask("[hello]", response_mime_type="application/json", response_schema=number, max_output_tokens=80)
    )
    bits = int(format.removeprefix("int")) - 1
    assert (-(2**bits) if minimum is None else 0) <= int(found.text or "") < 2**bits


@pytest.mark.parametrize("mode", ["ANY", "VALIDATED"])
def test_arguments_of_a_format_are_held_to_it(client: genai.Client, mode: str) -> None:
    number = types.Schema(type=types.Type.INTEGER, format="int64")
    only = types.Schema(type=types.Type.OBJECT, properties={"a": number}, required=["a"], additional_properties=False)
    calling = types.FunctionCallingConfig(mode=mode)  # type: ignore[arg-type]
    made = client.models.generate_content(
        **ask(
            "[call]",
            tools=[types.Tool(function_declarations=[types.FunctionDeclaration(name="weather", parameters=only)])],
            tool_config=types.ToolConfig(function_calling_config=calling),
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            max_output_tokens=120,
        )
    )
    assert made.function_calls
    for call in made.function_calls:
        assert call.name == "weather" and set(call.args or {}) == {"a"}
        assert -(2**63) <= int((call.args or {})["a"]) < 2**63


@pytest.mark.parametrize("stop", ["how", "there, how are"])
def test_a_stop_sequence_ends_the_text_before_it(client: genai.Client, stop: str) -> None:
    text = "Hello there, how are you?".partition(stop)[0]
    assert client.models.generate_content(**ask("[hello]", stop_sequences=[stop])).text == text
    chunks = client.models.generate_content_stream(**ask("[hello]", stop_sequences=[stop]))
    assert "".join(chunk.text or "" for chunk in chunks) == text


def test_the_response_is_held_to_its_schema(client: genai.Client) -> None:
    class City(BaseModel):
        city: str
        people: int

    made = client.models.generate_content(
        **ask("[json]", response_mime_type="application/json", response_schema=City, max_output_tokens=80)
    )
    assert isinstance(made.parsed, City)
    one = types.Schema(type=types.Type.STRING, enum=["Trier", "Ürzig (Mosel)"])
    found = client.models.generate_content(
        **ask("[hello]", response_mime_type="text/x.enum", response_schema=one, max_output_tokens=80)
    )
    assert found.text in one.enum  # type: ignore[operator]


def test_candidates_are_drawn_by_the_seed(client: genai.Client) -> None:
    def drawn(seed: int) -> list[str]:
        made = client.models.generate_content(
            **ask("anything", temperature=1, candidate_count=3, seed=seed, max_output_tokens=6)
        )
        return [part.text or "" for one in made.candidates or [] for part in (one.content and one.content.parts) or []]

    assert len(set(drawn(-5))) > 1
    assert drawn(-5) == drawn(-5) != drawn(6)


def test_log_probabilities_add_up(client: genai.Client) -> None:
    made = client.models.generate_content(**ask("[hello]", response_logprobs=True, logprobs=3))
    assert made.candidates and made.candidates[0].logprobs_result
    result = made.candidates[0].logprobs_result
    chosen, top = result.chosen_candidates or [], result.top_candidates or []
    assert "".join(one.token or "" for one in chosen) == made.text
    assert [(at.candidates or [])[0] for at in top] == chosen, "the likeliest was taken"
    assert all(math.exp(one.log_probability or 0.0) > 0.9 for one in chosen)


def test_tokens_are_counted_as_they_are_read(client: genai.Client) -> None:
    used = client.models.generate_content(**ask("[hello]")).usage_metadata
    assert used is not None
    assert client.models.count_tokens(model="tiny", contents="[hello]").total_tokens == used.prompt_token_count


def test_a_prompt_beyond_the_context_is_refused_with_its_count(client: genai.Client) -> None:
    with pytest.raises(errors.ClientError, match=r"400 INVALID_ARGUMENT.*input token count \(\d+\).*\(1024\)"):
        client.models.generate_content(**ask("x" * 2000))
