"""Many inferlets on one thread: nobody is lost, nobody starves, and whoever is cancelled leaves nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from pie_edge.errors import InferletCancelled, InferletTimeout, PieError, ResourceError
from tests.host.hosting import Ended, finish, together
from tests.host.model_free import Engine, Kinds, greedy

QUICKSTART = Path(__file__).resolve().parents[2] / "inferlets" / "quickstart" / "main.py"
SPIN = "async def main(input):\n    while True: pass"


def test_two_hundred_instant_inferlets_say_all_they_have_to_say() -> None:
    source = "print('start', end=' ')\nasync def main(input):\n    for i in range(3): print(input['n'], i)\n    return input['n']"

    async def body(host: Any, _: Engine) -> list[Ended]:
        return list(await asyncio.gather(*[finish(host, source, {"n": n}) for n in range(200)]))

    for n, ended in enumerate(together(body)):
        assert ended.result == n, ended
        assert ended.text == f"start {n} 0\n{n} 1\n{n} 2\n"


def test_sixty_four_generations_at_once_give_what_each_gives_alone() -> None:
    tokens = Kinds()

    async def body(host: Any, _: Engine) -> list[Ended]:
        runs = [finish(host, QUICKSTART, {"prompt": f"prompt {n}", "max_tokens": 10}) for n in range(64)]
        return list(await asyncio.gather(*runs))

    for n, ended in enumerate(together(body)):
        expected = greedy(tokens.prefix() + tokens.encode(f"prompt {n}"), 10)
        assert ended.result == {"text": tokens.decode(expected)}


def test_spinning_guests_delay_a_woken_one_by_little() -> None:
    """Eight guests spin; a ninth sleeps for 5 ms, forty times. Its bound is wide, for a busy machine: 5 ms in the middle."""
    source = """
