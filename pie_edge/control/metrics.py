"""The engine's figures as plain data, for whoever shows them: counters only grow, gauges are of now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pie_edge.control.usage import Usage

if TYPE_CHECKING:
    from pie_edge.control.engine import Engine


def metrics(engine: Engine) -> dict[str, Any]:
    """``{"counters": {name: number}, "gauges": {name: number}, "histograms": {name: {"bounds", "counts", "sum"}}}``. Names end in
    their unit: seconds, bytes, or what is counted."""
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
