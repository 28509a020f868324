"""JSON made by a schema is valid by it, whatever the model's logits are: the oracle is ``jsonschema`` with its format checker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pie_edge.errors import GrammarError
from tests.support.grammars import matcher, matches, of_schema, validator, written

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "number"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["value", "next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
SHAPES = {
    "oneOf": [{"$ref": "#/$defs/circle"}, {"$ref": "#/$defs/square"}],
    "$defs": {
        kind: {
            "type": "object",
            "properties": {"kind": {"const": kind}, size: {"type": "number", "exclusiveMinimum": 0}},
            "required": ["kind", size],
        }
        for kind, size in (("circle", "radius"), ("square", "side"))
    },
}
SCHEMAS: dict[str, Any] = {
    "an object": PERSON,
    "a recursive reference": TREE,
    "a union with a tag": SHAPES,
    "anything": {},
    "additional properties": {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "properties": {"a": {"type": "null"}},
    },
    "names in other scripts": {
        "type": "object",
        "properties": {"größe": {"type": "integer"}, "名前": {"type": "string"}, 'a"\\\n': {"type": "null"}},
        "required": ["größe", "名前", 'a"\\\n'],
    },
    "nested arrays": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        "minItems": 1,
    },
    "a tuple": {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string"}],
        "items": False,
        "minItems": 2,
    },
    "a tuple of draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [{"const": 1}],
        "additionalItems": {"const": 2},
        "minItems": 3,
    },
    "bounds": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25},
    "bounds of draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "integer",
        "minimum": 3,
        "exclusiveMinimum": True,
        "maximum": 12,
    },
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": -50},
    "the only multiple": {"type": "number", "minimum": 2.04, "maximum": 2.54, "multipleOf": 0.5},
    "multiples between exclusive bounds": {
        "type": "number",
        "exclusiveMinimum": 2,
        "exclusiveMaximum": 4.5,
        "multipleOf": 0.25,
    },
    "negative multiples": {"type": "number", "minimum": -0.51, "exclusiveMaximum": 0, "multipleOf": 0.25},
    "whole multiples": {"type": "integer", "minimum": 2.04, "maximum": 7.5, "multipleOf": 1.5},
    "all of several": {"allOf": [{"type": "object", "required": ["b"]}, {"properties": {"b": {"type": "integer"}}}]},
    "an enum": {"enum": ["red", "grün", 3, -2.5, True, None, {"a": [1]}, "line\nfeed"]},
    "patterns of properties": {
        "type": "object",
        "patternProperties": {"^n_": {"type": "integer"}, "^s_": {"type": "string"}},
        "additionalProperties": False,
    },
    "a least number of properties": {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
        "additionalProperties": False,
        "minProperties": 2,
    },
    "names that are listed": {
        "$id": "https://example.com/counts",
        "type": "object",
        "propertyNames": {"$ref": "#/$defs/colour"},
        "additionalProperties": {"type": "integer"},
        "$defs": {"colour": {"enum": ["red", "green"], "title": "Colour"}},
        "minProperties": 1,
    },
    "names by a pattern": {
        "type": "object",
        "propertyNames": {"pattern": "^[a-c]{2}$"},
        "additionalProperties": {"const": 1},
    },
    "lengths": {"type": "string", "minLength": 2, "maxLength": 4},
    **{
        f"format {name}": {"type": "string", "format": name}
        for name in (
            *("date", "time", "date-time", "duration", "email", "hostname"),
            *("ipv4", "ipv6", "uuid", "uri", "json-pointer"),
        )
    },
    "int32": {"type": "integer", "format": "int32"},
    **{
        f"pattern {pattern}": {"type": "string", "pattern": pattern}
        for pattern in (
            r"^[A-Z]{2}\d{2,4}$",
            r"^a|b$",
            r"^[^\d\s]+$",
            r"^\W\D\S$",
            r"^(?:x|[\]&~-])*$",
            r"^a.c$",
            "^é+?$",
            "^{a}$",
            r'^[^"\\]{3}$',
            r'^[^/\\:*?"<>|]{1,20}$',
            r"^[^ -~]$",
            r'^(?:\x01|[^"])$',
        )
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_a_random_model_makes_is_valid(name: str) -> None:
    schema, whole = SCHEMAS[name], 0
    for seed in range(40):
        text = written(of_schema(schema), seed)
        if text is not None:
            validator(schema).validate(json.loads(text))
            whole += 1
    assert whole >= 3


def test_any_json_object_is_an_object() -> None:
    texts = [written(matcher("json"), seed) for seed in range(40)]
    assert all(isinstance(json.loads(text), dict) for text in texts if text is not None)
    assert any(texts)


names = st.sampled_from(["a", "b", "é", 'q"t'])
numbers = st.one_of(st.integers(-20, 20), st.sampled_from([0.5, -1.5, 0.1, 2.0, 99.75, 2.04, 2.54, -0.51]))
types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
classes = st.sampled_from(["a", "a-c", '"', r"\\", r"\d", r"\s", " -~", r"\x00-\x1f", r"\x01", "é", r"\n"])
patterns = st.one_of(
    st.sampled_from(["^a*$", "[a-c]+", r"^\d{2,3}$", r"\w\W", "é", "^x|y$", "a.b"]),
    st.builds(
        lambda negated, inner, more: f"^(?:[{negated}{''.join(inner)}]{more})$",
        st.sampled_from(["", "^"]),
        st.lists(classes, min_size=1, max_size=3),
        st.sampled_from(["", "+", "{2}", "|a", r"|\x01"]),
    ),
)
leaves = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({"type": st.one_of(types, st.lists(types, min_size=1, max_size=3, unique=True))}),
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["integer", "number"]),
            **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), numbers),
            "multipleOf": st.sampled_from([1, 3, 0.5, 0.25]),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={"minLength": st.integers(0, 4), "maxLength": st.integers(0, 6), "pattern": patterns},
    ),
    st.fixed_dictionaries(
        {"enum": st.lists(st.one_of(st.none(), st.booleans(), numbers, names), min_size=1, max_size=4)}
    ),
)


def extended(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    objects = {
        "required": st.lists(names, max_size=3, unique=True),
        "additionalProperties": inner,
        "minProperties": st.integers(0, 2),
        "maxProperties": st.integers(0, 3),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=2),
    }
    arrays = {"items": inner, "prefixItems": several, "minItems": st.integers(0, 3), "maxItems": st.integers(0, 3)}
    references = st.sampled_from(["#/$defs/r", "#"])
    return st.one_of(
        st.fixed_dictionaries({"properties": st.dictionaries(names, inner, max_size=3)}, optional=objects),
        st.fixed_dictionaries({"type": st.just("array")}, optional=arrays),
        st.fixed_dictionaries(
            {}, optional={"anyOf": several, "allOf": several, "oneOf": several, "type": types, "$ref": references}
        ),
    )


schemas = st.recursive(leaves, extended, max_leaves=8)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas, schemas, st.integers(0, 10**6))
def test_any_schema_is_refused_or_enforced(schema: Any, referred: Any, seed: int) -> None:
    whole = schema | {"$defs": {"r": referred}} if isinstance(schema, dict) else schema
    try:
        at = of_schema(whole)
    except GrammarError:
        return
    for draw in range(3):
        text = written(at.fork(), seed + draw)
        if text is not None:
            validator(whole).validate(json.loads(text))


@pytest.mark.parametrize(
    ("pattern", "left_out"),
    [(r'^[^"]{1,3}$', '"'), (r"^[^\\]{1,3}$", "\\"), (r"^[^'\"]*$", '"'), (r"^[^ -~]$", '"'), (r"^[\x00-\x1f]$", "\\")],
)
@pytest.mark.parametrize("place", ["a value", "a name", "a pattern of names"])
def test_a_class_leaves_out_quotes_and_backslashes_that_an_escape_would_write(
    pattern: str, left_out: str, place: str
) -> None:
    schema = {
        "a value": {"properties": {"k": {"type": "string", "pattern": pattern}}, "additionalProperties": False},
        "a name": {"propertyNames": {"pattern": pattern}, "additionalProperties": {"const": 1}},
        "a pattern of names": {"patternProperties": {pattern: {"const": 1}}, "additionalProperties": False},
    }[place]
    at = of_schema({"type": "object", **schema})
    for text, allowed in ((left_out, False), ("\n", True)):
        whole = {"k": text} if place == "a value" else {text: 1}
        assert matches(at, json.dumps(whole)) == allowed


def test_json_is_written_in_one_form_so_it_is_never_padded() -> None:
    at = of_schema({"type": "object", "properties": {"a": {"type": "array"}}})
    assert matches(at, '{"a": [1, {"b": null}]}')
    for padded in (' {"a": []}', '{"a":[]}', '{"a": [ ]}', '{"a":  []}', '{"a": [1,2]}', '{"a": []\n}', '{"a": []} '):
        assert not matches(at, padded), padded


def test_a_name_cannot_come_again_in_another_spelling() -> None:
    at = of_schema(
        {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}
    )
    assert matches(at, '{"a": 1, "b": "x"}')
    assert not matches(at, r'{"a": 1, "\u0061": "x"}')
    assert not matches(at, '{"a": 1, "a": "x"}')


def test_a_string_has_no_lone_surrogate() -> None:
    at = of_schema({"type": "string"})
    assert matches(at, '"\U0001f600"')
    assert not matches(at, r'"\ud800"')
    assert not matches(at, '"\ud800"')
