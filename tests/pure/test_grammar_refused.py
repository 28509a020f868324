"""What can't be enforced is refused, with the keyword and its place; nothing of a schema is ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pie_edge.errors import GrammarError
from pie_edge.grammar import Source
from pie_edge.grammar.schema.keywords import ANNOTATED, ANNOTATIONS, REMEDIES
from pie_edge.grammar.schema.refusal import Place
from pie_edge.grammar.schema.rewrite import REWRITES
from tests.support.grammars import bits, compiler, matches, of_schema

# The keywords of the vocabularies of draft 2020-12 that say what is valid, and those of earlier drafts that it replaced.
ASSERTIONS = {
    *(
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "type",
        "const",
        "enum",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
    ),
    *(
        "multipleOf",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "format",
    ),
    *(
        "prefixItems",
        "items",
        "additionalItems",
        "contains",
        "minContains",
        "maxContains",
        "maxItems",
        "minItems",
        "uniqueItems",
    ),
    *(
        "properties",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "required",
        "minProperties",
        "maxProperties",
    ),
    *("dependentRequired", "dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties"),
}
SIGNS = r"a b ( ) [ ] { } * + ? | . ^ $ é , ~ & x X \d \b \p{L} {2,5} (?: (?= [^ /a+/ %json %ignore [lazy] <[7]> <|x|> @other"
PIECES = [
    *SIGNS.split(),
    *("\\", "\n", '"', '"a"', ": ", '{"type": "string"}', '{"not": {}}', "%llguidance {}", '"enum": [1]'),
]
REFUSED: dict[str, tuple[Any, str]] = {
    "not": ({"type": "object", "properties": {"a": {"not": {"type": "string"}}}}, "#/properties/a/not"),
    "if": ({"anyOf": [{"type": "null"}, {"if": {}, "then": {}}]}, "#/anyOf/1/if"),
    "contains": ({"items": {"contains": {"const": 1}}}, "#/items/contains"),
    "uniqueItems": ({"type": "array", "uniqueItems": True}, "#/uniqueItems"),
    "dependentRequired": ({"dependentRequired": {"a": ["b"]}}, "#/dependentRequired"),
    "propertyNames": ({"propertyNames": {"maxLength": 3}}, "#/propertyNames"),
    "an index without end": ({"anyOf": [{"type": "null"}], "items": {"$ref": "#/anyOf/" + 5000 * "9"}}, "#/items/$ref"),
    "an index in other digits": ({"anyOf": [{"type": "null"}], "items": {"$ref": "#/anyOf/\u0660"}}, "#/items/$ref"),
    "no multiple": ({"type": "number", "minimum": 2.04, "maximum": 2.4, "multipleOf": 0.5}, "#/multipleOf"),
    "negative multiples": ({"type": "number", "maximum": -3, "multipleOf": 2}, "#/multipleOf"),
    "digits of a bound": ({"type": "number", "maximum": -1.9900000000000002}, "#/maximum"),
    "propertyNames beside properties": ({"propertyNames": {"enum": ["a"]}, "properties": {}}, "#/propertyNames"),
    "an $id of a part": ({"items": {"$id": "https://example.com/a"}}, "#/items/$id"),
    "unevaluatedProperties": ({"unevaluatedProperties": False}, "#/unevaluatedProperties"),
    "nullable": ({"properties": {"a/b~c": {"type": "string", "nullable": True}}}, "#/properties/a~1b~0c/nullable"),
    "a misspelt keyword": ({"type": "string", "maxLenght": 3}, "#/maxLenght"),
    "an unknown format": ({"type": "string", "format": "iri"}, "#/format"),
    "a format of numbers for a string": ({"type": "string", "format": "int32"}, "#/format"),
    "look-ahead": ({"$defs": {"x": {"pattern": "^(?=a)"}}, "$ref": "#/$defs/x"}, "#/$defs/x/pattern"),
    "a back-reference": ({"pattern": r"(a)\1"}, "#/pattern"),
    "a word boundary": ({"patternProperties": {r"\ba": {}}}, r"#/patternProperties/\ba"),
    "a oneOf that is no anyOf": ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "#/oneOf"),
    "a reference to elsewhere": ({"$ref": "https://example.com/schema"}, "#/$ref"),
    "a reference to nothing": ({"items": {"$ref": "#/$defs/missing"}}, "#/items/$ref"),
    "a number without a double": ({"const": 2**53 + 1}, "#/const"),
    "a bound without a double": ({"type": "integer", "minimum": 2**60}, "#/minimum"),
    "a control character": ({"enum": ["a", "\0"]}, "#/enum/1"),
    "an infinite value": ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "#"),
    "no value": ({"type": "string", "minLength": 3, "maxLength": 2}, "#/minLength"),
    "no value in a part":
        ({"items": {"type": "integer", "minimum": 3, "maximum": 2}, "minItems": 1, "type": "array"}, "#/items/minimum"),
    "a pattern that is none": ({"type": "object", "properties": {"a": {"pattern": "("}}}, "#/properties/a/pattern"),
    "definitions that are none": ({"$defs": 5}, "#/$defs"),
    "definitions of a part that are none": ({"items": {"definitions": []}}, "#/items/definitions"),
    "an $id that is none": ({"$id": []}, "#/$id"),
    "a title that is no text": ({"properties": {"a": {"title": 3}}}, "#/properties/a/title"),
    "a mark that is no truth": ({"readOnly": "yes"}, "#/readOnly"),
    "examples that are no list": ({"examples": "a"}, "#/examples"),
    "false": (False, "#"),
    "a type that there isn't": ({"type": "float"}, "#/type"),
    "a switch of a bound that isn't there": ({"type": "integer", "exclusiveMinimum": True}, "#/exclusiveMinimum"),
    "a length that is no number": ({"minLength": "3"}, "#/minLength"),
    "a list that is none": ({"required": "a"}, "#/required"),
    "a schema that is none": ({"properties": {"a": 3}}, "#/properties/a"),
    "an empty choice": ({"anyOf": []}, "#/anyOf"),
    "an unknown dialect": ({"$schema": "https://example.com/mine"}, "#/$schema"),
    "patterns that overlap": ({"type": "object", "patternProperties": {"^a": {}, "b$": {}}}, "#/patternProperties"),
    "properties that may come twice": ({"type": "object", "minProperties": 2}, "#/minProperties"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_schema_is_refused_with_the_place(case: str) -> None:
    schema, place = REFUSED[case]
    with pytest.raises(GrammarError, match="can't be enforced") as refused:
        of_schema(schema)
    assert f"{Place(place).keyword!r} at {place}: " in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.code == "grammar"


def test_every_keyword_that_says_what_is_valid_is_enforced_or_refused() -> None:
    assert REWRITES.keys() | REMEDIES.keys() >= ASSERTIONS
    assert not ASSERTIONS & ANNOTATIONS
    assert not REWRITES.keys() & ANNOTATIONS


def test_annotations_are_taken_and_mean_nothing() -> None:
    typed = {str: "T", bool: True, list: [1], dict: {"a": {}}, object: {"a": 1}}
    annotated: dict[str, Any] = {key: typed[ANNOTATED.get(key, (object, ""))[0]] for key in ANNOTATIONS - {"$schema"}}
    annotated |= {"x-mine": 1, "type": "null"}
    assert matches(of_schema(annotated), "null")
    assert not matches(of_schema(annotated), "1")


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("json-schema", "{", "no JSON"),
        ("json-schema", '{"const": NaN}', "NaN"),
        ("json-schema", '{"const": "\\ud800"}', "surrogate"),
        ("json-schema", "[" * 90_000, "no JSON"),
        ("regex", "(", "unclosed group"),
        ("json-schema", '{"pattern": "("}', "unclosed group"),
        ("lark", "start: unknown", "unknown"),
        ("lark", "", "lark"),
        ("lark", "start: " + '"a" ' * 40_000, "too long|bytes long"),
        ("regex", "\ud800", "surrogate"),
    ],
)
def test_what_is_no_grammar_is_refused(kind: Any, text: str, why: str) -> None:
    with pytest.raises(GrammarError, match=f"(?s){why}"):
        compiler().compile(Source(kind, text))


@pytest.mark.parametrize("rule", ['/a+/ "a"', "/a+/ /a+/", "A A\nA: /a+/"])
def test_a_grammar_of_which_no_text_ever_ends_is_compiled_in_finite_time(rule: str) -> None:
    at = compiler().compile(Source("lark", f"start: {rule}")).matcher()
    for _ in range(3):
        assert bits(at.mask()) == [ord("a")]
        at.accept([ord("a")])


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["regex", "lark", "json-schema"]), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_a_grammar_or_refused(kind: Any, text: str) -> None:
    try:
        at = compiler().compile(Source(kind, f"start: {text}" if kind == "lark" else text)).matcher()
        at.mask()
    except GrammarError as refused:
        told = str(refused)
        assert told


@pytest.mark.parametrize(
    "schema",
    [
        json.loads('{"const":' + "[" * 300 + "]" * 300 + "}"),
        {"type": "array", "minItems": 100_000},
        {"type": "string", "minLength": 100_000, "pattern": "^(a|b|c)*d(a|b|c)*$"},
        {"type": "string", "pattern": "^(([a-z]{1,50}){1,50}){1,50}$"},
        {"anyOf": [{"type": "object", "properties": {f"p{i}": {"const": i}}} for i in range(2_000)]},
        {"oneOf": [{"type": "object", "required": ["k"], "properties": {"k": {"enum": [i, "x"]}}} for i in range(500)]},
        json.loads('{"items":' * 60 + "{}" + "}" * 60),
        {"allOf": [{"anyOf": [{"properties": {f"p{i}_{j}": {"const": j}}} for j in range(6)]} for i in range(6)]},
    ],
)
def test_a_hostile_schema_is_refused_or_works_soon(schema: Any) -> None:
    try:
        at = of_schema(schema)
    except GrammarError:
        return
    at.mask()
