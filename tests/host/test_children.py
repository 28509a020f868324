"""Inferlets that start others: results, messages, limits, and who ends with whom."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pie_edge.errors import InferletCancelled, ResourceError
from pie_edge.host.limits import Limits
from pie_edge.host.mailbox import Mailbox
from tests.host.hosting import Ended, finish, run, together
from tests.host.model_free import Engine

HEAD = "import asyncio\nfrom inferlet import errors, runtime, session\nfrom inferlet.runtime import launch\n"


def parent(body: str, **options: Any) -> Ended:
    return run(f"{HEAD}\nasync def main(input):\n{body}", **options)


PROGRAMS = {
    "a child's result": (
        """
    child = launch("async def main(input): return {'doubled': 2 * input['x'], 'none': None}", {"x": 21})
    return await child.result(), await child.result(), child.id.startswith("child#")
""",
        [{"doubled": 42, "none": None}, {"doubled": 42, "none": None}, True],
    ),
    "many children at once": (
        """
    source = "import asyncio\\nasync def main(input):\\n    await asyncio.sleep(0.05)\\n    return input['i']"
    return await asyncio.gather(*[launch(source, {"i": i}).result() for i in range(30)])
""",
        list(range(30)),
    ),
    "messages both ways, and an end of them": (
        """
    source = '''
from inferlet import session
async def main(input):
    while (text := await session.receive()) != "stop":
        session.send(text.upper())
'''
    child = launch(source)
    for text in ("one", "zwö", "stop"): child.send(text)
    return [text async for text in child], await child.receive(), await child.result()
""",
        [["ONE", "ZWÖ"], None, None],
    ),
    "a receive that is cancelled loses nothing": (
        """
    child = launch('''
import asyncio
from inferlet import session
async def main(input):
    await session.receive()
    session.send("late")
''')
    try:
        await asyncio.wait_for(child.receive(), 0.01)
    except TimeoutError:
        child.send("go")
    return await child.receive()
""",
        "late",
    ),
    "a wait that is given up leaves the child": (
        """
    child = launch("import asyncio\\nasync def main(input):\\n    await asyncio.sleep(0.1)\\n    return 'done'")
    try:
        await asyncio.wait_for(child.result(), 0.01)
    except TimeoutError:
        return await child.result()
""",
        "done",
    ),
    "a child that is cancelled": (
        """
    child = launch("async def main(input):\\n    while True: pass")
    await asyncio.sleep(0.02)
    child.cancel()
    child.cancel()
    try:
        await child.result()
    except errors.InferletCancelled as error:
        return str(error)
""",
        "child: its parent program cancelled it",
    ),
    "a child that raises": (
        """
    child = launch("def main(input): return 1 / 0", name="divider")
    try:
        await child.result()
    except errors.InferletFailed as error:
        return str(error).splitlines()
""",
        [
            "divider: ZeroDivisionError: division by zero",
            "Traceback (most recent call last):",
            '  File "child.py", line 1, in main',
            "    def main(input): return 1 / 0",
            "                            ~~^~~",
            "ZeroDivisionError: division by zero",
        ],
    ),
    "children that end in other ways": (
        """
    sources = [
        "x = = 1",
        "import os\\ndef main(i): os.abort()",
        "def main(i): return bytearray(1 << 30)",
        "async def main(i):\\n    while 1: pass",
    ]
    told = []
    for source in sources:
        try:
            await launch(source, time=2, memory=64 * 2**20).result()
        except errors.InferletError as error:
            told.append(type(error).__name__)
    return told
""",
        ["InferletInvalid", "InferletTrapped", "InferletMemory", "InferletTimeout"],
    ),
    "a message to a child that has ended": (
        """
    child = launch("def main(input): return 1")
    await child.result()
    try:
        child.send("hello")
    except errors.InferletError as error:
        return str(error)
