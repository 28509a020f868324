"""The engine's figures as plain data, for whoever shows them: counters only grow, gauges are of now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pie_edge.control.usage import Usage

if TYPE_CHECKING:
    from pie_edge.control.engine import Engine


_MEANS = ("device_idle_share",)
_SAME = ("uptime_seconds", "page_tokens")
"""Gauges that aren't the sum of several engines'."""
_OF_DEVICES = (
    ("steps", "read_rows", "prefix_hit_tokens"),
    ("spaces", "calls", "pages_used", "pages_cached", "pages_free"),
)


def metrics(engines: Sequence[Engine]) -> dict[str, Any]:
    """``{"counters": {name: number}, "gauges": {name: number}, "histograms": {name: {"bounds", "counts", "sum"}}}``. Names end in
    their unit: seconds, bytes, or what is counted. Of several engines these are sums, and ``devices`` has some of each one's
    ``counters`` and ``gauges`` with the ``name`` of its device, ``serves`` among the gauges."""
    each = [_one(engine) for engine in engines]
    if len(each) == 1:
        return each[0]
    gauges = {name: sum(one["gauges"][name] for one in each) for name in each[0]["gauges"]}
    gauges |= {name: gauges[name] / len(each) for name in _MEANS} | {name: each[0]["gauges"][name] for name in _SAME}
    histograms = {name: _sum([one["histograms"][name] for one in each]) for name in each[0]["histograms"]}
    return {
        "counters": {name: sum(one["counters"][name] for one in each) for name in each[0]["counters"]},
        "gauges": gauges,
        "histograms": histograms,
        "devices": [_device(engine, one) for engine, one in zip(engines, each, strict=True)],
    }


def _sum(histograms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counts = [sum(some) for some in zip(*(one["counts"] for one in histograms), strict=True)]
    return {"bounds": histograms[0]["bounds"], "counts": counts, "sum": sum(one["sum"] for one in histograms)}


def _device(engine: Engine, figures: dict[str, Any]) -> dict[str, Any]:
    counters, gauges = _OF_DEVICES
    return {
        "name": engine.device_name,
        "counters": {name: figures["counters"][name] for name in counters},
        "gauges": {"serves": float(not engine.lost)} | {name: figures["gauges"][name] for name in gauges},
    }


def _one(engine: Engine) -> dict[str, Any]:
    now = time.perf_counter()
    engine.statistics.look(engine.calls.queues, now)
    histograms = engine.statistics.histograms()
    return {
        "counters": _counters(engine),
        "gauges": _gauges(engine, now),
        "histograms": {name: histogram.snapshot() for name, histogram in histograms.items()},
    }


def _counters(engine: Engine) -> dict[str, float]:
    statistics, pressure, used = engine.statistics, engine.residency.pressure, Usage()
    for usage in (statistics.ended, *(space.usage for space in engine.spaces)):
        used.add(usage)
    return {
        "steps": statistics.steps,
        "step_tokens": statistics.rows,
        "passes": used.passes,
        "forwarded_tokens": used.forwarded_tokens,
        "read_rows": used.read_rows,
        "prefix_hit_tokens": used.cached_tokens,
        "prefix_recomputed_tokens": used.recomputed_tokens,
        "evicted_pages": engine.prefixes.evictions,
        "parked_pages": pressure.parked,
        "restored_pages": pressure.restored,
        "released_pages": used.released_pages,
        "spilled_contents": engine.parking.spilled,
        "inferlets_ended_for_pages": pressure.ended,
        "run_ahead_hits": engine.calls.ahead.hits,
        "run_ahead_misses": engine.calls.ahead.misses,
        "device_busy_seconds": statistics.busy,
        "device_starved_seconds": statistics.starved,
        "control_seconds": statistics.control,
    }


def _gauges(engine: Engine, now: float) -> dict[str, float]:
    pool, trend = engine.pool, engine.statistics.trend
    cached = engine.prefixes.reclaimable
    return {
        "uptime_seconds": now - engine.statistics.opened,
        "pages": pool.total,
        "pages_free": pool.free,
        "pages_cached": cached,
        "pages_used": pool.total - pool.free - cached,
        "page_tokens": pool.page_size,
        "parked_bytes": engine.parking.nbytes,
        "calls_waiting": sum(work.runnable for work in engine.calls.queues),
        "calls": len(engine.calls.queues),
        "spaces": len(engine.spaces),
        "steps_in_flight": engine.steps_in_flight,
        "device_idle_share": min(max(1.0 - trend.slope(1), 0.0), 1.0),
        "queue_growth_calls_per_second": trend.slope(0),
    }
