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
