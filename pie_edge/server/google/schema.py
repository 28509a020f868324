"""Google's ``Schema``, a part of OpenAPI 3.0's, as JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pie_edge.server.google.wire import Whole, Wire

_ENUM = "enum"
"""A format that says nothing more than the enum does."""


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class Schema(Wire):
    type: Annotated[
        Literal["type_unspecified", "string", "number", "integer", "boolean", "array", "object", "null"] | None,
        BeforeValidator(_lower, json_schema_input_type=str | None),
    ] = None
    format: str | None = None
    title: str | None = None
    description: str | None = None
    nullable: bool = False
    enum: list[str] | None = None
    default: Any = None
    example: Any = None
    items: Schema | None = None
    min_items: Whole | None = None
    max_items: Whole | None = None
    properties: dict[str, Schema] | None = None
    property_ordering: list[str] = Field(default_factory=list)
    required: list[str] | None = None
    min_properties: Whole | None = None
    max_properties: Whole | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: Whole | None = None
    max_length: Whole | None = None
    pattern: str | None = None
    any_of: list[Schema] | None = None
    additional_properties: bool | Schema | None = None
    ref: str | None = Field(None, alias="$ref")
    defs: dict[str, Schema] | None = Field(None, alias="$defs")

    @model_validator(mode="after")
    def _orders_what_there_is(self) -> Schema:
        if strange := [name for name in self.property_ordering if name not in (self.properties or {})]:
            known = ", ".join(self.properties or {}) or "none"
            raise ValueError(f"propertyOrdering names {strange[0]!r:.80}, and the properties are: {known}")
        return self


_SAME = (
    *("title", "description", "default", "required", "pattern", "min_items", "max_items", "min_properties"),
    *("max_properties", "minimum", "maximum", "min_length", "max_length"),
)
"""Fields that JSON Schema has by the same name."""


def json_schema(schema: Schema) -> dict[str, Any]:
    """Properties come in the order in which they are asked for."""
    given = schema.model_fields_set
    found: dict[str, Any] = {}
    if schema.type not in (None, "type_unspecified"):
        found["type"] = schema.type
    names = Schema.model_fields
    found |= {str(names[name].alias): getattr(schema, name) for name in _SAME if name in given}
    if schema.format not in (None, _ENUM):
        found["format"] = schema.format
    if schema.enum is not None:
        found["enum"] = schema.enum
    if "example" in given:
        found["examples"] = [schema.example]
    found |= _parts(schema)
    return _or_null(found) if schema.nullable else found


def _parts(schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if schema.properties is not None:
        found["properties"] = {
            name: json_schema(schema.properties[name])
            for name in dict.fromkeys([*schema.property_ordering, *schema.properties])
        }
    if schema.items is not None:
        found["items"] = json_schema(schema.items)
    if schema.any_of is not None:
        found["anyOf"] = [json_schema(one) for one in schema.any_of]
    if schema.additional_properties is not None:
        more = schema.additional_properties
        found["additionalProperties"] = more if isinstance(more, bool) else json_schema(more)
    if schema.ref is not None:
        found["$ref"] = schema.ref
    if schema.defs is not None:
        found["$defs"] = {name: json_schema(one) for name, one in schema.defs.items()}
    return found


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    return {"anyOf": [schema, {"type": "null"}], **definitions}
