"""A server's ``/metrics`` as figures for people: rates and quantiles of what happened between two looks at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Buckets = tuple[tuple[float, float], ...]
"""Upper bounds, the last one infinite, and how many values were at most that."""


@dataclass(frozen=True)
class Look:
    """``seconds`` is when, of a monotonic clock; ``values`` are sums over labels. ``devices`` are, where there are several, the
    figures of each by its number, its name being one of them."""

    seconds: float
    values: Mapping[str, float]
    histograms: Mapping[str, Buckets]
    info: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read(text: str, seconds: float) -> Look:
    """Of what Prometheus would read. Raises ValueError for anything else."""
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    info: dict[str, str] = {}
    devices: dict[str, dict[str, Any]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("pie_edge_")
            if name.endswith("_bucket"):
                counts = buckets.setdefault(name.removesuffix("_bucket"), {})
                bound = float(sample.labels["le"])
                counts[bound] = counts.get(bound, 0.0) + sample.value
            elif name == "engine_info":
                info |= sample.labels
            elif name.startswith("each_device_"):
                device = devices.setdefault(sample.labels["number"], {"name": sample.labels["device"]})
                device[name.removeprefix("each_device_").removesuffix("_total")] = sample.value
            else:
                counted = name.removesuffix("_total")
                values[counted] = values.get(counted, 0.0) + sample.value
    histograms = {name: tuple(sorted(counts.items())) for name, counts in buckets.items()}
    return Look(seconds, values, histograms, info, devices)


def quantile(buckets: Buckets, share: float) -> float | None:
    """Where this share of the values lies, as if they were spread evenly within a bucket; None without values."""
    if not buckets or not buckets[-1][1]:
        return None
    wanted = share * buckets[-1][1]
    below, low = 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted and count > below:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (wanted - below) / (count - below)
        below, low = count, bound
    return low


@dataclass(frozen=True)
class Between:
    """What happened from one look to the next; of a first look, since the server's start."""

    before: Look | None
    after: Look

    def now(self, name: str) -> float:
        return self.after.values.get(name, 0.0)

    def count(self, name: str) -> float:
        """How much a counter grew. One that shrank belongs to an engine that was started anew."""
        before = 0.0 if self.before is None else self.before.values.get(name, 0.0)
        grown = self.now(name) - before
        return grown if grown >= 0 else self.now(name)

    @property
    def seconds(self) -> float:
        if self.before is None:
            return max(self.now("uptime_seconds"), 1e-9)
        return max(self.after.seconds - self.before.seconds, 1e-9)

    def rate(self, name: str) -> float:
        return self.count(name) / self.seconds

    def quantile(self, name: str, share: float) -> float | None:
        after = self.after.histograms.get(name, ())
        before = dict(() if self.before is None else self.before.histograms.get(name, ()))
        grown = tuple((bound, count - before.get(bound, 0.0)) for bound, count in after)
        if any(count < 0 for _, count in grown) or not grown or not grown[-1][1]:
            grown = after
        return quantile(grown, share)

    def mean(self, name: str) -> float | None:
        count = self.count(f"{name}_count")
        return self.count(f"{name}_sum") / count if count else None


def rows(figures: Between) -> Sequence[tuple[str, str]]:
    """What ``pie-edge top`` shows, from top to bottom."""
    info, now, rate = figures.after.info, figures.now, figures.rate
    if not now("up"):
        return [("engine", "not ready: its model is loading, or it is started anew")]
    hits, asked = figures.count("prefix_hit_tokens"), figures.count("forwarded_tokens")
    cached = f"{hits / (hits + asked):.0%} of tokens" if hits + asked else "-"
    batch, growth = figures.mean("step_calls"), now("queue_growth_calls_per_second")
    return [
        ("model", f"{info.get('model', '?')} on {info.get('backend', '?')} ({info.get('device', '?')})"),
        ("streams", f"{now('http_requests_active'):.0f} requests, {now('inferlets'):.0f} inferlets"),
        (
            "queue",
            f"{now('generations_waiting'):.0f} requests, {now('calls_waiting'):.0f} calls, {growth:+.1f} a second",
        ),
        ("waiting", _times(figures, "queue_seconds")),
        ("batch", "-" if batch is None else f"{batch:.1f} calls a step, {rate('steps'):.1f} steps a second"),
        ("tokens", f"{rate('read_rows'):.1f} a second chosen, {rate('forwarded_tokens'):.1f} forwarded"),
        ("first token", _times(figures, "time_to_first_token_seconds")),
        ("next token", _times(figures, "inter_token_seconds")),
        ("pages", f"{now('pages_used'):.0f} used, {now('pages_cached'):.0f} cached, {now('pages_free'):.0f} free"),
        ("cache hits", f"{cached}, {figures.count('evicted_pages'):.0f} pages evicted"),
        ("control", f"{_times(figures, 'step_control_seconds')} a step"),
        ("device", f"{_times(figures, 'step_device_seconds')} a step, idle {now('device_idle_share'):.0%}"),
        ("guests", f"{rate('guest_seconds'):.1%} of the time"),
        *((f"device {number}", _device(device)) for number, device in figures.after.devices.items()),
    ]


def _device(figures: Mapping[str, Any]) -> str:
    """One of several."""
    if not figures["serves"]:
        return f"{figures['name']}: lost"
    pages = ", ".join(f"{figures[f'pages_{kind}']:.0f} {kind}" for kind in ("used", "cached", "free"))
    return f"{figures['name']}: {figures['spaces']:.0f} inferlets, {figures['steps']:.0f} steps, pages {pages}"


def _times(figures: Between, name: str) -> str:
    half, most = figures.quantile(name, 0.5), figures.quantile(name, 0.99)
    return "-" if half is None or most is None else f"p50 {_time(half)}, p99 {_time(most)}"


def _time(seconds: float) -> str:
    """In the unit that leaves one to three digits before the point."""
    if seconds >= 1.0:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
