"""The benchmark of overheads: what it calls a bare loop forms the steps that the control layer forms, and its differences are
what they say."""

from __future__ import annotations

import asyncio
import time
from dataclasses import fields
from types import SimpleNamespace

import pytest

from benchmarks import tax
from pie_edge.control.batch import build
from pie_edge.control.pages import Entry, WorkingSet
from pie_edge.control.queue import Placement, Work
from pie_edge.control.scheduler import Budget, pick
from pie_edge.program.step import StepLayout
from tests.pure.test_scheduler import work
from tests.support.tiny import ARGMAX


def decode(stream: int, token: int, place: int) -> Work:
    """A context whose page is ``stream + 1``, with all tokens up to ``place`` written."""
    entry = Entry(stream + 1, (2 << place) - 1)
    made = work(1, start=place)
    made.context, made.placement = WorkingSet([entry]), Placement((entry,), (place,), (place,))
    made.tokens, made.space = (token,), made.space
    return made


def test_the_bare_loop_s_steps_are_those_of_the_control_layer() -> None:
    tokens, place = [3, 1, 4], 5
    limits = Budget(rows=8, sequences=8, sampled=8, entries=8, shared_rows=8)
    works = [decode(stream, token, place) for stream, token in enumerate(tokens)]
    real = build(pick(works, limits, tax.PAGE), tax.PAGE).inputs
    bare = tax.decode_inputs(tokens, place, len(tokens))
    for field in fields(real):
        if field.name not in ("draw_keys", "mask_starts", "mask"):
            assert list(getattr(bare, field.name)) == list(getattr(real, field.name)), field.name
    assert bare.counts == real.counts
    StepLayout(real.counts).pack(bare)


def test_what_a_start_takes_is_no_part_of_a_token_s_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(tax, "time", SimpleNamespace(perf_counter=lambda: clock.now, process_time=lambda: clock.now))

    async def measured(count: int) -> None:
        clock.now += 0.02 + 0.001 * count

    _, wall = asyncio.run(tax.per_token(measured, 1, 32, 2))
    assert wall == pytest.approx(1000)


def test_a_device_that_takes_time_runs_one_step_after_the_other_and_says_how_late_it_was_asked() -> None:
    async def body() -> list[float]:
        device = tax.Timed(0.01)
        program = tax.parse(ARGMAX, vocabulary=64, rows=1).program(1, 1)
        executable = await device.compile(program, {})
        start = asyncio.get_running_loop().time()
        tickets = [device.run(executable, {"step": b""}) for _ in range(3)]
        assert [round(ticket.end - start, 3) for ticket in tickets] == [0.01, 0.02, 0.03]
        assert not device.poll(tickets[0])
        await device.read(tickets[2])
        assert all(map(device.poll, tickets))
        time.sleep(0.02)
        await device.read(tickets[1])
        return device.late

    late = asyncio.run(body())
    assert late[0] >= 0
    assert late[1] >= late[0] + 0.03 - 0.001
