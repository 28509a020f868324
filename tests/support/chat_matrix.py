"""Conversations in every shape that clients send them in, for the oracle of chat templates.

A case is what ``apply_chat_template`` and ``ChatTemplate.render`` are both given. Some templates can't take some shapes, such as
content in parts: they fail, or write Python's own notation of it. ``plain`` is then the same conversation in the shape that
every template takes, and what stands for the other is its rendering.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Message = dict[str, Any]

NOW = datetime(2025, 3, 14, 15, 9, 26)
"""What ``strftime_now`` reads."""


@dataclass(frozen=True, slots=True)
class Case:
    messages: list[Message]
    tools: list[Message] | None = None
    cue: bool = True
    variables: dict[str, Any] = field(default_factory=dict)
    plain: list[Message] | None = None


def says(role: str, content: Any, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def user(content: Any) -> Message:
    return says("user", content)


def text(*texts: str) -> list[Message]:
    return [{"type": "text", "text": one} for one in texts]


def call(name: str, arguments: Any, identity: str) -> Message:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*given: Message, content: Any = None, **more: Any) -> Message:
    return says("assistant", content, tool_calls=list(given), **more)


def result(content: Any, identity: str, name: str = "weather") -> Message:
    return says("tool", content, tool_call_id=identity, name=name)


def function(name: str, description: str, **properties: Any) -> Message:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


ASK = user("What's the weather in Århus?")
TOOLS = [
    function(
        "weather",
        'Today\'s weather, "as it is" <here>.',
        city={"type": "string", "description": "Where."},
        days={"type": "integer", "description": "How many."},
    ),
    function("now", "The time."),
]
PARIS = call("weather", {"city": "Århus", "days": 2}, "aaaaaaaa1")
OSLO = call("weather", {"city": "Oslo"}, "bbbbbbbb2")
NESTED = call("weather", {"city": 'a "b" \\ c\n', "near": {"lat": 1.5, "far": [1, 2.5, True]}}, "cccccccc3")
BARE = call("now", {}, "dddddddd4")
JSON_TEXT = call("weather", '{"city": "Århus", "days": 2}', "aaaaaaaa1")
SUNNY, RAINY = result("sunny, 21 °C", "aaaaaaaa1"), result("rainy", "bbbbbbbb2")
BRIEF = says("system", "Be brief.")
FINE = says("assistant", "It is fine.")
THANKS = user("Thanks! And tomorrow?")
THOUGHT = {"reasoning_content": "They ask of Århus.\nSo I look."}
EARLIER = [ASK, calls(PARIS), SUNNY, FINE]


def _plain_turns() -> dict[str, Case]:
    talk = [ASK, FINE, THANKS]
    return {
        "question": Case([ASK]),
        "question, no cue": Case([ASK], cue=False),
        "system first": Case([BRIEF, ASK]),
        "system first, no cue": Case([BRIEF, ASK], cue=False),
        "system late": Case([ASK, FINE, BRIEF, THANKS]),
        "system last": Case([ASK, FINE, BRIEF]),
        "system alone": Case([BRIEF]),
        "two systems": Case([BRIEF, says("system", "Be kind."), ASK]),
        "developer first": Case([says("developer", "Be brief."), ASK]),
        "talk": Case(talk),
        "talk with system": Case([BRIEF, *talk]),
        "answered, no cue": Case([ASK, FINE], cue=False),
        "answered, with cue": Case([ASK, FINE]),
        "two questions in a row": Case([ASK, THANKS]),
        "answer first": Case([FINE, ASK]),
        "an unknown role": Case([ASK, says("narrator", "Then it rained.")]),
    }


def _contents() -> dict[str, Case]:
    padded = user("  \n two\n\n lines \t")
    return {
        "empty question": Case([user("")]),
        "empty system": Case([says("system", ""), ASK]),
        "empty answer": Case([ASK, says("assistant", ""), THANKS]),
        "null answer": Case([ASK, says("assistant", None), THANKS], plain=[ASK, says("assistant", ""), THANKS]),
        "no content": Case([ASK, {"role": "assistant"}, THANKS], plain=[ASK, says("assistant", ""), THANKS]),
        "spaces": Case([padded, says("assistant", "\n a \n"), padded]),
        "Unicode": Case([user('日本 🎌 "q" <b> & \\n {{ x }} {% y %}')]),
        "one part": Case([user(text("Hi"))], plain=[user("Hi")]),
        "two parts": Case([user(text("Hi", "there"))], plain=[user("Hi\nthere")]),
        "parts everywhere": Case(
            [says("system", text("Be brief.")), user(text("Hi")), says("assistant", text("Ho")), user(text("Hm"))],
            plain=[BRIEF, user("Hi"), says("assistant", "Ho"), user("Hm")],
        ),
    }


def _tools() -> dict[str, Case]:
    after = [ASK, calls(PARIS), SUNNY]
    choices = ["one", "two"]
    return {
        "tools": Case([ASK], TOOLS),
        "tools and system": Case([BRIEF, ASK], TOOLS),
        "tools, no cue": Case([BRIEF, ASK], TOOLS, cue=False),
        "tools in a talk": Case([ASK, FINE, THANKS], TOOLS),
        "no tools": Case([ASK], []),
        "a call": Case([ASK, calls(PARIS)], TOOLS, cue=False),
        "a call, empty content": Case([ASK, calls(PARIS, content="")], TOOLS, cue=False),
        "a call, with text": Case([ASK, calls(PARIS, content="I look.")], TOOLS, cue=False),
        "a call, arguments as text": Case([ASK, calls(JSON_TEXT)], TOOLS, cue=False, plain=[ASK, calls(PARIS)]),
        "a call, nested arguments": Case([ASK, calls(NESTED)], TOOLS, cue=False),
        "a call, no arguments": Case([ASK, calls(BARE)], TOOLS, cue=False),
        "two calls": Case([ASK, calls(PARIS, OSLO), SUNNY, RAINY], TOOLS),
        "two calls, results out of order": Case([ASK, calls(PARIS, OSLO), RAINY, SUNNY], TOOLS),
        "a result": Case(after, TOOLS),
        "a result, no tools": Case(after),
        "a result, no cue": Case(after, TOOLS, cue=False),
        "a result in parts": Case(
            [ASK, calls(PARIS), result(text("sunny, 21 °C"), "aaaaaaaa1")], TOOLS, plain=[ASK, calls(PARIS), SUNNY]
        ),
        "a result in JSON": Case([ASK, calls(PARIS), result('{"degrees": 21}', "aaaaaaaa1")], TOOLS),
        "call after call": Case([*after, calls(OSLO), RAINY], TOOLS),
        "answered after a result": Case([*EARLIER, THANKS], TOOLS),
        "answered after a result, system": Case([BRIEF, *EARLIER, THANKS], TOOLS),
        "a tool whose parameters are odd": Case(
            [ASK], [function("odd", "", x={"type": ["string", "integer"], "enum": choices})]
        ),
    }


def _thinking() -> dict[str, Case]:
    tagged = says("assistant", "<think>\nHm.\n</think>\n\nIt is fine.")
    on, off = ({"enable_thinking": is_on, "thinking": is_on} for is_on in (True, False))
    return {
        "thinking": Case([ASK], variables=on),
        "no thinking": Case([ASK], variables=off),
        "thinking, with system": Case([BRIEF, ASK], variables=on),
        "no thinking, with system": Case([BRIEF, ASK], variables=off),
        "thinking, with tools": Case([ASK], TOOLS, variables=on),
        "no thinking, with tools": Case([ASK], TOOLS, variables=off),
        "thought, last": Case([ASK, says("assistant", "It is fine.", **THOUGHT)], cue=False),
        "thought, earlier": Case([ASK, says("assistant", "It is fine.", **THOUGHT), THANKS]),
        "thought before a call": Case([ASK, calls(PARIS, **THOUGHT), SUNNY], TOOLS),
        "thought before a call, earlier": Case([ASK, calls(PARIS, **THOUGHT), SUNNY, FINE, THANKS], TOOLS),
        "thought by another name": Case([ASK, calls(PARIS, reasoning="They ask."), SUNNY], TOOLS),
        "tags, last": Case([ASK, tagged], cue=False),
        "tags, earlier": Case([ASK, tagged, THANKS]),
        "no thinking, talk": Case([ASK, tagged, THANKS], variables=off),
    }


CASES = _plain_turns() | _contents() | _tools() | _thinking()
