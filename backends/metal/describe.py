"""What ``pie-edge doctor`` tells of the device that MLX computes on."""

from __future__ import annotations

from pie_edge.backends.metal.probe import broken, probe


def describe() -> list[str]:
    """Two lines for the device, or for what is wrong with it; nothing where MLX isn't."""
    if not probe().devices:
        return []
    # On Linux a probe loads nothing.
    if wrong := broken():
        return [wrong.reason, f"remedy: {wrong.remedy}"]
    from pie_edge.backends.metal.device import facts

    found = facts()
    kind = "Metal" if found.gpu else "software"
    size = f"{found.memory / 2**30:.1f} GiB"
    memory = f"{size} that macOS recommends to keep resident" if found.gpu else f"{size} of memory"
    return [
        f"{found.name}: {kind}, {found.driver}",
        f"  {memory}; the largest buffer is {found.largest / 2**30:.1f} GiB",
    ]
