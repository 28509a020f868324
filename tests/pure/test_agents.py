"""Those parts of ``benchmarks.agents`` that run no program: slots as llama.cpp's server has them, comparing, telling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from benchmarks.calling import report
from benchmarks.calling.compare import INFERLET, REQUESTS, Comparison, DisagreementError, Point
from benchmarks.calling.llama_cpp import Row, Slots, shared
from benchmarks.calling.loopback import AnswerError, Client, serving
from benchmarks.calling.report import Findings
from benchmarks.calling.script import QUICK, Scripts, Task
from benchmarks.inferlets import dialogue
from tests.support.tiny_text import TinyTokenizer


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


class Summing:
    """A model whose next token is the sum of all that its sequence holds: what is lost, or left over, shows in it."""

    def __init__(self) -> None:
        self.held: dict[int, list[int]] = {}
        self.passes: list[list[Row]] = []
        self.fails = False

    def forward(self, entries: Sequence[Row]) -> Iterator[int]:
        if self.fails:
            raise RuntimeError("llama_decode gave 1")
        self.passes.append(list(entries))
        for sequence, place, token, read_out in entries:
            held = self.held.setdefault(sequence, [])
            assert place == len(held)
            held.append(token)
            if read_out:
                yield sum(held) % 97

    def forget(self, sequence: int, first: int) -> None:
        del self.held.setdefault(sequence, [])[first:]


def continued(prompt: Sequence[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(sum(tokens) % 97)
    return tokens[len(prompt) :]


async def ask(slots: Slots, prompt: Sequence[int], count: int) -> Any:
    return await slots.handlers["/completions"]({"prompt": list(prompt), "max_tokens": count})


def test_a_conversation_that_is_sent_again_is_read_from_where_it_differs() -> None:
    async def test() -> None:
        slots = Slots(Summing(), slots=2)
        first = await ask(slots, range(40), 4)
        assert first == continued(range(40), 4)
        assert slots.forwarded == 40 + 3
        again = [*range(40), *first, 7, 8]
        assert await ask(slots, again, 2) == continued(again, 2)
        # The last token that was made, the two new ones, and the first of the two that are made now.
        assert slots.forwarded == 43 + 3 + 1
        # The same once more is found whole, but for the token that is read out.
        assert await ask(slots, again, 1) == continued(again, 1)
        assert slots.forwarded == 47 + 1
        await slots.close()

    run(test)


def test_requests_that_come_together_share_passes_and_those_beyond_the_slots_wait() -> None:
    async def test() -> None:
        model = Summing()
        slots = Slots(model, slots=3, batch=16)
        prompts = [[number, *range(5 * number + 3)] for number in range(1, 8)]
        found = await asyncio.gather(*(ask(slots, prompt, 5) for prompt in prompts))
        assert list(found) == [continued(prompt, 5) for prompt in prompts]
        assert max(len(rows) for rows in model.passes) == 16
        assert max(len({row[0] for row in rows}) for rows in model.passes) == 3
        await slots.close()

    run(test)


def test_who_is_unlike_all_slots_takes_the_one_that_was_idle_longest() -> None:
    async def test() -> None:
        model = Summing()
        slots = Slots(model, slots=2)
        for start in (10, 50):
            await ask(slots, range(start, start + 20), 1)
        await ask(slots, range(10, 31), 1)
        assert await ask(slots, [9] * 20, 1) == continued([9] * 20, 1)
        assert sorted(held[0] for held in model.held.values()) == [9, 10]
        await slots.close()

    run(test)


def test_a_pass_that_fails_fails_its_requests_and_the_next_ones_are_served() -> None:
    async def test() -> None:
        model = Summing()
        slots = Slots(model, slots=2, room=64)
        await ask(slots, range(10), 2)
        model.fails = True
        with pytest.raises(RuntimeError, match="llama_decode gave 1"):
            await ask(slots, range(12), 2)
        model.fails = False
        assert await ask(slots, range(12), 2) == continued(range(12), 2)
        with pytest.raises(ValueError, match="room for 64"):
            await ask(slots, range(63), 2)
        await slots.close()

    run(test)


@pytest.mark.parametrize(("one", "other", "count"), [([], [1], 0), ([1, 2], [1, 2, 3], 2), ([1, 9, 3], [1, 2, 3], 1)])
def test_how_much_two_begin_alike(one: list[int], other: list[int], count: int) -> None:
    assert shared(one, other) == shared(other, one) == count


def test_what_is_posted_is_answered_also_over_a_connection_that_is_used_again_and_errors_are_told() -> None:
    async def test() -> None:
        async def double(asked: dict[str, Any]) -> Any:
            return 2 * asked["number"]

        async with serving({"/double": double}) as url:
            client = Client(url)
            assert await asyncio.gather(*(client.post("/double", {"number": i}) for i in range(3))) == [0, 2, 4]
            with pytest.raises(AnswerError, match="/double: KeyError: 'number'"):
                await client.post("/double", {})
            with pytest.raises(AnswerError, match="/half"):
                await client.post("/half", {"number": 4})
            assert await client.post("/double", {"number": [1]}) == [1, 1]
            await client.close()

    run(test)


class Said:
    """Agents that write the same token in every turn."""

    def __init__(self, token: int, length: int = 4) -> None:
        self.turn = [token] * length
        self.tasks: list[Task] = []

    async def run(self, shape: str, task: Task) -> list[list[int]]:
        self.tasks.append(task)
        return [self.turn] * (task.calls + 1)


def compared(ours: Said, theirs: Said) -> Comparison:
    sides: Any = {INFERLET: ours, REQUESTS: theirs}
    with asyncio.Runner() as runner:
        made = Comparison(sides, Scripts(TinyTokenizer(), QUICK), QUICK, runner)
        point = made.point("react", 2, 3, 2)
    assert (point.shape, point.calls, point.together) == ("react", 2, 3)
    assert {name: len(seconds) for name, seconds in point.seconds.items()} == {INFERLET: 2, REQUESTS: 2}
    return made


def test_all_sides_have_the_same_sessions_and_no_session_comes_twice() -> None:
    ours, theirs = Said(1), Said(1)
    assert compared(ours, theirs).check(exact=True) == "requests 6 of 6"
    assert ours.tasks == theirs.tasks
    assert len({tuple(task.prompts[0]) for task in ours.tasks}) == len(ours.tasks) == 6


def test_other_tokens_are_an_error_only_where_they_have_to_be_equal_and_other_lengths_always() -> None:
    made = compared(Said(1), Said(2))
    assert "requests 0 of 6" in made.check(exact=False)
    with pytest.raises(DisagreementError, match="6 of 6 agents wrote other tokens"):
        made.check(exact=True)
    with pytest.raises(DisagreementError, match="other lengths"):
        compared(Said(1), Said(1, 5)).check(exact=False)


def test_the_report_tells_ratios_of_what_was_measured_in_the_same_round() -> None:
    points = [
        Point("react", 8, 1, {INFERLET: [1.0, 10.0], REQUESTS: [1.5, 15.0]}),
        Point("react", 8, 4, {INFERLET: [2.0], REQUESTS: [3.0]}),
    ]
    ladder = {"baseline": {1: [2.0, 4.0]}, "+ exported": {1: [1.0, 2.0]}}
    used = {INFERLET: {"forwarded": 1000, "cached": 0}, REQUESTS: {"forwarded": 2000, "cached": 500}}
    found = Findings({INFERLET: "ours", REQUESTS: "ours, too"}, points, used, "all", ladder)
    text = report.render(found)
    assert "| ReACT | 8 | 5.50 | 8.25 | 1.50 (1.50 to 1.50) |" in text
    assert "| ReACT | 8 | 2.00 | 1.33 | 1.50 |" in text
    assert "| + exported | 0.67 | 2.00 |" in text
    assert "inferlet 1,000, requests 2,000 and 500 found" in text
    assert found.json()["points"][0]["calls"] == 8


@pytest.mark.parametrize("call", range(8))
def test_the_code_of_a_codeact_agent_is_arithmetic_and_finds_nothing_to_call(call: int) -> None:
    assert dialogue.run(dialogue.code(call)) == str((call * 37 + 11) * (5 + call % 7) % 101)
    with pytest.raises(NameError):
        dialogue.run("open('x')")
