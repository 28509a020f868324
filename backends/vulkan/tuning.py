"""The default variants of the hot kernels, by the kind of device."""

from __future__ import annotations

from pie_edge.backends.shared.tuning import LinearVariant, Tuning, hardware, software
from pie_edge.backends.vulkan.device import Facts

_SOFTWARE = (1, LinearVariant(1, 16)), (2, LinearVariant(1, 12)), (4, LinearVariant(1, 12))
_TILES = ((32, LinearVariant(1, 2, tile=True)),)


def default_tuning(facts: Facts) -> Tuning:
    subgroups = facts.subgroup_arithmetic
    if facts.software:
        return software(facts.subgroup or 8, _SOFTWARE, subgroups=subgroups, texels=True)
    return hardware(_TILES, min(256, facts.max_invocations), subgroups=subgroups)