""",
        "child has ended and receives no more messages",
    ),
    "what children print is printed": (
        "\n    await launch(\"def main(input): print('from a child')\").result()\n",
        None,
    ),
    "a task group with a child that fails cancels the rest": (
        """
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(launch("def main(input): 1 / 0").result())
            group.create_task(asyncio.sleep(10))
    except* errors.InferletFailed:
        caught = "caught"
    return caught
""",
        "caught",
    ),
    "grandchildren, as deep as allowed": (
        """
    source = '''
from inferlet import errors
from inferlet.runtime import launch
async def main(input):
    try:
        return 1 + await launch(input["source"], input).result()
    except errors.ResourceError as error:
        return 0
'''
    return await launch(source, {"source": source}).result()
""",
        7,
    ),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_what_a_parent_may_rely_on(case: str) -> None:
    body, expected = PROGRAMS[case]
    ended = parent(body, memory=128 * 2**20)
    assert ended.error is None, ended.traceback or ended.error
    assert ended.result == expected
    if "print" in case:
        assert ended.text == "from a child\n"


REFUSED = {
    "a file that isn't there": ("launch('nothing.py')", "InferletInvalid", "program that has no folder"),
    "an input without a JSON form": ("launch('', {'x': {1}})", "UsageError", "has no JSON form"),
    "a seed below 0": ("launch('', seed=-1)", "UsageError", "from 0 to 2**64 - 1"),
    "no time": ("launch('', time=0)", "UsageError", "must be above 0"),
    "no memory": ("launch('', memory=0)", "UsageError", "must be above 0"),
    "an endless name": ("launch('', name='x' * 200)", "UsageError", "1 to 128 printable"),
    "more than are allowed": (
        "[launch('async def main(i):\\n    while 1: pass') for _ in range(70)]",
        "ResourceError",
        "program has 64 children alive, the most is 64; await one's result",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_child_that_cannot_be_is_refused(case: str) -> None:
    statement, kind, said = REFUSED[case]
    ended = parent(f"""
    try:
        {statement}
    except errors.PieError as error:
        return type(error).__name__, str(error)
""")
    assert ended.error is None, ended.traceback
    assert ended.result[0] == kind
    assert said in ended.result[1]


def test_children_count_for_the_host_too() -> None:
    async def body(host: Any, _: Engine) -> Any:
        spin = "async def main(i):\\n    while 1: pass"
        return await finish(host, f"{HEAD}\nasync def main(input):\n    while True: launch('{spin}')")

    ended = together(body, max_instances=5)
    assert getattr(ended.error, "cause", None) == "resource"
    assert "5 inferlets are alive, the most is 5" in str(ended.error)


SPINS = "async def main(input):\n    while True: pass"
SLEEPS = "import asyncio\nasync def main(input):\n    await asyncio.sleep(0.1)\n    print('done')"


@pytest.mark.parametrize("how", ["returns", "raises", "is cancelled"])
def test_children_end_with_their_parent_and_detached_ones_go_on(how: str) -> None:
    last = {"returns": "return 1", "raises": "raise ValueError", "is cancelled": "await asyncio.sleep(100)"}[how]
    source = f"""{HEAD}
async def main(input):
    launch({SPINS!r}, name="child")
    launch({SLEEPS!r}, name="detached", detached=True)
    print("started")
    await asyncio.sleep(0.02)
    {last}
