"""What a parameter may be: honoured, accepted since it can't change the answer, or refused by name. None is ignored in silence.

The table in ``docs/openai.md`` is made of these declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from pie_edge.server import wire
from pie_edge.server.invalid import InvalidBody
from pie_edge.server.openai.errors import BadRequest


class Strict(BaseModel):
    """An object with these fields and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def refused(reason: str, *neutral: Any) -> Any:
    """A parameter that is known, and isn't here: all but the ``neutral`` values are refused."""
    return Field(None, json_schema_extra={"x-refused": reason, "x-neutral": list(neutral)})


def accepted(reason: str) -> Any:
    """A parameter that is read, and makes no difference to the answer."""
    return Field(None, json_schema_extra={"x-accepted": reason})


class Parameters(Strict):
    """Of an endpoint. ``NOTES`` say of those that are honoured what there is to say, for the docs."""

    NOTES: ClassVar[Mapping[str, str]] = {}
    TAGS: ClassVar[frozenset[str]] = frozenset()
    """What tells the branches of unions in it apart."""

    def check(self) -> None:
        """Raises BadRequest for a refused parameter that was given."""
        for name, field in type(self).model_fields.items():
            value, mark = getattr(self, name), field.json_schema_extra
            if not isinstance(mark, dict) or "x-refused" not in mark or value is None:
                continue
            neutral = mark["x-neutral"]
            if not isinstance(neutral, list) or value not in neutral:
                raise BadRequest(f"{name} isn't supported: {mark['x-refused']}", name, "unsupported_parameter")


P = TypeVar("P", bound=Parameters)

_REASONS = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
    "json_invalid": "invalid_json",
}


def parse(kind: type[P], body: bytes) -> P:
    """Raises BadRequest."""
    try:
        found = wire.read(kind, body, kind.TAGS)
    except InvalidBody as error:
        raise BadRequest(_told(error), error.path or None, _REASONS.get(error.kind, "invalid_value")) from None
    found.check()
    return found


def _told(error: InvalidBody) -> str:
    match error.kind:
        case "missing":
            return f"Missing required parameter: {error.path!r}."
        case "extra_forbidden":
            return f"Unknown parameter: {error.path!r}."
        case "json_invalid":
            return f"The body is no JSON: {error.message}."
    return f"Invalid value for {repr(error.path) if error.path else 'the body'}: {error.message.removeprefix('Value error, ')}."
