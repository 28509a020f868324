"""What is known of a model beside its numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What an inferlet may know of the model."""

    name: str
    architecture: str
    vocabulary: int
    context: int
    page_size: int
    licence: str = ""
    description: str = ""
    version: str = ""
    hidden: int = 0
    """Entries of a hidden state."""
    pooling: str = ""
    """How a text's vector comes of its hidden states, one of ``model.pooling.KINDS``; empty where nothing says how,
    and ``unpooled`` then is why, and what would help."""
    unpooled: str = ""
    sampling: tuple[tuple[str, float], ...] = ()
    """What it recommends to sample with (``model.recommended``)."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What contexts of a model can do where it was opened."""

    longest: int
    """Tokens that one can have."""
    observable_layers: int = 0
    """How many layers' attention a pass can observe."""
    adapters: tuple[str, ...] = ()
    """What passes can name."""
    reversible: int | None = None
    """How many tokens can always be taken back; None where all can: the model has no recurrent state, and some layer sees
    everything."""
    recurrent: bool = False
    """Whether they have state beside keys and values."""
