"""Google's own SDK against the routes, on loopback; what the model says is told by the test."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from pie_edge.errors import ContextOverflow, NotReady, Overloaded, PieError
from pie_edge.server.generation import (
    Began,
    CallArguments,
    CallBegan,
    Constraint,
    Ended,
    Piece,
    Thought,
    TokenLogprob,
    Usage,
)
from pie_edge.server.google import error_response, routes
from tests.server.loopback import serving
from tests.server.told import Told, answer

ASK: dict[str, Any] = {"model": "tiny", "contents": "Hello"}
WEATHER = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="weather",
            parameters=types.Schema(type=types.Type.OBJECT, properties={"city": types.Schema(type=types.Type.STRING)}),
        )
    ]
)
BY_HAND = types.AutomaticFunctionCallingConfig(disable=True)
EVERYTHING = answer(
    Thought(0, "Rain"),
    Thought(0, "? 🌧"),
    Piece(0, "Let me "),
    Piece(0, "see: "),
    CallBegan(0, 0, "call1", "weather"),
    CallArguments(0, 0, '{"city": '),
    CallArguments(0, 0, '"Ürzig"}'),
    CallBegan(0, 1, "call2", "weather"),
    reason="calls",
)

Connect = Callable[..., genai.Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:

        def connected(service: Told, version: str = "v1beta") -> genai.Client:
            address = stack.enter_context(serving(routes(service)))
            options = types.HttpOptions(base_url=address, api_version=version)
            client = genai.Client(api_key="any", http_options=options)
            stack.callback(client.close)
            return client

        yield connected


def post(client: genai.Client, method: str, body: bytes) -> bytes:
    """Without the SDK."""
    address = f"{client._api_client._http_options.base_url}/v1beta/models/tiny:{method}"
    with urlopen(HttpRequest(address, body, {"content-type": "application/json"})) as response:
        return bytes(response.read())


def parts(response: types.GenerateContentResponse, choice: int = 0) -> list[dict[str, Any]]:
    assert response.candidates is not None
    content = response.candidates[choice].content
    assert content is not None
    return [part.model_dump(exclude_none=True) for part in content.parts or []]


def test_a_response_has_text_and_counts(connect: Connect) -> None:
    made = connect(Told(answer(Piece(0, "Hi"), Piece(0, " there")))).models.generate_content(**ASK)
    assert made.text == "Hi there" and made.model_version == "tiny" and made.response_id
    assert made.candidates and made.candidates[0].finish_reason == types.FinishReason.STOP
    usage = made.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.cached_content_token_count, usage.total_token_count) == (10, 4, 17)
    assert (usage.candidates_token_count, usage.thoughts_token_count) == (5, 2)


def test_version_1_is_the_same(connect: Connect) -> None:
    assert connect(Told(), "v1").models.generate_content(**ASK).text == "Hi"


@pytest.mark.parametrize("thoughts", [False, True])
def test_everything_a_response_can_hold_comes_in_its_parts(connect: Connect, thoughts: bool) -> None:
    config = types.GenerateContentConfig(
        tools=[WEATHER],
        automatic_function_calling=BY_HAND,
        thinking_config=types.ThinkingConfig(include_thoughts=thoughts),
    )
    made = connect(Told(EVERYTHING)).models.generate_content(**ASK, config=config)
    shown = [{"text": "Rain? 🌧", "thought": True}] if thoughts else []
    assert parts(made) == [
        *shown,
        {"text": "Let me see: "},
        {"function_call": {"id": "call1", "name": "weather", "args": {"city": "Ürzig"}}},
        {"function_call": {"id": "call2", "name": "weather", "args": {}}},
    ]


def test_a_stream_adds_up_to_the_response(connect: Connect) -> None:
    config = types.GenerateContentConfig(thinking_config=types.ThinkingConfig(include_thoughts=True))
    client = connect(Told(EVERYTHING))
    whole = client.models.generate_content(**ASK, config=config)
    chunks = list(client.models.generate_content_stream(**ASK, config=config))
    streamed = [part for chunk in chunks for part in parts(chunk)]
    for thought in (True, None):
        text = ["".join(one["text"] for one in found if "text" in one and one.get("thought") == thought)
                for found in (streamed, parts(whole))]  # fmt: skip
        assert text[0] == text[1]
    calls = [[one for one in found if "function_call" in one] for found in (streamed, parts(whole))]
    assert calls[0] == calls[1]
    assert chunks[-1].usage_metadata == whole.usage_metadata
    assert chunks[-1].candidates and chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP
    assert len({chunk.response_id for chunk in chunks}) == 1


def test_a_stream_without_events_is_a_list(connect: Connect) -> None:
    client = connect(Told(answer(Piece(0, "a"), Piece(0, "b"))))
    body = json.dumps({"contents": [{"parts": [{"text": "Hello"}]}]}).encode()
    chunks = json.loads(post(client, "streamGenerateContent", body))
    texts = [part["text"] for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert texts == ["a", "b", ""]
    events = post(client, "streamGenerateContent?alt=sse", body).decode()
    assert [json.loads(line.removeprefix("data: "))["candidates"] for line in events.split("\n\n") if line] == [
        chunk["candidates"] for chunk in chunks
    ]


def test_several_candidates_each_have_their_own(connect: Connect) -> None:
    events = [
        Began(5, 0),
        Piece(0, "a"),
        Piece(1, "x"),
        Piece(0, "b"),
        Ended(0, "stop"),
        Piece(1, "y"),
        Ended(1, "length"),
        Usage(5, 0, 4),
    ]
    made = connect(Told(events)).models.generate_content(**ASK, config=types.GenerateContentConfig(candidate_count=2))
    assert made.candidates is not None
    assert [parts(made, choice) for choice in (0, 1)] == [[{"text": "ab"}], [{"text": "xy"}]]
    assert [one.finish_reason for one in made.candidates] == [types.FinishReason.STOP, types.FinishReason.MAX_TOKENS]


def test_log_probabilities_of_tokens(connect: Connect) -> None:
    def token(number: int, text: str, logprob: float, *top: TokenLogprob) -> TokenLogprob:
        return TokenLogprob(number, text.encode(), logprob, top)

    events = answer(
        Piece(0, "a", (token(1, "a", -0.5, token(1, "a", -0.5), token(2, "b", -1.5)),)),
        Piece(0, "b", (token(2, "b", -1.5, token(3, "c", -0.1), token(2, "b", -1.5)),)),
    )
    service = Told(events)
    config = types.GenerateContentConfig(response_logprobs=True, logprobs=2)
    made = connect(service).models.generate_content(**ASK, config=config)
    assert service.asked[0].logprobs == 2
    assert made.candidates is not None
    result = made.candidates[0].logprobs_result
    assert result is not None and result.chosen_candidates is not None and result.top_candidates is not None
    assert [(one.token, one.token_id, one.log_probability) for one in result.chosen_candidates] == [
        ("a", 1, -0.5),
        ("b", 2, -1.5),
    ]
    assert [[one.token for one in at.candidates or []] for at in result.top_candidates] == [["a", "b"], ["c", "b"]]
    assert made.candidates[0].avg_logprobs == -1.0


def test_a_chat_gives_back_what_it_was_told(connect: Connect) -> None:
    service = Told(answer(Piece(0, "Hi"), Piece(0, "!")))
    chat = connect(service).chats.create(
        model="tiny", config=types.GenerateContentConfig(system_instruction="Be brief.", temperature=0.5, top_k=3)
    )
    chat.send_message("Hello")
    list(chat.send_message_stream("And?"))
    chat.send_message("So?")
    first, _, third = (list(asked.prompt.messages) for asked in service.asked)  # type: ignore[union-attr]
    assert first[0] == {"role": "system", "content": "Be brief."}
    assert [message["content"] for message in third] == ["Be brief.", "Hello", "Hi!", "And?", "Hi!", "So?"]
    assert (service.asked[0].sampling.temperature, service.asked[0].sampling.top_k) == (0.5, 3)


def test_a_function_is_called_and_its_result_given_back_by_the_sdk(connect: Connect) -> None:
    asked: list[str] = []

    def weather(city: str) -> str:
        """Today's weather."""
        asked.append(city)
        return "clear"

    class Turns(Told):
        async def generate(self, request: Any) -> Any:
            self.events = EVERYTHING[:-3] + EVERYTHING[-2:] if not self.asked else answer(Piece(0, "It is clear."))
            async for event in super().generate(request):
                yield event

    service = Turns()
    made = connect(service).models.generate_content(**ASK, config=types.GenerateContentConfig(tools=[weather]))
    assert (asked, made.text) == (["Ürzig"], "It is clear.")
    [tool] = service.asked[0].prompt.tools  # type: ignore[union-attr]
    assert tool["function"]["parameters"]["properties"] == {"city": {"type": "string"}}
    messages = list(service.asked[1].prompt.messages)  # type: ignore[union-attr]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[2] == {"role": "tool", "tool_call_id": "call1", "name": "weather", "content": "clear"}


