"""How Google's API has JSON: names in camelCase or snake_case, whole numbers perhaps as text or with a point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel


class Wire(BaseModel):
    """Fields that it doesn't have, and values of other types, are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
    )


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= 20:
        return int(value)
    return value


Whole = Annotated[int, BeforeValidator(_whole, json_schema_input_type=int | str)]


def refuse(value: Any, fields: Mapping[str, str]) -> Any:
    """The value, if it is no object with one of these fields, in camelCase. Raises ValueError with what is said of that one."""
    if isinstance(value, dict):
        for name in value:
            if isinstance(name, str) and (why := fields.get(to_camel(name) if "_" in name else name)):
                raise ValueError(f"{name}: {why}")
    return value
