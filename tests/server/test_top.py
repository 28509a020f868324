"""``pie-edge top`` shows what a server's /metrics says."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from pie_edge.cli import main
from pie_edge.cli.figures import Between, quantile, read, rows
from pie_edge.control.statistics import SECONDS, Histogram
from pie_edge.server.exchange import Exchange
from pie_edge.server.metrics import EngineMetrics, HttpMetrics


def exposition(steps: int, times: list[float], devices: Sequence[Mapping[str, Any]] = ()) -> str:
    """What a server says that ran so many steps, and whose first tokens took these times."""
    http = HttpMetrics()
    for seconds in times:
        exchange = Exchange("r", "POST", "/v1/chat/completions", status=200, prompt=5, generated=7)
        exchange.first = exchange.began + seconds
        exchange.ended = exchange.began + 2 * seconds
        http.ended(exchange)
    device = Histogram(SECONDS)
    for _ in range(steps):
        device.add(0.015)
    snapshot = {
        "info": {"model": "[bold]tiny[/bold]", "backend": "cpu", "device": "a processor"},
        "counters": {"steps": steps, "read_rows": 2 * steps, "forwarded_tokens": 30, "prefix_hit_tokens": 10},
        "gauges": {
            "uptime_seconds": 10.0,
            "pages_used": 3,
            "pages_cached": 2,
            "pages_free": 95,
            "device_idle_share": 0.25,
        },
        "histograms": {"step_device_seconds": device.snapshot()},
        "devices": devices,
    }
    return (generate_latest(http.registry) + generate_latest(EngineMetrics(snapshot))).decode()


@contextmanager
def answering(text: str, key: str = "") -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = not key or self.headers["authorization"] == f"Bearer {key}"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(text.encode() if allowed else b"{}")

        def log_message(self, format: str, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        main(["top", *words])
    except SystemExit as ending:
        status = int(ending.code or 0)
    else:
        status = 0
    told = capsys.readouterr()
    return status, told.out, told.err


def test_once_prints_the_figures_since_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(exposition(100, [0.15] * 10)) as url:
        status, out, _ = shown(capsys, url, "--once")
    table = dict(line.split("  ", 1) for line in out.splitlines())
    assert status == 0
    found = {name.strip(): text.strip() for name, text in table.items()}
    assert found["model"] == "[bold]tiny[/bold] on cpu (a processor)"
    assert found["tokens"] == "20.0 a second chosen, 3.0 forwarded"
    assert found["pages"] == "3 used, 2 cached, 95 free"
    assert found["cache hits"].startswith("25% of tokens")
    assert found["first token"].startswith("p50 1") and found["first token"].endswith(" ms")
    assert "idle 25%" in found["device"]


def test_without_a_url_the_server_is_the_one_that_the_environment_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(exposition(1, [])) as url:
        monkeypatch.setenv("PIE_EDGE_URL", url)
        status, out, _ = shown(capsys, "--once")
    assert status == 0 and "[bold]tiny[/bold] on cpu" in out


def test_each_of_several_devices_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    pages = {"pages_used": 3, "pages_cached": 2, "pages_free": 95}
    devices = [
        {"name": name, "counters": {"steps": 7}, "gauges": {"serves": serves, "spaces": 2, **pages}}
        for name, serves in (("L4", 1.0), ("L4 (2)", 0.0))
    ]
    with answering(exposition(14, [], devices)) as url:
        status, out, _ = shown(capsys, url, "--once")
    assert status == 0
    first, second = re.findall(r"^device [01] +(.*)$", out, re.MULTILINE)
    assert first == "L4: 2 inferlets, 7 steps, pages 3 used, 2 cached, 95 free"
    assert second == "L4 (2): lost"


def test_a_server_with_a_key_is_asked_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(exposition(1, []), key="k") as url:
        assert shown(capsys, url, "--once", "--api-key", "k")[0] == 0
        status, _, err = shown(capsys, url, "--once")
    assert status == 1 and "status 401" in err and "--api-key" in err


def test_what_is_no_server_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = shown(capsys, "http://127.0.0.1:1", "--once")
    assert status == 1 and "doesn't answer" in err
    with answering("<html>{not metrics") as url:
        status, _, err = shown(capsys, url, "--once")
    assert status == 1 and "is it a pie-edge server?" in err
    assert shown(capsys, "file:///etc/passwd", "--once")[0] == 2


@pytest.mark.parametrize(("away", "last"), [(False, "[bold]tiny[/bold] on cpu"), (True, "doesn't answer")])
def test_it_goes_on_looking_until_it_is_interrupted_also_when_the_server_is_away(
    away: bool, last: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2 and away:
            stack.close()
        if len(slept) == 3:
            raise KeyboardInterrupt

    with ExitStack() as stack:
        url = stack.enter_context(answering(exposition(100, [0.15])))
        monkeypatch.setattr("pie_edge.cli.top.time.sleep", sleep)
        status, out, _ = shown(capsys, url, "--interval", "0.5")
    assert (status, slept) == (130, [0.5] * 3)
    # Where it isn't a terminal, only the last look is left.
    assert last in out


def test_rates_and_quantiles_are_those_between_two_looks() -> None:
    before, after = read(exposition(100, [5.0] * 10), 0.0), read(exposition(150, [5.0] * 10 + [0.15] * 10), 2.0)
    figures = Between(before, after)
    assert figures.rate("steps") == 25.0
    first = figures.quantile("time_to_first_token_seconds", 0.99)
    assert first is not None and 0.1 <= first <= 0.2
    anew = Between(after, read(exposition(10, []), 3.0))
    assert anew.rate("steps") == 10.0
    assert anew.quantile("no_such_histogram", 0.5) is None


def test_an_engine_that_is_not_there_is_said_so() -> None:
    look = read(generate_latest(EngineMetrics(None)).decode(), 0.0)
    assert rows(Between(None, look))[0][0] == "engine"


@given(st.lists(st.floats(1e-6, 100.0), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    histogram = Histogram(SECONDS)
    for value in values:
        histogram.add(value)
    counts, total = [], 0
    for bound, count in zip([*SECONDS, float("inf")], histogram.counts, strict=True):
        total += count
        counts.append((bound, float(total)))
    found = quantile(tuple(counts), share)
    ordered = sorted(values)
    true = ordered[max(math.ceil(share * len(values)), 1) - 1]
    low = max((bound for bound in SECONDS if bound < true), default=0.0)
    high = min((bound for bound in SECONDS if bound >= true), default=SECONDS[-1])
    assert found is not None and low <= found <= high
