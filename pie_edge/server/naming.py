"""Models by the names that requests give them."""

from __future__ import annotations

from pie_edge.errors import ModelNotFound
from pie_edge.server.generation import Card


def check_model(name: str, card: Card) -> None:
    """Raises ModelNotFound for one that isn't served here."""
    if name != card.name:
        raise ModelNotFound(f"model: {name!r} isn't here; the model that is served is {card.name!r}")
