"""Bounds beside ``multipleOf``, moved to multiples: between others the library begins numbers that it can't end."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from pie_edge.grammar.schema.refusal import Place, refuse

_MOST = 256
"""Negative multiples that are listed; the library finds none by itself."""
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def align(schema: dict[str, Any], place: Place) -> None:
    """Of a rewritten schema. Refuses bounds that leave no multiple, and negative ones that are too many."""
    given = [name for name in _BOUNDS if name in schema]
    if "multipleOf" not in schema or not given:
        return
    step = _exact(schema["multipleOf"])
    if schema.get("type") == "integer":
        step = Fraction(step.numerator)
    least, most = _least(schema, step), _most(schema, step)
    if least is not None and most is not None and least > most:
        refuse(place / "multipleOf", f"no multiple of {schema['multipleOf']} is within the bounds")
    for name in given:
        del schema[name]
    if most is not None and most < 0:
        _list_negative(schema, step, least, most, place)
        return
    if least is not None:
        schema["minimum"] = _number(least * step)
    if most is not None:
        schema["maximum"] = _number(most * step)


def _list_negative(schema: dict[str, Any], step: Fraction, least: int | None, most: int, place: Place) -> None:
    if schema.get("type") not in ("integer", "number") or least is None or most - least >= _MOST or "enum" in schema:
        refuse(
            place / "multipleOf",
            f"negative multiples can be enforced where they are a number's alone, and at most {_MOST}; list them as an enum",
        )
    del schema["multipleOf"], schema["type"]
    schema["enum"] = [_number(factor * step) for factor in range(least, most + 1)]


def _least(schema: dict[str, Any], step: Fraction) -> int | None:
    """The first factor that the lower bounds allow."""
    found = [math.ceil(_exact(schema["minimum"]) / step)] if "minimum" in schema else []
    if "exclusiveMinimum" in schema:
        found.append(math.floor(_exact(schema["exclusiveMinimum"]) / step) + 1)
    return max(found, default=None)


def _most(schema: dict[str, Any], step: Fraction) -> int | None:
    found = [math.floor(_exact(schema["maximum"]) / step)] if "maximum" in schema else []
    if "exclusiveMaximum" in schema:
        found.append(math.ceil(_exact(schema["exclusiveMaximum"]) / step) - 1)
    return min(found, default=None)


def _exact(value: float) -> Fraction:
    """As it is written."""
    return Fraction(repr(value))


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)
