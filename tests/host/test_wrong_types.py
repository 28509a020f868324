"""Values of a wrong type are refused at the author's line: none of them reaches the crossing, where it would end the program."""

from __future__ import annotations

import pytest

from tests.host.hosting import run

WRONG = {
    "model.encode(3)": "TypeError: model.encode takes text, and 3 is of type int",
    "model.encode(None)": "TypeError: model.encode takes text",
    'model.encode("\\ud800")': "ValueError: model.encode was given text with a lone surrogate",
    "model.decode([-1])": "InvalidHandle: model.decode takes token ids, and -1 is none",
    "model.decode([2**32])": "InvalidHandle: model.decode takes token ids",
    'model.decode(["a"])': "InvalidHandle: model.decode takes token ids",
    "model.decode([1.5])": "InvalidHandle: model.decode takes token ids",
    "session.send(3)": "TypeError: session.send takes text",
    'session.send("\\ud800")': "ValueError: session.send was given text",
    'runtime.log("\\ud800")': "ValueError: runtime.log was given text",
    "chat.user(42)": "TypeError: chat.user takes text",
    'chat.Decoder().push("x")': "InvalidHandle: Decoder.push takes token ids",
    "tokenizer.Decoder().push([2**40])": "InvalidHandle: Decoder.push takes token ids",
    "WorkingSet(tokens=2**32)": "InvalidHandle: a working set of 4294967296 tokens",
    "WorkingSet(tokens=16).reserve(2**32)": "InvalidHandle: pages is 4294967296",
    "ForwardPass().observe([1.5])": "InvalidHandle: a layer to observe is 1.5",
    "WorkingSet(tokens=16).discard(0, 2**32)": "InvalidHandle: count is 4294967296",
}


@pytest.mark.parametrize("call", WRONG)
def test_a_value_of_a_wrong_type_is_an_exception_at_its_line(call: str) -> None:
    source = f"""
from inferlet import chat, model, runtime, session, tokenizer
from inferlet.eta import ForwardPass, WorkingSet

def main(input):
    try:
        {call}
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
"""
    ended = run(source)
    assert ended.error is None
    assert str(ended.result).startswith(WRONG[call])