"""

    async def body(host: Any, _: Engine) -> None:
        said: list[str] = []
        instance = host.launch(source, {}, name="parent", on_text=said.append)
        while not said:
            await asyncio.sleep(0.001)
        child, detached = (next(one for one in host.instances if one.name == name) for name in ("child", "detached"))
        if how == "is cancelled":
            instance.cancel()
        await asyncio.wait([asyncio.ensure_future(instance.result())])
        with pytest.raises(InferletCancelled, match="child: its parent parent has ended"):
            await child.result()
        await detached.result()
        assert "".join(said) == "started\ndone\n"

    together(body)


def test_a_child_has_its_parent_s_limits_or_less() -> None:
    source = f"{HEAD}\nasync def main(input): return await launch({SPINS!r}, **input['options']).result()"

    async def body(host: Any, _: Engine) -> list[str]:
        told = []
        for options in ({}, {"time": 0.1}, {"time": 100}):
            ended = await finish(host, source, {"options": options}, limits=Limits(time=0.5))
            told.append(str(ended.error).splitlines()[0])
        return told

    first, second, third = together(body)
    assert "ran for 0.1 s, its limit" in second
    for told in (first, third):  # the parent's own alarm, or the child's, which rings a moment later
        assert "for 0.5 s, its limit" in told


def test_a_program_beside_the_parent_is_started_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "own" / "workers" / "deep").mkdir(parents=True)
    (tmp_path / "secret.py").write_text("async def main(input): return 'secret'\n")
    (tmp_path / "own" / "workers" / "one.py").write_text("import shared\nasync def main(input): return shared.name\n")
    (tmp_path / "own" / "workers" / "shared.py").write_text("name = 'worker'\n")
    (tmp_path / "own" / "workers" / "deep" / "main.py").write_text("async def main(input): return input\n")
    (tmp_path / "own" / "shared.py").write_text("name = 'parent'\n")
    (tmp_path / "own" / "link.py").symlink_to(tmp_path / "secret.py")
    main = tmp_path / "own" / "main.py"
    main.write_text(f"""{HEAD}
from pathlib import Path
async def main(input):
    told = []
    for where in ("../secret.py", "link.py", "/etc/passwd.py", "nothing.py"):
        try:
            launch(where)
        except errors.InferletInvalid as error:
            told.append(str(error))
    by_text = "import shared\\nasync def main(input): return shared.name"
    return [
        await launch("workers/one.py").result(), await launch(Path("workers/deep"), {{"x": 1}}).result(),
        await launch(by_text).result(), told,
    ]
""")
    ended = run(main)
    assert ended.error is None, ended.traceback
    worker, deep, by_text, told = ended.result
    assert (worker, deep, by_text) == ("worker", {"x": 1}, "parent")
    for where, said in zip(("../secret.py", "link.py", "/etc/passwd.py"), told, strict=False):
        assert said.startswith(f"'{where}' was to be started by a program that lies in")
    assert "can't be read: No such file" in told[3]


def test_what_children_draw_follows_from_the_parent_s_seed() -> None:
    draws = "import random\nasync def main(input): return random.random()"
    source = f"""{HEAD}
async def main(input):
    return [await launch({draws!r}, seed=seed).result() for seed in (None, None, None, 5)]
"""

    async def body(host: Any, _: Engine) -> list[Any]:
        return [(await finish(host, source, seed=seed)).result for seed in (1, 1, 2)]

    first, again, other = together(body)
    assert first == again
    assert len(set(first) | set(other)) == 7, "all but the ones with a seed of their own are different"
    assert first[3] == other[3]


def test_what_children_and_their_children_used_is_counted() -> None:
    quick = (Path(__file__).resolve().parents[2] / "inferlets" / "quickstart" / "main.py").read_text()
    middle = (
        f"{HEAD}\nasync def main(input): return await launch({quick!r}, {{'prompt': 'x', 'max_tokens': 3}}).result()"
    )
    source = (
        f"{HEAD}\nasync def main(input): return await asyncio.gather(*[launch({middle!r}).result() for _ in range(2)])"
    )

    async def body(host: Any, _: Engine) -> Any:
        return await host.launch(source, {}).result()

    outcome = together(body)
    assert (outcome.usage.passes, outcome.children.passes, outcome.children.read_rows) == (0, 6, 6)
    assert outcome.children.forwarded_tokens == 2 * (2 + 2)


def test_a_mailbox_takes_no_more_than_its_reader_is_ready_for() -> None:
    async def body() -> None:
        box = Mailbox("reader", Limits(message=8, unread=10))
        box.post("12345678")
        with pytest.raises(ResourceError, match="reader has 8 characters of messages unread, the most is 10"):
            box.post("123")
        assert await box.messages.next() == "12345678"
        box.post("123")

    asyncio.run(body())
