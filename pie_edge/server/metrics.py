"""``/metrics``: the engine's figures and those of HTTP, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pie_edge.errors import ServerError
from pie_edge.server.exchange import Exchange

# When each series began is as many lines again, and nobody reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]
PREFIX = "pie_edge_"
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 20, 50, 100)
Snapshot = Callable[[], Awaitable[Mapping[str, Any]]]
"""Gives what ``Runtime.metrics`` does. Raises ServerError while there is no engine."""

HELP = {
    "steps": "Steps that ran on the device.",
    "step_tokens": "Tokens that they forwarded, prepared passes included.",
    "passes": "Forward passes that inferlets were answered.",
    "forwarded_tokens": "Tokens that those passes forwarded.",
    "read_rows": "Rows of logits that they read.",
    "prefix_hit_tokens": "Tokens that needn't be forwarded, since a shared prefix held them.",
    "prefix_recomputed_tokens": "Tokens forwarded again, since the prefix that had held them was evicted.",
    "evicted_pages": "Pages of shared prefixes that were dropped to make room.",
    "parked_pages": "Pages that went to host memory to make room.",
    "restored_pages": "Pages that came back from there.",
    "released_pages": "Pages behind every layer's window that went back to the pool.",
    "spilled_contents": "Parked pages that went on to disk.",
    "inferlets_ended_for_pages": "Inferlets that were ended for want of pages.",
    "run_ahead_hits": "Passes that were prepared before they were asked for.",
    "run_ahead_misses": "Passes that were prepared in vain.",
    "device_busy_seconds": "Seconds in which the device computed a step.",
    "device_starved_seconds": "Seconds in which it didn't although calls waited for a step.",
    "control_seconds": "Seconds that forming steps and handing results out took.",
    "guest_seconds": "Seconds that inferlets' own code ran.",
    "inferlets_done": "Inferlets that returned.",
    "inferlets_failed": "Inferlets that failed.",
    "inferlets_cancelled": "Inferlets that were cancelled.",
    "uptime_seconds": "Seconds since the model was loaded.",
    "serves": "Whether it takes inferlets: 0 for a device that was lost.",
    "pages": "KV pages on the device.",
    "pages_free": "Pages that hold nothing.",
    "pages_cached": "Pages that hold a prefix which nobody uses now.",
    "pages_used": "Pages of inferlets that run.",
    "page_tokens": "Tokens a page holds.",
    "parked_bytes": "Content of pages in host memory.",
    "calls_waiting": "Calls that wait for a step.",
    "calls": "Calls that wait or are under way.",
    "spaces": "Address spaces of inferlets.",
    "steps_in_flight": "Steps on the device or before it.",
    "device_idle_share": "The part of the last ten seconds in which the device did nothing.",
    "queue_growth_calls_per_second": "By how much calls became more a second, in the last ten.",
    "inferlets": "Inferlets that are alive.",
    "queue_seconds": "From a call's being asked to the step that begins it.",
    "inferlet_first_result_seconds": "From an inferlet's start to the first row it read.",
    "result_interval_seconds": "Between results of a context that decodes.",
    "step_rows": "Tokens in a step.",
    "step_calls": "Calls in a step.",
    "step_pages": "Pages that a step read.",
    "step_control_seconds": "Forming a step and handing its results out.",
    "step_device_seconds": "A step on the device.",
    "prompt_cached_share": "The part of a prompt that a shared prefix held.",
    "guest_turn_seconds": "How long an inferlet's code ran at a time.",
}


class HttpMetrics:
    """Of the requests: one for an app. A Listener."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._active = Gauge(f"{PREFIX}http_requests_active", "Requests being answered.", registry=self.registry)
        self._requests = Counter(
            f"{PREFIX}http_requests", "Requests answered.", ("method", "path", "status"), registry=self.registry
        )
        self._seconds = self._histogram("http_request_seconds", "From a request's head to its answer's end.", ("path",))
        self._first = self._histogram("time_to_first_token_seconds", "From a request's head to its first token.")
        self._intervals = self._histogram("inter_token_seconds", "Between two tokens of an answer, as they are sent.")
        self._tokens = Counter(f"{PREFIX}request_tokens", "Tokens of requests.", ("kind",), registry=self.registry)

    def follow(self, working: Callable[[], float], waiting: Callable[[], float]) -> None:
        """How many generations are worked on, and wait their turn, at each look."""
        kinds = (("working", "worked on", working), ("waiting", "that wait their turn", waiting))
        for name, text, figure in kinds:
            gauge = Gauge(f"{PREFIX}generations_{name}", f"Generations {text}.", registry=self.registry)
            gauge.set_function(figure)

    def active(self, more: int) -> None:
        """One that began, or -1: one that ended."""
        self._active.inc(more)

    def interval(self, seconds: float) -> None:
        """Between two tokens of one answer."""
        self._intervals.observe(seconds)

    def ended(self, exchange: Exchange) -> None:
        self._requests.labels(exchange.method, exchange.path, str(exchange.status)).inc()
        self._seconds.labels(exchange.path).observe(exchange.seconds)
        if exchange.to_first_token is not None:
            self._first.observe(exchange.to_first_token)
        for kind in ("prompt", "cached", "generated"):
            if count := getattr(exchange, kind):
                self._tokens.labels(kind).inc(count)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(f"{PREFIX}{name}", text, labels, registry=self.registry, buckets=SECONDS)


class EngineMetrics:
    """A snapshot as a collector; None is an engine that isn't there."""

    def __init__(self, snapshot: Mapping[str, Any] | None) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            f"{PREFIX}up", "Whether a model is loaded and takes requests.", value=float(self._snapshot is not None)
        )
        if self._snapshot is None:
            return
        yield InfoMetricFamily(f"{PREFIX}engine", "What runs.", value=dict(self._snapshot["info"]))
        for name, value in self._snapshot["counters"].items():
            yield CounterMetricFamily(PREFIX + name, _help(name), value=value)
        for name, value in self._snapshot["gauges"].items():
            yield GaugeMetricFamily(PREFIX + name, _help(name), value=value)
        for name, histogram in self._snapshot["histograms"].items():
            yield _family(name, histogram)
        yield from _of_devices(self._snapshot.get("devices", ()))


def _of_devices(devices: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """Where there are several, some of each one's own."""
    for kind, family in (("counters", CounterMetricFamily), ("gauges", GaugeMetricFamily)):
        for name in devices[0][kind] if devices else ():
            found = family(f"{PREFIX}each_device_{name}", _help(name), labels=("number", "device"))
            for number, device in enumerate(devices):
                found.add_metric((str(number), device["name"]), device[kind][name])
            yield found


def _family(name: str, histogram: Mapping[str, Any]) -> HistogramMetricFamily:
    bounds = [*(repr(float(bound)) for bound in histogram["bounds"]), "+Inf"]
    buckets = list(zip(bounds, accumulate(histogram["counts"]), strict=True))
    return HistogramMetricFamily(PREFIX + name, _help(name), buckets=buckets, sum_value=histogram["sum"])


def _help(name: str) -> str:
    return HELP.get(name, name.replace("_", " "))


def route(snapshot: Snapshot, metrics: HttpMetrics) -> Route:
    async def answer(request: Request) -> Response:
        try:
            figures: Mapping[str, Any] | None = await snapshot()
        except ServerError:
            figures = None
        text = generate_latest(metrics.registry) + generate_latest(EngineMetrics(figures))
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST, "cache-control": "no-store"})

    return Route("/metrics", answer, methods=["GET"])