import asyncio, time
async def main(input):
    late = []
    for _ in range(40):
        start = time.monotonic()
        await asyncio.sleep(0.005)
        late.append(time.monotonic() - start - 0.005)
    return sorted(late)[len(late) // 2]
"""

    async def body(host: Any, _: Engine) -> Any:
        spinning = [host.launch(SPIN, {}) for _ in range(8)]
        ended = await finish(host, source)
        for instance in spinning:
            instance.cancel()
        return ended

    ended = together(body)
    assert ended.error is None, ended
    assert ended.result < 0.005


def test_spinning_guests_delay_the_host_s_own_work_by_little() -> None:
    async def body(host: Any, _: Engine) -> float:
        for _turn in range(8):
            host.launch(SPIN, {})
        late = []
        for _turn in range(40):
            start = time.perf_counter()
            await asyncio.sleep(0.002)
            late.append(time.perf_counter() - start - 0.002)
        return sorted(late)[len(late) // 2]

    assert together(body) < 0.005


def test_spinning_guests_share_their_time() -> None:
    """Each prints a dot for every piece of work; all are counted over the same second."""
    source = "async def main(input):\n    while True:\n        sum(range(5000))\n        print('.', end='', flush=True)"

    async def body(host: Any, _: Engine) -> list[int]:
        dots: list[list[str]] = [[] for _ in range(4)]
        instances = [host.launch(source, {}, on_text=mine.append) for mine in dots]
        while not all(dots):
            await asyncio.sleep(0.001)
        before = [len(mine) for mine in dots]
        await asyncio.sleep(1.0)
        after = [len(mine) for mine in dots]
        for instance in instances:
            instance.cancel()
        return [late - early for early, late in zip(before, after, strict=True)]

    counts = together(body)
    assert min(counts) > max(counts) / 3, counts


@pytest.mark.parametrize("turns", [*range(12), 20, 40, 80])
def test_a_guest_cancelled_at_any_point_of_its_life_leaves_nothing(turns: int) -> None:
    """``turns`` turns of the loop after its start: while it is created, compiles, waits for a pass, between two passes."""

    async def body(host: Any, engine: Engine) -> None:
        engine.delay = 0.0005
        instance = host.launch(QUICKSTART, {"prompt": "x", "max_tokens": 500})
        for _ in range(turns):
            await asyncio.sleep(0)
        instance.cancel("enough")
        with pytest.raises(InferletCancelled, match="enough"):
            await instance.result()
        assert not engine.spaces
        assert engine.free == engine.pages
        assert (await finish(host, QUICKSTART, {"prompt": "x", "max_tokens": 2})).error is None

    together(body)


def test_a_guest_is_cancelled_from_inside_of_its_own_turn() -> None:
    async def body(host: Any, _: Engine) -> None:
        instances: list[Any] = []
        source = "async def main(input):\n    print('stop me')\n    while True: pass"
        instances.append(host.launch(source, {}, on_text=lambda text: instances[0].cancel("as asked")))
        with pytest.raises(InferletCancelled, match="as asked"):
            await instances[0].result()

    together(body)


def test_cancelling_the_caller_of_run_cancels_the_inferlet() -> None:
    async def body(host: Any, _: Engine) -> None:
        task = asyncio.create_task(host.run(SPIN, {}))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not host.instances

    together(body)


def test_closing_the_host_ends_everything_that_runs() -> None:
    async def body(host: Any, engine: Engine) -> list[Any]:
        engine.delay = -1.0
        instances = [host.launch(SPIN, {}), host.launch(QUICKSTART, {"prompt": "x"})]
        await asyncio.sleep(0.02)
        await host.close()
        with pytest.raises(InferletCancelled, match="closed"):
            host.launch(SPIN, {})
        return [*await asyncio.gather(*[one.result() for one in instances], return_exceptions=True)]

    assert [type(error) for error in together(body)] == [InferletCancelled, InferletCancelled]


def test_one_instance_too_many_is_refused_and_a_later_one_is_not() -> None:
    async def body(host: Any, _: Engine) -> None:
        first = [host.launch(SPIN, {}) for _ in range(3)]
        with pytest.raises(ResourceError, match="3 inferlets are alive, the most is 3"):
            host.launch(SPIN, {})
        first[0].cancel()
        host.launch(SPIN, {}).cancel()

    together(body, max_instances=3)


def test_failures_of_all_kinds_at_once_harm_no_one_else() -> None:
    tokens = Kinds()
    endings = [
        "def main(input): 1 / 0",
        "import os\ndef main(input): os.abort()",
        "def main(input): return bytearray(1 << 30)",
        SPIN,
        "def main(input: return",
        "import sys\ndef main(input): sys.exit()",
        "import sys\nsys.setrecursionlimit(10**7)\ndef f(): f()\ndef main(input): f()",
    ]

    async def body(host: Any, _: Engine) -> tuple[list[Ended], list[Ended]]:
        bad = [finish(host, source) for source in endings * 3]
        good = [finish(host, QUICKSTART, {"prompt": str(n), "max_tokens": 20}) for n in range(10)]
        both = await asyncio.gather(*bad, *good)
        return list(both[: len(bad)]), list(both[len(bad) :])

    bad, good = together(body, time=1.5, memory=64 * 2**20)
    assert all(isinstance(ended.error, PieError) for ended in bad)
    spun = [ended for ended, source in zip(bad, endings * 3, strict=True) if source == SPIN]
    assert [type(ended.error) for ended in spun] == [InferletTimeout] * 3
    for n, ended in enumerate(good):
        assert ended.result == {"text": tokens.decode(greedy(tokens.prefix() + tokens.encode(str(n)), 20))}


def test_instances_have_ids_of_their_own() -> None:
    source = "from inferlet import runtime\ndef main(input): return runtime.instance_id()"

    async def body(host: Any, _: Engine) -> list[Any]:
        return [ended.result for ended in await asyncio.gather(*[finish(host, source, name="same") for _ in range(5)])]

    ids = together(body)
    assert len(set(ids)) == 5
    assert all(one.startswith("same#") for one in ids)