def test_a_schema_of_pydantics_is_a_constraint_and_read_back(connect: Connect) -> None:
    class City(BaseModel):
        name: str
        people: int

    service = Told(answer(Piece(0, '{"name": "Ürzig", "people": 860}')))
    made = connect(service).models.generate_content(
        **ASK,
        config=types.GenerateContentConfig(response_mime_type="application/json", response_schema=City),
    )
    assert made.parsed == City(name="Ürzig", people=860)
    constraint = service.asked[0].constraint
    assert isinstance(constraint, Constraint) and constraint.kind == "json-schema"
    assert json.loads(constraint.text)["properties"]["people"]["type"] == "integer"


@pytest.mark.parametrize("text", ["", '{"city": "Ür', '{"city": NaN}', "[1]"])
def test_arguments_that_are_no_object_end_the_answer(connect: Connect, text: str) -> None:
    events = answer(CallBegan(0, 0, "call1", "weather"), CallArguments(0, 0, text), reason="length")
    client = connect(Told(events))
    made = client.models.generate_content(**ASK)
    assert made.candidates and made.candidates[0].finish_reason == types.FinishReason.MALFORMED_FUNCTION_CALL
    told = json.loads(post(client, "generateContent", b'{"contents": [{"parts": [{"text": "Hello"}]}]}'))
    assert text in told["candidates"][0]["finishMessage"]


