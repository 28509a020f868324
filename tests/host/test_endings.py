"""Every way an inferlet can end without a result has its own error, and the host goes on (``run`` starts another after each)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pie_edge.errors import (
    InferletError,
    InferletFailed,
    InferletInvalid,
    InferletMemory,
    InferletTimeout,
    InferletTrapped,
)
from tests.host.hosting import Ended, finish, run, together


def lines(*source: str) -> str:
    return "\n".join(source)


INVALID = {
    "a syntax error": (lines("async def main(input):", "    x = = 3"), "main.py, line 2: invalid syntax"),
    "a null byte": ("x = '\0'", "null bytes"),
    "3,000 parentheses": ("x = " + "(" * 3000 + ")" * 3000, "main.py: too deeply nested for Python's compiler"),
    "30,000 signs": ("x = " + "-" * 30_000 + "1", "main.py: too deeply nested for Python's compiler"),
    "30,000 sums": ("x = " + "1+" * 30_000 + "1", "main.py: too deeply nested for Python's compiler"),
    "no main": ("x = 1", "has no main; write `async def main"),
    "a main that is a number": ("main = 3", "int, not a function"),
    "a main of two inputs": ("async def main(a, b): ...", "main(a, b) of main.py can't be called with one input"),
}
FAILED = {
    "an exception": ("async def main(input): return 1 / 0", "ZeroDivisionError: division by zero"),
    "an exception outside of main": ("1 / 0", "ZeroDivisionError"),
    "a source that is too deep for eval": (
        "def main(input): return eval('-' * 30_000 + '1')",
        "MemoryError: Parser stack overflowed",
    ),
    "a missing module": ("import numpy", "No module named 'numpy'"),
    "recursion": (lines("def f(n): return f(n + 1)", "def main(input): return f(0)"), "RecursionError"),
    "sys.exit": (lines("import sys", "def main(input): sys.exit(3)"), "called sys.exit(3); return from main instead"),
    "os._exit": (lines("import os", "def main(input): os._exit(3)"), "ended its process with status 1"),
    "waiting for nothing": (
        lines("import asyncio", "async def main(input):", "    await asyncio.Future()"),
        "nothing it started can bring about (main.py, line 3)",
    ),
    "an exception whose text can't be made": (
        lines("class E(Exception):", "    def __str__(self): 1 / 0", "def main(input): raise E"),
        "<exception str() failed>",
    ),
    "a KeyboardInterrupt": ("def main(input): raise KeyboardInterrupt", "KeyboardInterrupt"),
}
TRAPPED = {
    "os.abort": (lines("import os", "def main(input): os.abort()"), "unreachable"),
    "recursion without a limit": (
        lines(
            "import sys", "sys.setrecursionlimit(10**7)", "def f(n): return f(n + 1)", "def main(input): return f(0)"
        ),
        "recursed too deeply",
    ),
    "a call that breaks the contract": (
        lines("from wit_world.imports import runtime", "def main(input): runtime.log(None, 5)"),
        "crashed",
    ),
}
ENDLESS = {
    "a loop": lines("async def main(input):", "    while True: pass"),
    "a loop that catches everything": lines(
        "async def main(input):",
        "    while True:",
        "        try:",
        "            while True: pass",
        "        except BaseException: pass",
    ),
    "a loop that sleeps for no time": lines(
        "import asyncio", "async def main(input):", "    while True: await asyncio.sleep(0)"
    ),
    "an endless sleep": lines("import asyncio", "async def main(input): await asyncio.sleep(1e6)"),
    "an endless sleep without asyncio": lines("import time", "def main(input): time.sleep(1e6)"),
    "an endless select": lines("import select", "def main(input): select.select([], [], [], 1e6)"),
    "a task that refuses to be cancelled": lines(
        "import asyncio",
        "async def stubborn():",
        "    while True:",
        "        try: await asyncio.sleep(100)",
        "        except BaseException: pass",
        "async def main(input):",
        "    task = asyncio.create_task(stubborn())",
        "    await asyncio.sleep(0)",
    ),
    "a wait in the raw interface": lines(
        "from wit_world.imports import events", "def main(input): events.wait([], None)"
    ),
    "a regular expression that backtracks for ever": lines(
        "import re", "def main(input): re.match(r'(a+)+$', 'a' * 40 + 'b')"
    ),
}
HUNGRY = {
    "one large object": "def main(input): return len(bytearray(1 << 30))",
    "many strings": lines("def main(input):", "    a = []", "    while True: a.append('x' * 100_000 + str(len(a)))"),
    "many lists": lines("def main(input):", "    a = []", "    while True: a.append([len(a)])"),
    "a dict that grows": lines("def main(input):", "    a = {}", "    while True: a[len(a)] = object()"),
    "many tasks": lines(
        "import asyncio",
        "async def main(input):",
        "    a = []",
        "    while True: a.append(asyncio.create_task(asyncio.sleep(9)))",
    ),
}


def check(source: str, kind: type[InferletError], said: str, **limits: Any) -> None:
    ended = run(source, **limits)
    assert type(ended.error) is kind, ended
    assert said in str(ended.error)
    assert "program" in str(ended.error), "the message doesn't say which inferlet"


@pytest.mark.parametrize("case", INVALID)
def test_a_program_that_cannot_start_is_invalid(case: str) -> None:
    source, said = INVALID[case]
    check(source, InferletInvalid, said)


@pytest.mark.parametrize("case", FAILED)
def test_a_program_that_raises_has_failed(case: str) -> None:
    source, said = FAILED[case]
    check(source, InferletFailed, said)


@pytest.mark.parametrize("case", TRAPPED)
def test_a_guest_that_crashes_has_trapped(case: str) -> None:
    source, said = TRAPPED[case]
    check(source, InferletTrapped, said)


@pytest.mark.parametrize("case", ENDLESS)
def test_a_program_that_never_ends_runs_into_its_time_limit(case: str) -> None:
    check(ENDLESS[case], InferletTimeout, "limits.time (`run --max-time`; 0 is no limit)", time=0.2)


@pytest.mark.parametrize("case", HUNGRY)
def test_a_program_that_eats_memory_hits_its_ceiling(case: str) -> None:
    check(
        HUNGRY[case], InferletMemory, "72 MiB of memory; hold less, or raise limits.memory", memory=72 * 2**20, time=300
    )


@pytest.mark.parametrize("ceiling", range(60, 92, 4))
def test_wherever_memory_runs_out_that_is_what_is_told(ceiling: int) -> None:
    check(HUNGRY["many tasks"], InferletMemory, f"{ceiling} MiB of memory", memory=ceiling * 2**20, time=300)


def test_a_ceiling_below_the_interpreter_s_own_size_is_told_the_same_way() -> None:
    async def body(host: Any, _: Any) -> Ended:
        return await finish(host, "def main(input): ...", name="program")

    ended = together(body, memory=2**20)
    assert type(ended.error) is InferletMemory, ended


def test_a_syntax_error_shows_the_line_and_a_caret() -> None:
    ended = run(lines("async def main(input):", "    x = = 3"))
    assert ended.traceback == lines(
        '  File "main.py", line 2', "    x = = 3", "        ^", "SyntaxError: invalid syntax", ""
    )


def test_a_traceback_has_the_user_s_frames_and_lines_and_no_others() -> None:
    source = lines(
        "import asyncio, json",
        "def parse(text):",
        "    return json.loads(text)",
        "async def main(input):",
        "    await asyncio.sleep(0)",
        "    return parse('{')",
    )
    assert run(source).traceback == lines(
        "Traceback (most recent call last):",
        '  File "main.py", line 6, in main',
        "    return parse('{')",
        '  File "main.py", line 3, in parse',
        "    return json.loads(text)",
        "           ~~~~~~~~~~^^^^^^",
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "",
    )


def test_causes_and_groups_keep_their_own_frames() -> None:
    source = lines(
        "import asyncio",
        "async def fails():",
        "    raise ValueError('inner')",
        "async def main(input):",
        "    try:",
        "        async with asyncio.TaskGroup() as group:",
        "            group.create_task(fails())",
        "    except* ValueError as error:",
        "        raise KeyError('outer') from error",
    )
    told = run(source).traceback
    for line in ("line 3, in fails", "ValueError: inner", "direct cause", "line 9, in main", "KeyError: 'outer'"):
        assert line in told
    assert "inferlet" not in told
    assert "asyncio/" not in told


def test_a_file_is_named_as_it_was_given(tmp_path: Path) -> None:
    file = tmp_path / "my program.py"
    file.write_text("def main(input):\n    raise ValueError(input['x'])\n")
    ended = run(file, {"x": "ümlaut"})
    assert f'File "{file}", line 2, in main' in ended.traceback
    assert "ValueError: ümlaut" in ended.traceback


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\x00", "isn't Python source"),
        (b"# coding: nonsense\n", "isn't Python source"),
        (b"x" * 5_000_000, "4,194,304"),
    ],
)
def test_a_file_that_is_no_source_is_invalid(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "main.py").write_bytes(content)
    ended = run(tmp_path / "main.py")
    assert type(ended.error) is InferletInvalid
    assert said in str(ended.error)


def test_a_file_in_another_encoding_is_read_as_it_declares(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_bytes("# coding: latin-1\ndef main(input): return 'é'\n".encode("latin-1"))
    assert run(tmp_path / "main.py").result == "é"


def test_a_missing_file_is_invalid(tmp_path: Path) -> None:
    ended = run(tmp_path / "nothing.py")
    assert type(ended.error) is InferletInvalid
    assert "can't be read: No such file" in str(ended.error)


def test_the_error_of_ours_that_a_program_did_not_catch_is_named() -> None:
    ended = run(lines("from inferlet.eta import WorkingSet", "def main(input): WorkingSet(tokens=5000)"))
    assert type(ended.error) is InferletFailed
    assert ended.error.cause == "context-overflow"
    assert "asked for a context of 5000 tokens" in ended.traceback
