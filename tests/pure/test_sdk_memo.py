"""An epilogue is traced again exactly when its trace could differ."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import sdk  # noqa: F401  (makes the SDK importable)

from inferlet.eta import intrinsics, param, reduce_argmax, reduce_max  # isort: skip
from inferlet.eta import memo  # isort: skip
from inferlet.eta.trace import trace  # isort: skip

SCALE = 2.0
TABLE = [1.0]


def helper() -> Any:
    return intrinsics.logits() * TABLE[0]


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every function that was really traced."""
    seen: list[Any] = []

    def counting(function: Any) -> Any:
        seen.append(function)
        return trace(function)

    monkeypatch.setattr(memo, "trace", counting)
    monkeypatch.setattr(memo, "_traced", {})
    return seen


def test_a_lambda_in_a_loop_is_traced_once(traces: list[Any]) -> None:
    results = [memo.traced(lambda: reduce_argmax(intrinsics.logits())) for _ in range(5)]
    assert len(traces) == 1
    assert all(result is results[0] for result in results)


def test_two_lambdas_are_two(traces: list[Any]) -> None:
    first = memo.traced(lambda: reduce_argmax(intrinsics.logits()))
    second = memo.traced(lambda: reduce_max(intrinsics.logits()))
    assert first.wire != second.wire


def test_a_variable_that_has_another_value_is_another_trace(traces: list[Any]) -> None:
    def scaled(scale: float) -> str:
        return memo.traced(lambda: intrinsics.logits() * scale).wire

    wires = [scaled(scale) for scale in (1.0, 2.0, 1.0, 2)]
    assert len(traces) == 3
    assert wires[0] == wires[2] != wires[1]


def test_a_parameter_comes_with_its_own_value(traces: list[Any]) -> None:
    def parameters(value: float) -> Any:
        return memo.traced(lambda: param(value)).parameters

    given = [parameters(value) for value in (0.5, 0.25, 0.5)]
    assert given == [[("floats", [0.5])], [("floats", [0.25])], [("floats", [0.5])]]


def test_a_global_that_changes_is_seen(traces: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled() -> Any:
        return intrinsics.logits() * SCALE

    first = memo.traced(scaled).wire
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert memo.traced(scaled).wire != first


@pytest.mark.parametrize("hidden", ["a list", "a function", "an inner function", "a keyword default"])
def test_what_may_change_inside_is_traced_every_time(traces: list[Any], hidden: str) -> None:
    scales = [1.0]

    def keyword(*, scale: float = 1.0) -> Any:
        return intrinsics.logits() * scale

    function = {
        "a list": lambda: intrinsics.logits() * scales[0],
        "a function": lambda: helper() * 1.0,
        "an inner function": lambda: (lambda: intrinsics.logits())(),
        "a keyword default": keyword,
    }[hidden]
    for _ in range(2):
        memo.traced(function)
    assert len(traces) == 2


def test_methods_and_callables_are_traced_every_time(traces: list[Any]) -> None:
    class Sampler:
        scale = 1.0

        def __call__(self) -> Any:
            return intrinsics.logits() * self.scale

    sampler = Sampler()
    first = memo.traced(sampler).wire
    sampler.scale = 2.0
    assert memo.traced(sampler).wire != first
    assert memo.traced(sampler.__call__).wire != first


def test_memory_has_a_bound(traces: list[Any]) -> None:
    for scale in range(2 * memo._MOST + 5):
        memo.traced(lambda scale=scale: intrinsics.logits() * scale)
    assert len(memo._traced) <= memo._MOST
