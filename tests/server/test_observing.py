"""What is told of requests: metrics as Prometheus reads them, one line of log each, spans in the client's trace."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from pie_edge.cli.serve import LoggedNotes
from pie_edge.errors import InferletFailed, OutOfPages, PieError, Unsupported, UsageError
from pie_edge.server import logs, observing, traces
from pie_edge.server.exchange import Exchange, current
from pie_edge.server.generation import Request, Text
from pie_edge.server.metrics import HttpMetrics
from tests.backend.test_statistics import answers
from tests.server.watched import PIECES, SECRET, Scripted, ask, watched
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import open_tiny
from tests.support.tiny_text import TinyTokenizer, TinyTurns

DOCS = Path(__file__).parents[2] / "docs"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"x-request-id": "mine-1", "authorization": f"Bearer {SECRET}"}


def samples(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(text: bytes, name: str, **labels: str) -> float:
    return samples(text)[f"pie_edge_{name}", frozenset(labels.items())]


class Kept:
    """A Listener that keeps what it hears of."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def ended(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)


@contextmanager
def configured(form: logs.Format) -> Iterator[io.StringIO]:
    """What is logged in this form while the block runs."""
    loggers = (logs.LOGGER, logs.UVICORN)
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    stream = io.StringIO()
    logs.configure(form, stream)
    try:
        yield stream
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    with configured("json") as stream:
        yield stream


def test_metrics_count_requests_tokens_and_the_time_between_them() -> None:
    async def body() -> bytes:
        app, _ = watched(Scripted())
        for name in ("a", "b"):
            assert (await ask(app, "POST", f"/chat/{name}"))[2] == "".join(PIECES).encode()
        assert (await ask(app, "GET", "/made-up"))[0] == 404
        return (await ask(app, "GET", "/metrics"))[2]

    text = asyncio.run(body())
    assert value(text, "http_requests_total", method="POST", path="/chat/{name}", status="200") == 2
    assert value(text, "http_requests_total", method="GET", path="other", status="404") == 1
    assert value(text, "http_requests_active") == 0
    assert value(text, "time_to_first_token_seconds_count") == 2
    assert value(text, "inter_token_seconds_count") == 2 * (len(PIECES) - 1)
    assert value(text, "inter_token_seconds_sum") >= 2 * (len(PIECES) - 1) * 0.002
    for kind, count in {"prompt": 12, "cached": 8, "generated": 3}.items():
        assert value(text, "request_tokens_total", kind=kind) == 2 * count
    assert value(text, "up") == 0


@pytest.mark.parametrize(
    ("path", "values", "shown"),
    [
        ("/v1/models", {}, "/v1/models"),
        ("/v1/responses/s/input_items", {"id": "s"}, "/v1/responses/{id}/input_items"),
        ("/v1beta/models/a/b:generateContent", {"call": "a/b:generateContent"}, "/v1beta/models/{call}"),
        ("/chat/chat", {"name": "chat"}, "/chat/{name}"),
        ("/chat/", {"name": ""}, "/chat/{name}"),
    ],
)
def test_a_path_is_told_as_its_route(path: str, values: dict[str, str], shown: str) -> None:
    assert observing._route({"path": path, "path_params": values, "endpoint": None}) == shown
    assert observing._route({"path": path}) == "other"


def test_the_engines_figures_are_the_same_in_prometheus_form() -> None:
    async def body() -> tuple[bytes, Mapping[str, Any]]:
        from pie_edge.control.metrics import metrics

        engine = await open_tiny(ReferenceBackend())
        try:
            await answers(engine, [[1, 2, 3], [4] * 20])
            snapshot = {"info": {"model": 'ti"ny'}} | metrics([engine])
        finally:
            await engine.close()

        async def given() -> Mapping[str, Any]:
            return snapshot

        app, _ = watched(Scripted(), snapshot=given)
        return (await ask(app, "GET", "/metrics"))[2], snapshot

    text, snapshot = asyncio.run(body())
    assert value(text, "up") == 1
    assert value(text, "engine_info", model='ti"ny') == 1
    for name, count in snapshot["counters"].items():
        assert value(text, f"{name}_total") == pytest.approx(count)
    for name, count in snapshot["gauges"].items():
        assert value(text, name) == pytest.approx(count)
    for name, histogram in snapshot["histograms"].items():
        assert value(text, f"{name}_count") == sum(histogram["counts"])
        assert value(text, f"{name}_sum") == pytest.approx(histogram["sum"])
        assert value(text, f"{name}_bucket", le=repr(float(histogram["bounds"][0]))) == histogram["counts"][0]


