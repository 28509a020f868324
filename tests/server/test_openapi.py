"""The server's own description of itself, and a client that knows nothing else of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route
from starlette.types import ASGIApp

from pie_edge.config import ServeSettings
from pie_edge.protocol.messages import State
from pie_edge.server import app, health, metrics
from pie_edge.server.openapi import document
from tests.server.test_providers import ask
from tests.server.test_wrong_types import BODIES
from tests.server.told import Told


def whole() -> ASGIApp:
    """All the routes of a server but its WebSocket and its page."""

    async def figures() -> Any:
        return {"info": {}, "counters": {"passes": 1}, "gauges": {}, "histograms": {}}

    watched = metrics.route(figures, metrics.HttpMetrics())
    ready = health.route(lambda: State(0, "ready"), lambda: False, lambda: 1)
    return app.build(Told(), ServeSettings(), [ready, watched]).asgi


ASKED = whole()
SCHEMA = schemathesis.openapi.from_dict(document())
SCHEMA.app = ASKED
# Drawn bodies alone: all the combinations of every keyword's bounds would take minutes.
SCHEMA.config.phases.coverage.enabled = False
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def test_it_is_served() -> None:
    assert ask(ASKED, "GET", "/openapi.json") == (200, document())


def test_every_route_is_in_it() -> None:
    """But for those of Google's and OpenAI's that share a pattern, which are there by their methods' names."""
    built: Any = app.build(Told(), ServeSettings(), []).gate
    routes = [one for one in built._app.routes if isinstance(one, Route) and "call:path" not in one.path]
    for one in routes:
        path = re.sub(r"{(\w+)(:path)?}", r"{\1}", one.path).replace("{name}", "{model}")
        missing = {method.lower() for method in one.methods or () if method != "HEAD"} - set(document()["paths"][path])
        assert not missing, path


def validator(path: str) -> jsonschema.Draft202012Validator:
    """Of the bodies that the path takes."""
    told = document()["paths"][path]["post"]
    reference = told["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    return jsonschema.Draft202012Validator({"$ref": reference, "components": document()["components"]})


@pytest.mark.parametrize("path", BODIES)
def test_bodies_that_are_right_are_right_by_it(path: str) -> None:
    validator(path.replace("/tiny:", "/{model}:")).validate(BODIES[path][1])


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    if isinstance(schema, dict | list):
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from parts(part)


def test_lengths_are_of_texts_alone() -> None:
    """A bound of a list that is told as one of a text holds for nothing."""
    bounded = [one for one in parts(document()["components"]) if {"minLength", "maxLength"} & set(one)]
    assert bounded and all(one.get("type") == "string" for one in bounded if "properties" not in one)


@pytest.mark.parametrize(("path", "name", "most"), [("embeddings", "input", 2048), ("completions", "prompt", 1024)])
def test_lists_that_are_too_short_or_too_long_are_wrong_by_it(path: str, name: str, most: int) -> None:
    for given, wrong in (([], True), (["a"] * most, False), (["a"] * (most + 1), True)):
        assert bool(list(validator(f"/v1/{path}").iter_errors({"model": "tiny", name: given}))) == wrong


@SCHEMA.parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_whoever_knows_it_alone_is_answered_as_it_says(case: schemathesis.Case) -> None:
    if isinstance(case.body, dict) and "model" in case.body and "Google" not in case.operation.tags:
        case.body["model"] = "tiny"
    if "model" in (case.path_parameters or {}):
        case.path_parameters["model"] = "tiny"
    case.call_and_validate(checks=CHECKS, base_url="http://localhost")
    assert ask(ASKED, "GET", "/health")[0] == 200
