"""Whether a model thinks before it answers: what a request wishes, against what the model can."""

from __future__ import annotations

from typing import Literal

from pie_edge.errors import UsageError
from pie_edge.server.generation import Card

Wish = Literal["on", "off", "rather", "rather-not"]
"""``rather`` and ``rather-not`` are content with a model that can't."""


def thinking(wish: Wish, card: Card, field: str) -> bool | None:
    """As a ``Conversation`` has it. Raises UsageError, which names ``field``, where the model does only the opposite."""
    wants = wish in ("on", "rather")
    if card.thinks == "switched":
        return wants
    if wish == "on" and card.thinks == "never":
        raise UsageError(f"{field}: {card.name} doesn't think before it answers; leave it out")
    if wish == "off" and card.thinks == "always":
        raise UsageError(f"{field}: {card.name} always thinks before it answers, and can't be told not to")
    return None
