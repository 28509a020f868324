"""OpenTelemetry traces of requests, when they are configured as OpenTelemetry has it: by ``OTEL_EXPORTER_OTLP_ENDPOINT``.

A span for each request, in the trace that its ``traceparent`` names, with its stages inside.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pie_edge import __version__, remedies
from pie_edge.errors import UsageError
from pie_edge.server.exchange import Exchange

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def configured(environment: Mapping[str, str] = os.environ) -> Traces | None:
    """None where nobody asks for traces. Raises UsageError where somebody does and the packages aren't installed."""
    asked = next((name for name in ENDPOINTS if environment.get(name)), None)
    if asked is None or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise UsageError(
            f"{asked} asks for traces, and {error.name} is not installed; `{remedies.install('otel')}`, or unset it"
        ) from None
    named = {"service.name": environment.get("OTEL_SERVICE_NAME") or "pie-edge", "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider)


class Traces:
    """A Listener; ``close`` sends what is left. Spans are made when a request has ended, with the times that it had."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("pie_edge", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def ended(self, exchange: Exchange) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        parent = self._propagator.extract({"traceparent": exchange.parent}) if exchange.parent else None
        span = self._tracer.start_span(
            f"{exchange.method} {exchange.path}",
            parent,
            SpanKind.SERVER,
            _attributes(exchange),
            start_time=exchange.wall,
        )
        if exchange.status >= 500:
            span.set_status(Status(StatusCode.ERROR, exchange.code))
        inside = set_span_in_context(span)
        for name, began, ended in exchange.stages:
            self._tracer.start_span(name, inside, start_time=_at(exchange, began)).end(_at(exchange, ended))
        span.end(_at(exchange, exchange.ended))

    def close(self) -> None:
        self._provider.shutdown()


def _at(exchange: Exchange, moment: float) -> int:
    """Nanoseconds since 1970."""
    return exchange.wall + round((moment - exchange.began) * 1e9)


def _attributes(exchange: Exchange) -> dict[str, Any]:
    """By OpenTelemetry's conventions for HTTP and for generative models."""
    found: dict[str, Any] = {
        "http.request.method": exchange.method,
        "http.route": exchange.path,
        "http.response.status_code": exchange.status,
        "pie_edge.request.id": exchange.id,
    }
    if exchange.model:
        found |= {
            "gen_ai.request.model": exchange.model,
            "gen_ai.usage.input_tokens": exchange.prompt,
            "gen_ai.usage.output_tokens": exchange.generated,
            "pie_edge.usage.cached_tokens": exchange.cached,
        }
    if exchange.code:
        found["error.type"] = exchange.code
    return found
