"""A schema's keywords, each written so that the matching library enforces it whole, or refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pie_edge.grammar.schema.disjoint import Comparison
from pie_edge.grammar.schema.keywords import ANNOTATIONS, OF_THE_WHOLE, REMEDIES, Check
from pie_edge.grammar.schema.literals import literal
from pie_edge.grammar.schema.multiples import align
from pie_edge.grammar.schema.patterns import PatternError, translated
from pie_edge.grammar.schema.refusal import ROOT, Place, refuse

Schema = Any
"""An object, or False."""

_ANYTHING: tuple[Any, ...] = (True, {})
_MOST_REFERENCES = 8
"""One after the other."""
_MOST_CHOICES = 64
"""Of members that make up a minimum."""


class Preparation(Protocol):
    """Of the whole schema."""

    def resolve(self, reference: Any, place: Place) -> Any: ...
    def reference(self, reference: Any, place: Place) -> str: ...
    def below(self, schema: Any, place: Place, depth: int) -> Schema: ...


class Rewriter:
    """One schema object: each keyword becomes some of what is ``written``, and conditions beside it that all have to hold."""

    def __init__(self, preparation: Preparation, place: Place, depth: int, schema: dict[str, Any]) -> None:
        self._preparation = preparation
        self._place = place
        self._depth = depth
        self._schema = schema
        self._check = Check(schema, place)
        self._written: dict[str, Any] = {}
        self._all: list[Schema] = []

    def rewritten(self) -> Schema:
        for keyword in self._schema:
            if keyword in ANNOTATIONS or keyword.startswith("x-") or (keyword in OF_THE_WHOLE and self._place == ROOT):
                self._check.annotation(keyword)
                continue
            if keyword not in REWRITES:
                refuse(self._place / keyword, REMEDIES.get(keyword, "this keyword isn't supported"))
            REWRITES[keyword](self, keyword)
        align(self._written, self._place)
        if self._all:
            self._written["allOf"] = [*self._written.pop("allOf", []), *self._all]
        return self._written

    def _below(self, schema: Any, *steps: str | int) -> Schema:
        place = self._place
        for step in steps:
            place = place / step
        return self._preparation.below(schema, place, self._depth)

    # Any value.

    def _type(self, keyword: str) -> None:
        self._written[keyword] = self._check.types()

    def _const(self, keyword: str) -> None:
        self._written[keyword] = literal(self._schema[keyword], self._place / keyword)

    def _enum(self, keyword: str) -> None:
        values = self._check.filled_list(keyword)
        self._written[keyword] = [literal(value, self._place / keyword / i) for i, value in enumerate(values)]

    def _reference(self, keyword: str) -> None:
        self._written[keyword] = self._preparation.reference(self._schema[keyword], self._place / keyword)

    def _one_of(self, keyword: str) -> None:
        """As ``anyOf``, which it is where no two can hold at once."""
        given, place = self._check.filled_list(keyword), self._place / keyword
        comparison = Comparison(lambda name: self._preparation.resolve(name, place))
        for (i, one), (j, other) in itertools.combinations(enumerate(given), 2):
            if not comparison.are_disjoint(one, other):
                refuse(
                    place,
                    f"schemas {i} and {j} may both be valid for some value; let them differ in type, or in a const of a "
                    "required property, or write anyOf",
                )
        self._all.append({"anyOf": self._several(keyword)})

    def _list(self, keyword: str) -> None:
        self._written[keyword] = self._several(keyword)

    def _several(self, keyword: str) -> list[Schema]:
        return [self._below(one, keyword, i) for i, one in enumerate(self._check.filled_list(keyword))]

    # Objects.

    def _properties(self, keyword: str) -> None:
        given = self._check.mapping(keyword)
        self._written[keyword] = {name: self._below(one, keyword, name) for name, one in given.items()}

    def _pattern_properties(self, keyword: str) -> None:
        self._written[keyword] = {
            self._pattern_of(pattern, self._place / keyword / pattern): self._below(one, keyword, pattern)
            for pattern, one in self._check.mapping(keyword).items()
        }

    def _others(self, keyword: str) -> None:
        if "propertyNames" not in self._schema or self._schema["propertyNames"] in _ANYTHING:
            self._written[keyword] = self._below(self._schema[keyword], keyword)

    def _property_names(self, keyword: str) -> None:
        """Names that are listed, or that match a pattern, and no others."""
        names, place = self._schema[keyword], self._place / keyword
        if names in _ANYTHING or names == {"type": "string"}:
            return
        for _ in range(_MOST_REFERENCES):
            if isinstance(names, dict) and names.keys() - ANNOTATIONS == {"$ref"}:
                names = self._preparation.resolve(names["$ref"], place / "$ref")
        meant = {} if not isinstance(names, dict) else {k: v for k, v in names.items() if k not in ANNOTATIONS}
        beside = {"properties", "patternProperties"} & self._schema.keys()
        others = self._below(self._schema.get("additionalProperties", True), "additionalProperties")
        if beside or meant.pop("type", "string") != "string" or len(meant) != 1:
            refuse(place, REMEDIES[keyword])
        listed = [meant["const"]] if "const" in meant else meant.get("enum")
        if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
            self._written["properties"] = dict.fromkeys(listed, others)
        elif "pattern" in meant:
            self._written["patternProperties"] = {self._pattern_of(meant["pattern"], place / "pattern"): others}
        else:
            refuse(place, REMEDIES[keyword])
        self._written["additionalProperties"] = False

    def _required(self, keyword: str) -> None:
        self._written[keyword] = list(dict.fromkeys(self._check.strings(keyword)))

    def _min_properties(self, keyword: str) -> None:
        least, required = self._check.count(keyword), self._check.required()
        more = least - len(required)
        if more <= 0:
            return
        optional = [name for name in self._check.properties() if name not in required]
        if not self._check.closed():
            # Names beside those in ``properties`` may come twice, and then count once.
            if more > 1 or optional:
                refuse(
                    self._place / keyword,
                    "of properties that aren't named, or may be missing, one at most can be asked for",
                )
            self._written[keyword] = least
            return
        choices = list(itertools.islice(itertools.combinations(optional, more), _MOST_CHOICES + 1))
        if not choices or len(choices) > _MOST_CHOICES:
            refuse(
                self._place / keyword,
                "there are too few properties, or too many ways to choose them; list some as required",
            )
        self._all.append({"anyOf": [{"required": list(names)} for names in choices]})

    def _max_properties(self, keyword: str) -> None:
        most, known = self._check.count(keyword), self._check.properties()
        if self._check.closed() and most >= len(set(known) | set(self._check.required())):
            return
        if set(known) - set(self._check.required()):
            refuse(self._place / keyword, "it is supported where all that is in properties is required")
        self._written[keyword] = most

    # Arrays.

    def _items(self, keyword: str) -> None:
        given = self._schema[keyword]
        if not isinstance(given, list):
            self._written[keyword] = self._below(given, keyword)
            return
        if "prefixItems" in self._schema:
            refuse(self._place / keyword, "a list stands beside prefixItems, which means the same; leave one out")
        self._written["prefixItems"] = [self._below(one, keyword, i) for i, one in enumerate(given)]

    def _additional_items(self, keyword: str) -> None:
        """Of drafts up to 2019-09, where it means something only beside a list of items."""
        if isinstance(self._schema.get("items"), list):
            self._written["items"] = self._below(self._schema[keyword], keyword)

    def _count(self, keyword: str) -> None:
        self._written[keyword] = self._check.count(keyword)

    def _unique_items(self, keyword: str) -> None:
        if self._check.switch(keyword) and self._check.most_items() > 1:
            refuse(self._place / keyword, "that items differ can't be enforced")

    # Strings.

    def _pattern(self, keyword: str) -> None:
        self._written[keyword] = self._pattern_of(self._schema[keyword], self._place / keyword)

    def _format(self, keyword: str) -> None:
        self._all.append(self._check.format())

    @staticmethod
    def _pattern_of(pattern: Any, place: Place) -> str:
        if not isinstance(pattern, str):
            refuse(place, f"{pattern!r:.80} isn't a pattern, which is text")
        try:
            return translated(pattern)
        except PatternError as error:
            refuse(place, f"in the pattern {pattern!r:.80}, {error}")

    # Numbers.

    def _bound(self, keyword: str) -> None:
        # Draft 4 says with a switch beside it that the bound itself is left out.
        exclusive = self._schema.get(f"exclusive{keyword.capitalize()}") is True
        self._written[f"exclusive{keyword.capitalize()}" if exclusive else keyword] = self._check.bound(keyword)

    def _exclusive_bound(self, keyword: str) -> None:
        if not isinstance(self._schema[keyword], bool):
            self._written[keyword] = self._check.bound(keyword)
        elif (bound := keyword.removeprefix("exclusive").lower()) not in self._schema:
            refuse(self._place / keyword, f"it says of a {bound} that it is left out, and there is none; give a number")

    def _multiple_of(self, keyword: str) -> None:
        self._written[keyword] = self._check.step(keyword)

    # Without a meaning where they allow everything.

    def _trivial(self, keyword: str) -> None:
        if self._schema[keyword] not in _ANYTHING:
            refuse(self._place / keyword, REMEDIES[keyword])


REWRITES: Mapping[str, Callable[[Rewriter, str], None]] = {
    "type": Rewriter._type,
    "const": Rewriter._const,
    "enum": Rewriter._enum,
    "$ref": Rewriter._reference,
    **dict.fromkeys(("allOf", "anyOf", "prefixItems"), Rewriter._list),
    "oneOf": Rewriter._one_of,
    "properties": Rewriter._properties,
    "patternProperties": Rewriter._pattern_properties,
    "additionalProperties": Rewriter._others,
    "required": Rewriter._required,
    "minProperties": Rewriter._min_properties,
    "maxProperties": Rewriter._max_properties,
    "items": Rewriter._items,
    "additionalItems": Rewriter._additional_items,
    "uniqueItems": Rewriter._unique_items,
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), Rewriter._count),
    "pattern": Rewriter._pattern,
    "format": Rewriter._format,
    **dict.fromkeys(("minimum", "maximum"), Rewriter._bound),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), Rewriter._exclusive_bound),
    "multipleOf": Rewriter._multiple_of,
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), Rewriter._trivial),
    "propertyNames": Rewriter._property_names,
}
"""All keywords that are enforced."""
