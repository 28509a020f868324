"""Values of keywords: of the right type, and in the range that can be enforced."""

from __future__ import annotations

from typing import Any

from pie_edge.grammar.schema.formats import PATTERNS, RANGES
from pie_edge.grammar.schema.literals import LARGEST
from pie_edge.grammar.schema.refusal import Place, refuse

ANNOTATIONS = {
    *("$schema", "$defs", "definitions", "$comment", "title", "description", "default", "example", "examples"),
    *("readOnly", "writeOnly", "deprecated", "contentMediaType", "contentEncoding", "contentSchema"),
    *("$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "discriminator", "externalDocs", "xml"),
}
"""They say nothing of what is valid. ``discriminator`` stands beside ``oneOf``, which says it itself; anchors are for references
that are refused."""

ANNOTATED: dict[str, tuple[type, str]] = {
    **dict.fromkeys(("$comment", "title", "description", "contentMediaType", "contentEncoding"), (str, "text")),
    **dict.fromkeys(("$anchor", "$dynamicAnchor", "$id", "id"), (str, "text")),
    **dict.fromkeys(("readOnly", "writeOnly", "deprecated"), (bool, "true or false")),
    **dict.fromkeys(("$defs", "definitions"), (dict, "an object")),
    "examples": (list, "a list"),
}
"""What those are that have a type: a schema in which they are something else is none."""

OF_THE_WHOLE = {"$id", "id"}
"""Annotations of the root; elsewhere they change what references mean."""

DIALECTS = {
    *(f"http://json-schema.org/draft-0{number}/schema" for number in (4, 6, 7)),
    *(f"https://json-schema.org/draft/{number}/schema" for number in ("2019-09", "2020-12")),
}

REMEDIES = {
    "not": "what a value must not be can't be enforced; say what it may be",
    **dict.fromkeys(("if", "then", "else"), "conditions can't be enforced; write anyOf with a schema for each case"),
    **dict.fromkeys(
        ("dependentRequired", "dependentSchemas", "dependencies"),
        "dependencies can't be enforced; write anyOf with a schema for each case",
    ),
    **dict.fromkeys(
        ("contains", "minContains", "maxContains"), "what some items are can't be enforced; use prefixItems"
    ),
    "propertyNames": "names can be enforced where they are an enum, or a pattern, and no properties stand beside them",
    "unevaluatedProperties": "it can't be enforced; use additionalProperties in each part",
    "unevaluatedItems": "it can't be enforced; use items in each part",
    "nullable": 'this keyword is OpenAPI\'s; write "type": ["…", "null"]',
    **dict.fromkeys(("$dynamicRef", "$recursiveRef"), "dynamic references can't be followed; use $ref"),
    **dict.fromkeys(("$id", "id"), "references go by place in the whole, like '#/$defs/name'; leave it out"),
}

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_LARGEST_COUNT = 100_000
_DIGITS = 15
"""That the matching library has of a fraction."""


class Check:
    """The keywords of one schema."""

    def __init__(self, schema: dict[str, Any], place: Place) -> None:
        self._schema = schema
        self._place = place

    def types(self) -> str | list[str]:
        given = self._schema["type"]
        named = given if isinstance(given, list) else [given]
        wrong = [one for one in named if one not in _TYPES]
        if wrong or not named:
            refuse(
                self._place / "type", f"{given!r:.80} isn't a type; they are {', '.join(_TYPES)}, or a list of those"
            )
        return given if isinstance(given, str) else named

    def filled_list(self, keyword: str) -> list[Any]:
        given = self._schema[keyword]
        if not isinstance(given, list) or not given:
            refuse(self._place / keyword, f"{given!r:.80} isn't a list with something in it")
        return given

    def mapping(self, keyword: str) -> dict[str, Any]:
        given = self._schema[keyword]
        if not isinstance(given, dict):
            refuse(self._place / keyword, f"{given!r:.80} isn't an object")
        return given

    def annotation(self, keyword: str) -> None:
        """It is of its type, though nothing depends on what it says."""
        given, (kind, wanted) = self._schema[keyword], ANNOTATED.get(keyword, (object, ""))
        if not isinstance(given, kind):
            refuse(self._place / keyword, f"{given!r:.80} isn't {wanted}")

    def strings(self, keyword: str) -> list[str]:
        given = self._schema[keyword]
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            refuse(self._place / keyword, f"{given!r:.80} isn't a list of texts")
        return given

    def switch(self, keyword: str) -> bool:
        given = self._schema[keyword]
        if not isinstance(given, bool):
            refuse(self._place / keyword, f"{given!r:.80} is neither true nor false")
        return given

    def count(self, keyword: str) -> int:
        given = self._schema[keyword]
        if isinstance(given, bool) or not isinstance(given, int | float) or given != int(given) or given < 0:
            refuse(self._place / keyword, f"{given!r:.80} isn't a whole number from 0 up")
        if given > _LARGEST_COUNT:
            refuse(self._place / keyword, f"{given} is too large to be counted; the most is {_LARGEST_COUNT:,}")
        return int(given)

    def bound(self, keyword: str) -> int | float:
        given = self._number(keyword)
        if abs(given) > LARGEST:
            refuse(self._place / keyword, f"{given} is out of range; bounds go to 2⁵³")
        if not float(given).is_integer() and given != float(f"{given:.{_DIGITS}g}"):
            refuse(self._place / keyword, f"{given} has more digits than can be compared; the most are {_DIGITS}")
        return given

    def step(self, keyword: str) -> int | float:
        given = self._number(keyword)
        if given <= 0:
            refuse(self._place / keyword, f"{given} isn't above 0")
        if abs(given) > LARGEST or "e" in repr(given):
            refuse(self._place / keyword, f"{given} is out of range")
        return given

    def _number(self, keyword: str) -> int | float:
        given = self._schema[keyword]
        if isinstance(given, bool) or not isinstance(given, int | float):
            refuse(self._place / keyword, f"{given!r:.80} isn't a number")
        return given

    def format(self) -> dict[str, Any]:
        """A schema that says what the format does."""
        name, place = self._schema["format"], self._place / "format"
        if isinstance(name, str) and name in PATTERNS:
            return {"pattern": PATTERNS[name]}
        numbers = self._schema.get("type") in ("integer", "number")
        if isinstance(name, str) and name in RANGES and numbers:
            bounds = RANGES[name]
            return {} if bounds is None else {"minimum": bounds[0], "maximum": bounds[1]}
        known = [*PATTERNS, *(RANGES if numbers else ())]
        return refuse(place, f"{name!r:.80} can't be enforced; those that can are {', '.join(known)}")

    def required(self) -> list[str]:
        return list(dict.fromkeys(self.strings("required"))) if "required" in self._schema else []

    def properties(self) -> list[str]:
        given = self._schema.get("properties", {})
        return list(given) if isinstance(given, dict) else []

    def closed(self) -> bool:
        """Whether there are no properties but the named ones."""
        return self._schema.get("additionalProperties") is False and not self._schema.get("patternProperties")

    def most_items(self) -> float:
        """As far as that is known."""
        most = self._schema.get("maxItems", float("inf"))
        first = self._schema.get("prefixItems", [])
        ends = self._schema.get("items") is False and isinstance(first, list)
        return min(most if isinstance(most, int) else float("inf"), len(first) if ends else float("inf"))
