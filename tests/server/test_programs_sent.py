"""Functions that are sent as source: what travels with them, and what is refused."""

from __future__ import annotations

import asyncio
import functools
import json as js
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import pytest

from pie_edge.client.program import Program, inferlet, read
from pie_edge.errors import UsageError

LIMITS = {"most": [1, 2.5, None, True], "name": "é'\""}
OPEN = open
LOCK = asyncio.Lock


def double(value: int) -> int:
    return value * 2


def quadruple(value: int) -> int:
    return double(double(value))


@functools.cache
def cached(value: int) -> int:
    return value + 1


@dataclass
class Point:
    x: int = double(1)

    def moved(self, by: int) -> Point:
        return Point(self.x + quadruple(by))


def runs(program: Program, input: dict[str, Any]) -> Any:
    """As the language component runs it, on a namespace of its own."""
    namespace: dict[str, Any] = {"__name__": "main"}
    exec(compile(program.source, "main.py", "exec", dont_inherit=True), namespace)
    result = namespace["main"](input)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def test_a_function_that_can_t_be_called_with_an_input_is_refused() -> None:
    def nothing() -> None: ...
    def two(input: Any, more: Any) -> None: ...
    def named(*, input: Any) -> None: ...

    for function in (nothing, two, named):
        with pytest.raises(UsageError, match=f"{function.__name__} is called with one argument, the input"):
            inferlet(function)


def test_a_function_that_yields_is_refused_before_it_is_sent() -> None:
    def words(input: Any) -> Any:
        yield input

    async def more_words(input: Any) -> Any:
        yield input

    for function in (words, more_words):
        refused(function, f"{function.__name__} yields")


def test_helpers_classes_constants_and_imports_travel_with_a_function() -> None:
    @inferlet
    async def adventure(input: dict[str, Any], more: Any = LIMITS) -> Any:
        lock = LOCK()
        async with lock:
            inner = [quadruple(one) for one in input["values"]]
        return js.loads(js.dumps([inner, Point(1).moved(2).x, more, Path("a").name, len(inner)]))

    assert adventure.name == "adventure"
    assert runs(adventure, {"values": [1, 2]}) == [[4, 8], 9, LIMITS, "a", 2]
    assert "cached" not in adventure.source
    assert "pytest" not in adventure.source


def test_a_plain_function_called_main_and_recursion_are_fine() -> None:
    def main(input: dict[str, int]) -> int:
        return 1 if input["n"] <= 1 else input["n"] * fact(input["n"] - 1)

    assert runs(inferlet(main), {"n": 5}) == 120


def fact(n: int) -> int:
    return 1 if n <= 1 else n * fact(n - 1)


def refused(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        inferlet(function)


def test_what_can_t_travel_is_refused_by_name() -> None:
    around = [1]

    def closes_over(input: Any) -> Any:
        return around

    def uses_a_package(input: Any) -> Any:
        return msgpack.packb(input)

    def uses_a_decorator_s_object(input: Any) -> Any:
        return cached(1)

    def uses_nothing_known(input: Any) -> Any:
        return Context(input)  # type: ignore[name-defined]  # noqa: F821

    def uses_an_object(input: Any) -> Any:
        return PROGRAM.source

    refused(closes_over, "closes_over uses around of the function around it")
    refused(uses_a_package, "uses msgpack of msgpack, which no inferlet has")
    refused(uses_a_decorator_s_object, "uses cached, _lru_cache_wrapper of this process that can't travel")
    refused(uses_nothing_known, "uses Context, which its module doesn't define; import it inside")
    refused(uses_an_object, "uses PROGRAM, Program of this process that can't travel")
    refused(lambda input: 1, "takes a function that was defined with def")
    refused(Point(1).moved, "takes a function")


PROGRAM = Program("x", "")


def test_a_function_without_source_is_refused() -> None:
    namespace: dict[str, Any] = {}
    exec("def made(input): return 1", namespace)
    refused(namespace["made"], "the source of made can't be found")


def test_a_file_or_a_folder_is_read_and_a_missing_one_refused(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("é", encoding="utf-8")
    assert read(tmp_path) == read(tmp_path / "main.py") == "é"
    with pytest.raises(UsageError, match="can't be read"):
        read(tmp_path / "none.py")
