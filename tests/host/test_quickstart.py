"""The example programs, whole, on an engine whose answers are known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.host.hosting import finish, hosting, run
from tests.host.model_free import Kinds, greedy
from tests.host.serving import Asked, answer, serving

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "inferlets" / "quickstart" / "main.py"
CHAT = ROOT / "inferlets" / "chat" / "main.py"
REACT = ROOT / "inferlets" / "react" / "main.py"
TOKENS = Kinds()

# The form that programs for Pie 0.5 have: no ``with``, and the answer appended where it is awaited.
OTHER_FORM = """
from inferlet import chat, model
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax

async def main(input: dict) -> dict:
    tokens = chat.prefix() + model.encode(input["prompt"])
    ws = WorkingSet(tokens=len(tokens) + 8)
    pipe = Pipeline()
    start, made = 0, []
    for _ in range(8):
        fwd = ForwardPass()
        fwd.embed(tokens[start:])
        fwd.bind_state(ws, ws.geometry(start, len(tokens)))

        @fwd.epilogue
        def out():
            return reduce_argmax(intrinsics.logits())

        fwd.submit(pipe)
        start = len(tokens)
        tokens.append(await out)
        made.append(tokens[-1])
    pipe.close()
    return {"tokens": made}
"""


def test_the_quickstart_continues_a_prompt_as_the_engine_would() -> None:
    ended = run(QUICKSTART, {"prompt": "The capital", "max_tokens": 12})
    expected = greedy(TOKENS.prefix() + TOKENS.encode("The capital"), 12)
    assert ended.error is None
    assert ended.result == {"text": TOKENS.decode(expected)}


def test_programs_in_the_form_of_pie_0_5_run_unchanged() -> None:
    ended = run(OTHER_FORM, {"prompt": "The capital"})
    assert ended.result == {"tokens": greedy(TOKENS.prefix() + TOKENS.encode("The capital"), 8)}, ended


@pytest.mark.parametrize("template", [True, False])
def test_the_chat_example_shows_its_answer_piece_by_piece(template: bool) -> None:
    ended = run(CHAT, {"prompt": "Hi", "system": "Be brief.", "max_tokens": 9}, template=template)
    asked = "<s>Be brief.\n<u>Hi\n<a>" if template else "Be brief.\n\nHi"
    answer = greedy(TOKENS.prefix() + TOKENS.encode(asked), 9)
    assert ended.result == {"tokens": 9, "stopped": False}, ended
    assert ended.text == TOKENS.decode(answer)


def test_a_missing_input_is_the_program_s_own_error() -> None:
    ended = run(QUICKSTART, {})
    assert "KeyError: 'prompt'" in str(ended.error)
    assert f'File "{QUICKSTART}"' in ended.traceback
    assert 'input["prompt"]' in ended.traceback


def test_the_react_example_asks_its_tool_while_its_context_stays_in_the_cache() -> None:
    def library(asked: Asked) -> bytes:
        return answer(f"about  {asked.query['q'][0][:9]}:\nnothing is known")

    async def body() -> None:
        async with serving(library) as tool, hosting(http=(tool.host,)) as (host, _):
            instance = host.launch(REACT, {"tool": tool.url, "question": "Who?", "steps": 3})
            outcome = await instance.result()
            result = outcome.result
            assert [asked.query["q"][0] for asked in tool.asked] == result["queries"]
            assert len(result["queries"]) == 3
            # Every token was forwarded once, but for the last: nothing follows it.
            assert outcome.usage.forwarded_tokens == result["tokens"] - 1
            said = [await instance.receive() for _ in range(3)]
            assert all(query in str(text) for query, text in zip(result["queries"], said, strict=True))

    asyncio.run(body())


def test_the_react_example_tells_the_model_when_its_tool_fails() -> None:
    async def body() -> None:
        async with serving() as tool, hosting(http=(tool.host,)) as (host, engine):
            ended = await finish(host, REACT, {"tool": tool.url + "nothing", "question": "Who?", "steps": 1})
            assert ended.error is None, ended.traceback
            read = TOKENS.decode([token for call in engine.calls for token in call.tokens])
            assert "Observation: The tool failed: " in read
            assert "answered with status 404: no such page" in read

    asyncio.run(body())
