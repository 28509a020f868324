"""State of the program that this instance runs."""

from __future__ import annotations

from typing import Any

arguments: dict[str, Any] = {}
ballast = [bytearray(2**20)]
"""Memory to give back when there is no more: saying so takes some."""
files: set[str] = set()
"""Paths of the user's own source: frames of other files aren't shown."""
