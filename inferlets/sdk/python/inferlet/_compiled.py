"""Sources that were compiled when the component was built. It is built with a call of ``add`` at the end of this module."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType

_codes: dict[str, CodeType] = {}
"""By the source: whoever changes one gets his own compiled."""


def add(texts: Mapping[str, str]) -> None:
    """``texts`` by the names that tracebacks show."""
    for name, text in texts.items():
        _codes[text] = compile(text, name, "exec", dont_inherit=True)


def find(text: str) -> CodeType | None:
    return _codes.get(text)
