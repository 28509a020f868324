"""Compiled shaders: SPIR-V that lies beside its sources, built by ``scripts/build-shaders``."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pie_edge.backends.vulkan.launch import Module
from pie_edge.errors import BackendUnavailable

FOLDER = Path(__file__).resolve().parents[2] / "shaders" / "spirv"
"""``shaders/`` is two folders up both in a checkout and in an installed package."""


@lru_cache(maxsize=256)
def shader(name: str) -> Module:
    """The module of a variant: ``linear_affine4``, ``rms_norm``, …"""
    try:
        return Module(name, (FOLDER / f"{name}.spv").read_bytes())
    except OSError as error:
        raise BackendUnavailable(
            f"shader {name} can't be read ({error}); install pie-edge again, or run scripts/build-shaders in a checkout"
        ) from error
