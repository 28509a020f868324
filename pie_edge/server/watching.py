"""Everything that watches over a server, put together as the settings and the environment say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.routing import BaseRoute

from pie_edge.config import ServeSettings
from pie_edge.profile import TraceFile, begin, join
from pie_edge.server import metrics, page, traces
from pie_edge.server.admission import Admission
from pie_edge.server.engine.watched import PART, part_of
from pie_edge.server.exchange import Exchange, Listener
from pie_edge.server.generation import Service
from pie_edge.server.logs import RequestLog
from pie_edge.server.observing import Observed, Observing
from pie_edge.server.supervisor import Supervisor

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class Watching:
    """Raises UsageError for what is asked for and can't be done. ``close`` it after the engine has ended."""

    def __init__(self, settings: ServeSettings, supervisor: Callable[[], Supervisor], admission: Admission) -> None:
        self._metrics = metrics.HttpMetrics()
        self._metrics.follow(lambda: admission.working, lambda: admission.waiting)
        self._supervisor = supervisor
        self._traces = traces.configured()
        self._profile = Path(settings.profile) if settings.profile else None
        self._timeline = None if self._profile is None else RequestTimeline(_begin(self._profile))
        self._listeners: list[Listener] = [RequestLog()]
        self._listeners += [one for one in (self._traces, self._timeline) if one is not None]

    @property
    def routes(self) -> list[BaseRoute]:
        return [metrics.route(self._figures, self._metrics), *page.routes()]

    def around(self, app: ASGIApp) -> Observing:
        return Observing(app, self._metrics, self._listeners)

    def of(self, service: Service) -> Service:
        return Observed(service, self._metrics)

    def close(self) -> None:
        """Sends the spans that are left, and joins the parts of the timeline."""
        if self._traces is not None:
            self._traces.close()
        if self._timeline is not None and self._profile is not None:
            self._timeline.trace.close()
            join(_parts(self._profile), self._profile)

    async def _figures(self) -> Mapping[str, Any]:
        found: dict[str, Any] = json.loads(await self._supervisor().connection.ask("metrics"))
        return found


class RequestTimeline:
    """A Listener that writes requests into a timeline, with their stages inside."""

    def __init__(self, trace: TraceFile) -> None:
        self.trace = trace
        self._numbers = itertools.count(1)

    def ended(self, exchange: Exchange) -> None:
        number, span = next(self._numbers), self.trace.span
        name = f"{exchange.method} {exchange.path}"
        span("requests", name, exchange.began, exchange.ended, number, id=exchange.id, status=exchange.status)
        for stage, began, ended in exchange.stages:
            span("requests", stage, began, ended, number)


def _begin(profile: Path) -> TraceFile:
    for left in _parts(profile):
        left.unlink(missing_ok=True)
    return begin(part_of(str(profile), "server"), "server", profile)


def _parts(profile: Path) -> list[Path]:
    return sorted(profile.parent.glob(f"{profile.name}.*{PART}"))