def test_the_docs_name_every_figure_there_is() -> None:
    async def body() -> bytes:
        from pie_edge.control.replicas import Replicas
        from pie_edge.host import Host, Limits

        engine = Replicas([await open_tiny(ReferenceBackend()) for _ in range(2)])
        tokenizer: Any = TinyTokenizer()
        host = await Host.open(engine, tokenizer, TinyTurns(), Limits())
        snapshot = {"info": {"model": "tiny"}} | host.metrics()
        await host.close()
        await engine.close()

        async def given() -> Mapping[str, Any]:
            return snapshot

        app, figures = watched(Scripted(), snapshot=given)
        figures.follow(lambda: 0, lambda: 0)
        await ask(app, "POST", "/chat/a")
        return (await ask(app, "GET", "/metrics"))[2]

    told = {
        sample.name.removeprefix("pie_edge_").removesuffix("_bucket")
        for family in text_string_to_metric_families(asyncio.run(body()).decode())
        for sample in family.samples
        if not sample.name.endswith(("_sum", "_count"))
    }
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "observability.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert (told - named, named - told - {"requests", "queue", "batch", "control", "device", "guest"}) == (set(), set())


def test_the_figures_of_requests_leave_out_who_looks_at_them() -> None:
    class Looking(Scripted):
        async def generate(self, request: Any) -> Any:
            self.seen = await ask(app, "GET", "/metrics")
            async for event in super().generate(request):
                yield event

    async def body() -> bytes:
        await ask(app, "POST", "/chat/a")
        return looking.seen[2]

    looking = Looking()
    app, _ = watched(looking)
    assert value(asyncio.run(body()), "http_requests_active") == 1


def test_a_request_is_one_line_of_json_without_its_secrets(logged: io.StringIO) -> None:
    async def body() -> str:
        app, _ = watched(Scripted(), logs.RequestLog())
        _, headers, _ = await ask(app, "POST", "/chat/a", HEADERS)
        return headers["x-request-id"]

    assert asyncio.run(body()) == "mine-1"
    (line,) = logged.getvalue().splitlines()
    told = json.loads(line)
    assert (told["event"], told["id"], told["model"], told["status"]) == ("request", "mine-1", "tiny", 200)
    assert (told["prompt_tokens"], told["cached_tokens"], told["generated_tokens"]) == (12, 8, 3)
    assert 0 <= told["queue_seconds"] <= told["first_token_seconds"] <= told["seconds"]
    assert SECRET not in line and "Hello" not in line


@pytest.mark.parametrize("asked", ["", "a b", 'x"\n', "é", "x" * 129])
def test_an_id_that_may_not_stand_in_a_log_is_replaced(asked: str, logged: io.StringIO) -> None:
    async def body() -> str:
        app, _ = watched(Scripted(), logs.RequestLog())
        return (await ask(app, "POST", "/chat/a", {"x-request-id": asked}))[1]["x-request-id"]

    given = asyncio.run(body())
    assert given.startswith("req_") and json.loads(logged.getvalue())["id"] == given


@pytest.mark.parametrize(
    ("error", "code"),
    [(OutOfPages("none left"), "out-of-pages"), (InferletFailed("x", cause="grammar"), "grammar")],
)
def test_an_error_is_told_by_its_code(error: PieError, code: str, logged: io.StringIO) -> None:
    kept = Kept()

    async def body() -> None:
        app, _ = watched(Scripted(error), logs.RequestLog(), kept)
        with pytest.raises(type(error)):
            await ask(app, "POST", "/chat/a")

    asyncio.run(body())
    assert [exchange.code for exchange in kept.exchanges] == [code]
    assert json.loads(logged.getvalue())["error"] == code


