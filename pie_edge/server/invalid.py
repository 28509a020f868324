"""What is wrong with a body, in words of ours where the validator's are about itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_SHOULD_BE = "Input should be "
_LONGEST = 80
"""Characters of a value that a message repeats."""


class InvalidBody(Exception):  # noqa: N818
    """A body that doesn't fit: where, in what way, and pydantic's word for that."""

    def __init__(self, place: Sequence[int | str], message: str, kind: str) -> None:
        super().__init__(message)
        self.place = place
        self.message = message
        self.kind = kind

    @property
    def path(self) -> str:
        """``messages[0].content``"""
        return path(self.place)

    @property
    def shown(self) -> str:
        """The path within a message: a client may give a field any name."""
        return self.path if self.path.isprintable() else repr(self.path)


def path(place: Sequence[int | str]) -> str:
    found = ""
    for part in place:
        found += f"[{part}]" if isinstance(part, int) else f".{part}" if found else part
    return found


def told(place: Sequence[int | str], first: Mapping[str, Any], same: Sequence[Mapping[str, Any]]) -> InvalidBody:
    """``first`` is the validator's error that says most, ``same`` are all at its place: of a union, what else there may be."""
    kind, message, context = first["type"], first["msg"], first.get("ctx", {})
    if kind.startswith("union_tag_"):
        return _no_branch(place, first["input"], context)
    if kind in ("missing", "extra_forbidden", "json_invalid", "value_error"):
        return InvalidBody(place, message, kind)
    wanted = dict.fromkeys(one["msg"].removeprefix(_SHOULD_BE) for one in same if one["type"].endswith("_type"))
    if kind.endswith("_type") and message.startswith(_SHOULD_BE):
        message = _SHOULD_BE + " or ".join(wanted)
    return InvalidBody(place, message + _given(first["input"]), kind)


def _no_branch(place: Sequence[int | str], value: Any, context: Mapping[str, Any]) -> InvalidBody:
    """Of objects that are told apart by one of their fields: by ``type``, where a function of ours does it."""
    named: str = context["discriminator"]
    name = named.strip("'") if named.startswith("'") else "type"
    if not isinstance(value, dict):
        return InvalidBody(place, f"{_SHOULD_BE}an object{_given(value)}", "model_type")
    if name not in value:
        return InvalidBody([*place, name], "Field required", "missing")
    known = context["expected_tags"].removesuffix(", 'other'")
    return InvalidBody([*place, name], f"{_SHOULD_BE}one of {known}{_given(value[name])}", "literal_error")


def _given(value: Any) -> str:
    """The value, where that says something."""
    if not isinstance(value, str | int | float | None) or (isinstance(value, int) and abs(value) >= 10**_LONGEST):
        return ""
    text = json.dumps(value)
    return f", and {text if len(text) <= _LONGEST else text[:_LONGEST] + '…'} was given"
