"""Values of ``const`` and ``enum``."""

from __future__ import annotations

import math
from typing import Any

from pie_edge.grammar.schema.refusal import Place, refuse

LARGEST = 2**53
"""Whole numbers up to this are exact as the double-precision numbers that the matching library has."""
_WRITABLE = set("\n\r\b\t\f")


def literal(value: Any, place: Place) -> Any:
    """The same value. Refuses what the library writes otherwise, or can't write."""
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, dict):
        return {key: literal(one, place) for key, one in value.items()}
    if isinstance(value, list):
        return [literal(one, place) for one in value]
    if isinstance(value, float):
        return _float(value, place)
    if isinstance(value, int) and abs(value) > LARGEST:
        refuse(place, f"{value} can't be told from its neighbours as a double-precision number; the largest is 2⁵³")
    return value


def _text(value: str, place: Place) -> str:
    odd = [one for one in value if (ord(one) < 32 or ord(one) == 127) and one not in _WRITABLE]
    if odd:
        refuse(place, f"the control character U+{ord(odd[0]):04X} is never written in a string")
    return value


def _float(value: float, place: Place) -> float | int:
    if not math.isfinite(value) or "e" in repr(value) or abs(value) > LARGEST:
        refuse(place, f"the number {value!r} is only written with an exponent; give one of up to 15 digits")
    return int(value) if value.is_integer() else value
