"""What a program may return, and what its standard output becomes."""

from __future__ import annotations

from typing import Any

import pytest

from pie_edge.errors import InferletFailed, UsageError
from tests.host.hosting import finish, run, together

GOOD = {
    "None": ("None", None),
    "text": ("'grüße \\U0001f600 \\ud800'", "grüße \U0001f600 \ud800"),
    "numbers": ("[1, -2.5, 10**30, True]", [1, -2.5, 10**30, True]),
    "a number of 4,300 digits": ("-(10**4299)", -(10**4299)),
    "tuples": ("(1, (2,))", [1, [2]]),
    "dicts": ("{'a': {'b': []}, 3: None}", {"a": {"b": []}, "3": None}),
    "ten million characters": ("'x' * 10_000_000", "x" * 10_000_000),
    "lists 190 deep": ("eval('[' * 90 + ']' * 90)", eval("[" * 90 + "]" * 90)),
}
BAD = {
    "a set": ("{'x': [1, {2}]}", "result['x'][1] is a set"),
    "an object": ("[object()]", "result[0] is an object"),
    "bytes": ("b'x'", "result is a bytes"),
    "NaN": ("{'a': float('nan')}", "result['a'] is nan"),
    "infinity": ("[-float('inf')]", "result[0] is -inf"),
    "a key that is a tuple": ("{'a': {(1, 2): 3}}", "result['a'] has the key (1, 2), a tuple"),
    "itself": ("(a := [], a.append(a))[0]", "contains itself"),
    "a number of 4,301 digits": ("[10**4300]", "result[0] is a whole number of more than 4,300 digits"),
    "such a number with Python's own limit lifted": (
        "(__import__('sys').set_int_max_str_digits(0), -10**4300)[1]",
        "holds a whole number of more than 4,300 digits",
    ),
    "300 levels": ("__import__('functools').reduce(lambda a, _: [a], range(300), 0)", "nested more than 200 deep"),
    "20 million characters": ("'x' * 20_000_000", "20,000,002 bytes of JSON"),
    "a coroutine inside": ("[main(1)]", "result[0] is a coroutine"),
}


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("case", GOOD)
def test_results_arrive_as_json_would_carry_them(case: str) -> None:
    expression, expected = GOOD[case]
    assert run(f"async def main(input): return {expression}").result == expected


@pytest.mark.parametrize("case", BAD)
def test_a_result_without_a_json_form_is_named_by_its_place(case: str) -> None:
    expression, said = BAD[case]
    ended = run(f"async def main(input): return {expression}")
    assert type(ended.error) is InferletFailed, ended
    assert said in str(ended.error)


def test_the_input_is_what_was_given() -> None:
    given = {"text": "grüße \U0001f600", "list": [1, 2.5, None, True], "deep": {"a": {"b": []}}}
    assert run("async def main(input): return input", given).result == given


def test_the_input_is_found_in_runtime_arguments_too() -> None:
    source = "from inferlet import runtime\nasync def main(): return runtime.arguments()"
    assert run(source, {"a": 1}).result == {"a": 1}


def test_an_input_without_a_json_form_is_refused() -> None:
    async def body(host: Any, _: Any) -> None:
        with pytest.raises(UsageError, match="no JSON form"):
            await host.run("def main(input): ...", {"x": {1}})

    together(body)


@pytest.mark.parametrize("form", ["def main(input): return 7", "async def main(): return 7", "def main(): return 7"])
def test_main_may_be_plain_and_may_ignore_its_input(form: str) -> None:
    assert run(form).result == 7


def test_a_plain_main_may_run_loops_of_its_own() -> None:
    source = """
import asyncio
async def double(x):
    await asyncio.sleep(0.001)
    return 2 * x
def main(input): return asyncio.run(double(2)) + asyncio.run(double(3))
"""
    assert run(source).result == 10


PRINTS = """
import os, sys
print("before main")
async def main(input):
    print("a", end="", flush=True)
    sys.stdout.buffer.write("é".encode()[:1])
    sys.stdout.flush()
    sys.stdout.buffer.write("é".encode()[1:])
    print("", "b")
    print("to the log", file=sys.stderr)
    sys.stdout.write("no end of line")
"""


def test_everything_printed_arrives_in_order_and_in_whole_characters() -> None:
    ended = run(PRINTS)
    assert ended.text == "before main\naé b\nno end of line"
    assert ended.log == "to the log\n"


def test_what_was_printed_before_a_crash_is_not_lost() -> None:
    ended = run("import os\nprint('one')\ndef main(input):\n    print('two')\n    os.abort()")
    assert ended.text == "one\ntwo\n"


def test_what_was_printed_before_the_first_wait_arrives_before_it_ends() -> None:
    import asyncio

    async def body(host: Any, _: Any) -> list[str]:
        seen: list[str] = []
        source = "import asyncio\nasync def main(input):\n    print('waiting', end='')\n    await asyncio.sleep(60)"
        instance = host.launch(source, {}, on_text=seen.append)
        while not seen:
            await asyncio.sleep(0.001)
        instance.cancel()
        return seen

    assert together(body) == ["waiting"]


def test_large_output_arrives_whole() -> None:
    ended = run("def main(input):\n    print('é' * 3_000_000)\n    for i in range(100): print('x' * 100_000)")
    assert len(ended.text) == 3_000_001 + 100 * 100_001
    assert ended.text.startswith("é" * 3_000_000 + "\n")


def test_text_that_no_encoding_has_is_escaped() -> None:
    assert run("def main(input): print('\\ud800')").text == "\\ud800\n"


def test_logs_carry_their_level() -> None:
    source = "from inferlet import runtime\ndef main(input): runtime.log('careful', 'warning'); runtime.log(3)"
    assert run(source).log == "warning: careful\ninfo: 3\n"


def test_a_background_task_that_failed_is_told_of() -> None:
    source = """
import asyncio
async def fails(): raise ValueError("unseen")
async def main(input):
    asyncio.create_task(fails())
    await asyncio.sleep(0.001)
"""
    assert "ValueError: unseen" in run(source).log


def test_what_a_callback_raises_ends_the_inferlet_and_reaches_the_caller() -> None:
    async def body(host: Any, _: Any) -> None:
        def broken(text: str) -> None:
            raise BrokenPipeError("nobody reads")

        with pytest.raises(BrokenPipeError, match="nobody reads"):
            await host.run("def main(input):\n    while True: print('x')", {}, on_text=broken)
        with pytest.raises(BrokenPipeError, match="nobody reads"):
            await host.run("from inferlet import session\ndef main(input): session.send('x')", {}, on_text=broken)
        assert (await finish(host, "def main(input): return 1")).result == 1

    together(body)
