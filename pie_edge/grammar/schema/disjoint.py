"""Whether no value is valid by two schemas at once: then ``oneOf`` of them is ``anyOf``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_TYPES = ("null", "boolean", "number", "string", "array", "object")
_DEEPEST = 8
_MOST_STEPS = 5_000

Resolve = Callable[[Any], Any]
"""The schema that a ``$ref`` names."""


class Comparison:
    """Of the schemas of one ``oneOf``. It gives up after so many steps: hostile schemas could take for ever."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._left = _MOST_STEPS

    def are_disjoint(self, one: Any, other: Any, depth: int = 0) -> bool:
        """False also where it can't be told."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return False
        if one is False or other is False:
            return True
        if not isinstance(one, dict) or not isinstance(other, dict):
            return False
        if not _types(one) & _types(other) or _literals_differ(one, other):
            return True
        return (
            any(self._all(parts, other, depth) for parts in self._alternatives(one))
            or any(self._all(parts, one, depth) for parts in self._alternatives(other))
            or (_types(one) & _types(other) <= {"object"} and self._members_differ(one, other, depth))
        )

    def _all(self, parts: list[Any], other: Any, depth: int) -> bool:
        return all(self.are_disjoint(part, other, depth + 1) for part in parts)

    def _alternatives(self, schema: dict[str, Any]) -> Iterator[list[Any]]:
        """Of each list, a valid value is valid by one or more."""
        if "$ref" in schema:
            yield [self._resolve(schema["$ref"])]
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                yield schema[keyword]
        if isinstance(schema.get("allOf"), list):
            yield from ([part] for part in schema["allOf"])

    def _members_differ(self, one: dict[str, Any], other: dict[str, Any], depth: int) -> bool:
        """Whether a member that one of the two requires is never valid by both."""
        required = {name for schema in (one, other) for name in _required(schema)}
        return any(self.are_disjoint(_member(one, name), _member(other, name), depth + 1) for name in required)


def _required(schema: dict[str, Any]) -> list[str]:
    given = schema.get("required")
    return [name for name in given if isinstance(name, str)] if isinstance(given, list) else []


def _types(schema: dict[str, Any]) -> set[str]:
    """Of the values that may be valid; whole numbers are numbers."""
    values = _literals(schema)
    if values is not None:
        return {_type_of(value) for value in values}
    given = schema.get("type")
    named = [given] if isinstance(given, str) else given if isinstance(given, list) else _TYPES
    return {"number" if name == "integer" else str(name) for name in named}


def _literals(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _literals_differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Scalars only: 1 and 1.0 are equal, and True is neither."""
    ours, theirs = _literals(one), _literals(other)
    if ours is None or theirs is None or any(isinstance(value, dict | list) for value in [*ours, *theirs]):
        return False
    return not {(_type_of(value), value) for value in ours} & {(_type_of(value), value) for value in theirs}


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds = {str: "string", int: "number", float: "number", list: "array", dict: "object"}
    return kinds[type(value)]


def _member(schema: dict[str, Any], name: str) -> Any:
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return True if schema.get("patternProperties") else schema.get("additionalProperties", True)
