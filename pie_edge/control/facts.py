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