def test_the_tokens_of_a_request_are_those_of_all_its_generations() -> None:
    exchange, metrics = Exchange("r1", "POST", "/v1/completions"), HttpMetrics()

    async def body() -> None:
        current.set(exchange)

        async def one() -> None:
            async for _ in observing.Observed(Scripted(), metrics).generate(Request(Text("hi"))):
                pass

        await asyncio.gather(one(), one())

    asyncio.run(body())
    assert (exchange.prompt, exchange.cached, exchange.generated) == (24, 16, 6)


def test_a_refusal_of_vectors_is_told_by_its_code() -> None:
    exchange = Exchange("r1", "POST", "/v1/embeddings")

    class Refusing(Scripted):
        async def embed(self, texts: Any, dimensions: int | None = None) -> Any:
            raise Unsupported("none")

    async def body() -> None:
        current.set(exchange)
        with pytest.raises(Unsupported):
            await observing.Observed(Refusing(), HttpMetrics()).embed(["hi"])

    asyncio.run(body())
    assert exchange.code == "unsupported"


def test_lines_for_people_say_the_same_and_other_logs_pass_through() -> None:
    exchange = Exchange("r1", "POST", "/v1/x", status=200, model="tiny", prompt=3, generated=2)
    exchange.ended = exchange.began + 1.5
    with configured("human") as stream:
        logs.RequestLog().ended(exchange)
        logging.getLogger("pie_edge.engine").warning("the engine is started anew")
    assert stream.getvalue().splitlines() == [
        "pie-edge: POST /v1/x 200 in 1.50 s: 3 tokens (0 cached), 2 generated [r1]",
        "pie-edge: the engine is started anew",
    ]


def test_what_uvicorn_says_is_in_the_same_form(logged: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").error("a broken %s", "request")
    logging.getLogger("uvicorn.access").info("not this")
    (line,) = logged.getvalue().splitlines()
    told = json.loads(line)
    assert (told["event"], told["level"], told["message"]) == ("log", "error", "a broken request")


def spans_of(parent: str) -> dict[str, ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def body() -> None:
        app, _ = watched(Scripted(), traces.Traces(provider))
        await ask(app, "POST", "/chat/a", {"traceparent": parent} if parent else {})

    asyncio.run(body())
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_is_a_span_of_the_clients_trace_with_its_stages_inside() -> None:
    found = spans_of(f"00-{TRACE}-{PARENT}-01")
    whole = found.pop("POST /chat/{name}")
    assert whole.context is not None and whole.parent is not None
    assert (f"{whole.context.trace_id:032x}", f"{whole.parent.span_id:016x}") == (TRACE, PARENT)
    assert list(found) == ["queue", "prefill", "decode"]
    moment = whole.start_time
    for stage in found.values():
        assert stage.parent is not None and stage.parent.span_id == whole.context.span_id
        assert stage.start_time == moment
        moment = stage.end_time
    assert moment is not None and whole.end_time is not None and moment <= whole.end_time
    assert whole.attributes is not None and whole.attributes["gen_ai.usage.output_tokens"] == 3


@pytest.mark.parametrize("parent", ["", "garbage", f"00-{'0' * 32}-{PARENT}-01"])
def test_without_a_traceparent_that_is_one_a_trace_begins(parent: str) -> None:
    whole = spans_of(parent)["POST /chat/{name}"]
    assert whole.parent is None


def test_traces_are_off_unless_an_endpoint_is_configured() -> None:
    assert traces.configured({}) is None
    assert traces.configured({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}) is None


def test_traces_that_are_asked_for_and_not_installed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(UsageError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT asks for traces.*\[otel\]"):
        traces.configured({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"})


def test_an_engine_that_ended_is_a_line_of_the_log_as_json(logged: io.StringIO) -> None:
    notes = LoggedNotes()
    for done, total, what in (
        (0, 0, "the engine ended"),
        (0, 0, "the engine ended"),
        (1, 2, "reading"),
        (2, 2, "reading"),
    ):
        notes(done, total, what)
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert [(line["event"], line["message"]) for line in lines] == [("note", "the engine ended")]
