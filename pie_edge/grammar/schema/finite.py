"""Whether some value that a schema allows is finite. One that requires a property which is itself by ``$ref`` has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_finite(schema: Any, definitions: Mapping[str, Any]) -> bool:
    """Of a prepared schema. Definitions count as finite once they are known to be, until nothing more becomes known."""
    known: set[str] = set()
    while True:
        found = {name for name, one in definitions.items() if name in known or _has_value(one, known)}
        if found == known:
            return _has_value(schema, known)
        known = found


def _has_value(schema: Any, known: set[str]) -> bool:
    if schema is False:
        return False
    if "$ref" in schema and schema["$ref"].rpartition("/")[2] not in known:
        return False
    if not all(_has_value(one, known) for one in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(_has_value(one, known) for one in schema["anyOf"]):
        return False
    given = schema.get("type")
    types = {given} if isinstance(given, str) else set(given or ("null",))
    if types - {"object", "array"}:
        return True
    return ("object" in types and _has_object(schema, known)) or ("array" in types and _has_array(schema, known))


def _has_object(schema: Mapping[str, Any], known: set[str]) -> bool:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    if schema.get("patternProperties"):
        others = {}
    return all(_has_value(properties.get(name, others), known) for name in schema.get("required", ()))


def _has_array(schema: Mapping[str, Any], known: set[str]) -> bool:
    first, least = schema.get("prefixItems", []), schema.get("minItems", 0)
    needed = [*first[:least], *([schema.get("items", {})] if least > len(first) else [])]
    return all(_has_value(one, known) for one in needed)
