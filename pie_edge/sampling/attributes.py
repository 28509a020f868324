"""A node's attributes as the table of nodes wants them: known, of the right kind, within bounds, concrete."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import isnan
from typing import Any

from pie_edge.program.node_shapes import AttributeValue, NodeError
from pie_edge.program.node_types import Attribute, AttributeKind, Element, NodeKind

VOCABULARY = "vocab"
"""Stands for the model's vocabulary wherever a length is asked for."""
MAX_RANK = 4
MAX_EXTENT = 2**24


def check(kind: NodeKind, given: Mapping[str, Any], rank: int, vocabulary: int) -> dict[str, AttributeValue]:
    """All of the kind's attributes; ``rank`` is what an axis counts in. Raises NodeError."""
    known = {attribute.name for attribute in kind.attributes}
    unknown = sorted(name for name in given if name not in known)
    if unknown:
        raise NodeError(f"it has no attribute {unknown[0][:40]!r}; it takes {sorted(known) or 'none'}")
    return {attribute.name: _value(attribute, given, rank, vocabulary) for attribute in kind.attributes}


def _value(attribute: Attribute, given: Mapping[str, Any], rank: int, vocabulary: int) -> AttributeValue:
    value = given.get(attribute.name)
    if value is None:
        if attribute.required:
            raise NodeError(f"attribute {attribute.name} is missing")
        value = attribute.default
        if attribute.kind is not AttributeKind.AXIS:
            return attribute.default
    match attribute.kind:
        case AttributeKind.INTEGER:
            return _integer(attribute, value)
        case AttributeKind.EXTENT:
            return vocabulary if value == VOCABULARY else _integer(attribute, value)
        case AttributeKind.SHAPE:
            return _shape(attribute, value, vocabulary)
        case AttributeKind.AXIS:
            return _axis(value, rank)
        case AttributeKind.NUMBER:
            return _number(attribute, value)
        case AttributeKind.FLAG:
            if isinstance(value, bool):
                return value
            raise _wrong(attribute, value, "true or false")
        case AttributeKind.ELEMENT:
            return _choice(attribute, value, tuple(Element))
        case AttributeKind.CHOICE:
            return _choice(attribute, value, attribute.choices)


def _integer(attribute: Attribute, value: Any) -> int:
    if type(value) is not int or not attribute.low <= value <= attribute.high:
        raise _wrong(attribute, value, f"a whole number from {attribute.low} to {attribute.high}")
    return value


def _shape(attribute: Attribute, value: Any, vocabulary: int) -> tuple[int, ...]:
    """Extents of at least 1, and −1 for ``reshape``, whose rule resolves it; elsewhere the type check refuses it."""
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise _wrong(attribute, value, f"a list of up to {MAX_RANK} lengths")
    extents = [vocabulary if extent == VOCABULARY else extent for extent in value]
    if any(type(extent) is not int or not (extent == -1 or 1 <= extent <= MAX_EXTENT) for extent in extents):
        raise _wrong(attribute, value, f"lengths from 1 to {MAX_EXTENT} or {VOCABULARY!r}")
    return tuple(extents)


def _axis(value: Any, rank: int) -> int:
    """Counted from the end, so that a leading batch axis doesn't move it."""
    if type(value) is not int:
        raise NodeError(f"axis is {_short(value)}, not a whole number")
    if not -rank <= value < rank:
        raise NodeError(
            f"axis {value} of a tensor with {rank} axes; give {-rank} … {rank - 1}" if rank else "a scalar has no axes"
        )
    return value if value < 0 else value - rank


def _number(attribute: Attribute, value: Any) -> int | float | bool:
    """JSON has no infinities: they are the strings ``inf`` and ``-inf``."""
    if value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**31) <= value < 2**32:
        return value
    if isinstance(value, int | float) and abs(value) < 2**128 and not isnan(value):
        try:
            struct.pack("<f", value)
        except OverflowError:
            pass
        else:
            return float(value)
    raise _wrong(attribute, value, "a float32 number, 'inf' or '-inf'")


def _choice(attribute: Attribute, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise _wrong(attribute, value, f"one of {', '.join(choices)}")
    return choices[choices.index(value)]


def _wrong(attribute: Attribute, value: Any, wanted: str) -> NodeError:
    return NodeError(f"attribute {attribute.name} is {_short(value)}, not {wanted}")


def _short(value: object) -> str:
    text = repr(value)[:60]
    return "".join(character if character.isprintable() else "?" for character in text)
