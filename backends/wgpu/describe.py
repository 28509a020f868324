"""What ``pie-edge doctor`` tells of each wgpu adapter: the API behind it, its limits and features."""

from __future__ import annotations

from pie_edge.backends.wgpu.device import Facts, survey

_TOLD = (
    ("max-storage-buffers-per-shader-stage", "storage buffers a stage"),
    ("max-compute-invocations-per-workgroup", "invocations a workgroup"),
    ("max-compute-workgroups-per-dimension", "workgroups a dimension"),
)
_FEATURES = ("shader-f16", "subgroup", "timestamp-query", "immediates")


def describe() -> list[str]:
    """Two lines for each adapter of this machine."""
    lines = []
    for facts in survey():
        kind = {"CPU": "software", "IntegratedGPU": "unified memory", "DiscreteGPU": "memory of its own"}.get(
            facts.kind, ""
        )
        lines.append(", ".join(part for part in (f"{facts.name}: {kind or facts.kind}", facts.driver) if part))
        lines.append(f"  {_abilities(facts)}")
    return lines


def _abilities(facts: Facts) -> str:
    limits = dict(facts.limits)
    sizes = f"largest buffer {facts.max_buffer / 2**20:.0f} MiB, largest binding {facts.max_binding / 2**20:.0f} MiB"
    counts = "; ".join(f"{limits[name]} {what}" for name, what in _TOLD if name in limits)
    memory = f"{limits.get('max-compute-workgroup-storage-size', 0) // 1024} KiB of workgroup memory"
    there = [name for name in _FEATURES if name in facts.features]
    return f"{sizes}; {counts}; {memory}; features: {', '.join(there) or 'none'}"