def test_tokens_are_counted_and_the_model_described(connect: Connect) -> None:
    client = connect(Told())
    assert client.models.count_tokens(model="tiny", contents="Hello").total_tokens == 42
    body = {"generateContentRequest": {"model": "models/tiny", "contents": [{"parts": [{"text": "Hello"}]}]}}
    assert json.loads(post(client, "countTokens", json.dumps(body).encode()))["totalTokens"] == 42
    [model] = list(client.models.list())
    one = client.models.get(model="tiny")
    assert one == model
    assert (one.name, one.input_token_limit, one.display_name) == ("models/tiny", 512, "A tiny one")
    with pytest.raises(errors.ClientError, match="404 NOT_FOUND"):
        client.models.get(model="other")


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ContextOverflow("600 tokens, and the model reads 512"), "400 INVALID_ARGUMENT", "600"),
        (Overloaded("64 requests wait"), "429 RESOURCE_EXHAUSTED", "64 requests wait"),
        (NotReady("the model is loading"), "503 UNAVAILABLE", "loading"),
        (PieError("something"), "500 INTERNAL", "something"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_the_sdks_own(connect: Connect, error: PieError, status: str, told: str, stream: bool) -> None:
    models = connect(Told([error])).models
    with pytest.raises(errors.APIError, match=status) as raised:
        list(models.generate_content_stream(**ASK) if stream else models.generate_content(**ASK))
    assert told in (raised.value.message or "")


def test_an_error_in_the_midst_of_a_stream_ends_it(connect: Connect) -> None:
    client = connect(Told([Began(10, 0), Piece(0, "Hi"), NotReady("the engine is started anew")]))
    with pytest.raises(errors.ServerError, match="503 UNAVAILABLE"):
        list(client.models.generate_content_stream(**ASK))


@pytest.mark.parametrize("call", ["tiny:predict", "tiny", "other:generateContent"])
def test_what_isnt_there_is_not_found(connect: Connect, call: str) -> None:
    address = connect(Told())._api_client._http_options.base_url
    with pytest.raises(OSError, match="404") as refused:
        urlopen(HttpRequest(f"{address}/v1beta/models/{call}", b"{}"))
    assert json.loads(refused.value.read())["error"]["status"] == "NOT_FOUND"  # type: ignore[attr-defined]
    refused.value.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("generateContent", b"{"),
        ("generateContent", b"[]"),
        ("generateContent?fields=candidates", b'{"contents": [{"parts": [{"text": "Hello"}]}]}'),
        ("countTokens", b"{}"),
    ],
)
def test_a_body_or_query_that_makes_no_sense_is_refused(connect: Connect, method: str, body: bytes) -> None:
    with pytest.raises(OSError, match="400") as refused:
        post(connect(Told()), method, body)
    assert json.loads(refused.value.read())["error"]["status"] == "INVALID_ARGUMENT"  # type: ignore[attr-defined]
    refused.value.close()  # type: ignore[attr-defined]


def test_a_client_that_leaves_ends_its_generation(connect: Connect) -> None:
    service = Told([Began(1, 0), Piece(0, "Hi"), 60.0])
    stream = connect(service).models.generate_content_stream(**ASK)
    next(iter(stream))
    stream.close()  # type: ignore[attr-defined]
    until = time.monotonic() + 5
    while not service.ended and time.monotonic() < until:
        time.sleep(0.01)
    assert service.ended == 1


def test_what_the_app_refuses_by_itself_has_googles_shape() -> None:
    refused = error_response(401, PieError("the key is wrong"))
    assert json.loads(bytes(refused.body)) == {
        "error": {"code": 401, "message": "the key is wrong", "status": "UNAUTHENTICATED"}
    }
