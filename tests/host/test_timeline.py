"""The timeline that ``--profile`` writes: JSON whose spans nest, add up to the engine's own figures, and fit into the time."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pie_edge.profile import TRACKS, TraceFile, join
from tests.host.hosting import finish
from tests.host.tiny_hosting import tiny_host

PROGRAM = """
from inferlet import Context

async def main(input):
    context = Context()
    context.fill("one two three")
    return await context.generate_until(max_tokens=5)
"""
SLACK = 0.01
"""Microseconds: what rounding may make of times that are equal."""


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def spans(found: list[dict[str, Any]], track: str) -> list[dict[str, Any]]:
    return [event for event in found if event["ph"] == "X" and event["cat"] == track]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], dict[str, Any], float]:
    """The events of three inferlets, what the host says it did, and the seconds that it all took."""
    path = tmp_path_factory.mktemp("profile") / "out.json"

    async def body() -> tuple[dict[str, Any], float]:
        async with tiny_host() as (host, _):
            trace = TraceFile(path, "test")
            host.follow(trace)
            began = time.perf_counter()
            ended = await asyncio.gather(*(finish(host, PROGRAM, {}, seed=1, name=f"n{number}") for number in range(3)))
            wall = time.perf_counter() - began
            figures = host.metrics()
            trace.close()
        assert [one.error for one in ended] == [None] * 3
        return figures, wall

    figures, wall = asyncio.run(body())
    return events(path), figures, wall


def test_spans_of_a_track_follow_each_other_or_nest(profiled: tuple[list[dict[str, Any]], Any, float]) -> None:
    found, _, _ = profiled
    for track in ("control", "device", "guest"):
        open_until: list[float] = []
        inside = sorted(spans(found, track), key=lambda event: (event["ts"], -event["dur"]))
        assert inside, track
        for event in inside:
            while open_until and open_until[-1] <= event["ts"] + SLACK:
                open_until.pop()
            assert not open_until or event["ts"] + event["dur"] <= open_until[-1] + SLACK, event
            open_until.append(event["ts"] + event["dur"])


def test_every_overlapping_span_begins_and_ends_once(profiled: tuple[list[dict[str, Any]], Any, float]) -> None:
    found, figures, _ = profiled
    ends: dict[tuple[str, int], list[str]] = defaultdict(list)
    for event in found:
        if event["ph"] in "be":
            ends[event["cat"], event["id"]].append(event["ph"])
    assert set(map(tuple, ends.values())) == {("b", "e")}
    assert sum(track == "batch" for track, _ in ends) == figures["counters"]["steps"]


def test_the_sums_are_the_metrics_and_fit_into_the_time(profiled: tuple[list[dict[str, Any]], Any, float]) -> None:
    found, figures, wall = profiled
    sums = {track: sum(event["dur"] for event in spans(found, track)) / 1e6 for track in ("device", "guest")}
    assert sums["device"] == pytest.approx(figures["counters"]["device_busy_seconds"], abs=1e-6)
    assert sums["guest"] == pytest.approx(figures["counters"]["guest_seconds"], abs=1e-6)
    whole = [event for event in spans(found, "control") if event["name"] in ("form a step", "hand out")]
    assert sum(event["dur"] for event in whole) / 1e6 == pytest.approx(figures["counters"]["control_seconds"], abs=1e-6)
    assert all(total <= wall for total in sums.values())
    assert figures["counters"]["inferlets_done"] == 3 and figures["gauges"]["inferlets"] == 0


def test_a_batch_names_the_inferlets_in_it(profiled: tuple[list[dict[str, Any]], Any, float]) -> None:
    found, _, _ = profiled
    batches = [event["args"] for event in found if event["ph"] == "b" and event["cat"] == "batch"]
    assert {name.split("#")[0] for batch in batches for name in batch["calls"]} == {"n0", "n1", "n2"}
    assert all(sum(batch["calls"].values()) == batch["rows"] for batch in batches)


def test_a_file_takes_no_more_than_its_limit_and_says_so(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "out.json", "test", most=100)
    for number in range(250):
        trace.span("device", "step", number, number + 0.5)
    trace.close()
    found = events(tmp_path / "out.json")
    assert len(spans(found, "device")) == 100
    assert found[-1]["name"] == "150 more spans had no room"


def test_files_of_several_processes_become_one_also_after_a_kill(tmp_path: Path) -> None:
    parts = [tmp_path / "a", tmp_path / "b"]
    for number, part in enumerate(parts):
        trace = TraceFile(part, f"process {number}")
        trace.span("requests", "POST", 1.0, 2.0, number)
        trace.close()
    whole = parts[0].read_text(encoding="utf-8")
    parts[0].write_text(whole[: whole.rindex('"ph": "e"')], encoding="utf-8")
    join(parts, tmp_path / "out.json")
    found = events(tmp_path / "out.json")
    assert [event["ph"] for event in found if event.get("cat") == "requests"] == ["b", "b", "e"]
    assert len([event for event in found if event["name"] == "thread_name"]) == 2 * len(TRACKS)
    assert not any(part.exists() for part in parts)


def test_a_file_that_cannot_be_made_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TraceFile(tmp_path / "nowhere" / "out.json", "test")
