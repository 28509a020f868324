"""What ``pie-edge doctor`` tells of each Vulkan device: the facts that decide what runs on it, and how."""

from __future__ import annotations

from pie_edge.backends.vulkan.api import version_text
from pie_edge.backends.vulkan.device import Facts, survey


def describe() -> list[str]:
    """A line or two for each device of this machine, refused ones included."""
    lines = []
    for facts, reason in survey():
        kind = "software" if facts.software else "unified memory" if facts.unified else "memory of its own"
        lines.append(f"{facts.name}: {kind}, Vulkan {version_text(facts.api)}, {facts.driver}")
        lines.append(f"  refused: {reason}" if reason else f"  {_abilities(facts)}")
    return lines


def _abilities(facts: Facts) -> str:
    heaps = ", ".join(f"{size / 2**30:.1f} GiB{' on the device' if local else ''}" for size, local in facts.heaps)
    subgroups = f"subgroups of {facts.subgroup}" if facts.subgroup_arithmetic else "no subgroup arithmetic"
    narrow = [name for name, there in (("f16", facts.float16), ("int8", facts.int8)) if there]
    arithmetic = " and ".join(narrow) + " arithmetic" if narrow else "neither f16 nor int8 arithmetic"
    return (
        f"heaps: {heaps}; largest binding {facts.max_binding / 2**20:.0f} MiB; {subgroups}; {arithmetic}; "
        f"{facts.shared_memory // 1024} KiB of shared memory, {facts.max_invocations} invocations a workgroup"
    )
