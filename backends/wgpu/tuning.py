"""The default variants of the hot kernels, by the kind of device."""

from __future__ import annotations

from pie_edge.backends.shared.tuning import LinearVariant, Tuning, hardware, software
from pie_edge.backends.wgpu.device import Facts

_WIDTH = 8
"""Lanes of a software device: WebGPU doesn't tell, and processors of today have eight."""
_SOFTWARE = tuple((tokens, LinearVariant(1, groups)) for tokens, groups in ((1, 16), (2, 12), (4, 16), (8, 16)))


def default_tuning(facts: Facts) -> Tuning:
    if facts.software:
        return software(_WIDTH, _SOFTWARE, subgroups=facts.subgroups, texels=False)
    return hardware((), 64, subgroups=facts.subgroups, half_floats=facts.half_floats)
