"""A wgpu device: which adapters there are, the one that is used, and the facts that kernels are chosen by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pie_edge.backends.shared.host import physical_memory, unique
from pie_edge.backends.shared.vulkan_loader import card_memory
from pie_edge.backends.wgpu.api import Handle, adapters, translated
from pie_edge.errors import BackendUnavailable

SUBGROUPS, HALF_FLOATS = "subgroup", "shader-f16"
_RAISED = ("max-buffer-size", "max-storage-buffer-binding-size")
"""Limits that a device is opened with as its adapter has them. All others are WebGPU's defaults: what runs here runs anywhere."""
_DEFAULTS = {
    "max-storage-buffers-per-shader-stage": 8,
    "max-uniform-buffers-per-shader-stage": 12,
    "max-uniform-buffer-binding-size": 64 << 10,
    "max-compute-workgroup-storage-size": 16 << 10,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroups-per-dimension": 65535,
    "max-bind-groups": 4,
}
_UNKNOWN_MEMORY = 4 << 30
"""Of a card that Vulkan doesn't know, for WebGPU doesn't tell. `memory` in the configuration says better."""
_DEFAULT_BUFFER, _DEFAULT_BINDING = 256 << 20, 128 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    """What an adapter says of itself. Sizes are bytes."""

    name: str
    """Its device and its API: one device may be there through several."""
    api: str
    """Vulkan, Metal, D3D12 or OpenGL."""
    driver: str
    kind: str
    """CPU, IntegratedGPU, DiscreteGPU or Unknown."""
    memory: int
    """How much to use at most, as far as one can know."""
    max_buffer: int
    max_binding: int
    limits: tuple[tuple[str, int], ...]
    features: tuple[str, ...]

    @property
    def software(self) -> bool:
        return self.kind == "CPU"

    @property
    def unified(self) -> bool:
        return self.kind in ("CPU", "IntegratedGPU")

    @property
    def shared_memory(self) -> int:
        """Of a workgroup: WebGPU's default, like the next."""
        return 16 << 10

    @property
    def max_invocations(self) -> int:
        return 256

    @property
    def subgroups(self) -> bool:
        return SUBGROUPS in self.features

    @property
    def half_floats(self) -> bool:
        return HALF_FLOATS in self.features


def survey() -> list[Facts]:
    """What all adapters say of themselves."""
    return [facts for _, facts in _look()]


def open_device(name: str = "") -> tuple[Handle, Facts]:
    """The adapter of this name, or the first one, as a device with WebGPU's default limits but for the sizes of buffers.
    Raises BackendUnavailable."""
    found = _look()
    for adapter, facts in found:
        if not name or facts.name == name:
            features = [name for name in (SUBGROUPS, HALF_FLOATS) if name in facts.features]
            there = dict(facts.limits)
            limits = {limit: there[limit] for limit in _RAISED if limit in there}
            # An adapter may have less, and then says so.
            limits |= {limit: min(value, there.get(limit, value)) for limit, value in _DEFAULTS.items()}
            with translated(f"open {facts.name}"):
                return adapter.request_device_sync(required_features=features, required_limits=limits), facts
    names = ", ".join(facts.name for _, facts in found) or "none"
    raise BackendUnavailable(f"backend wgpu has no adapter {name!r}; there are {names}")


def _look() -> list[tuple[Handle, Facts]]:
    seen = [(adapter, _facts(adapter)) for adapter in adapters()]
    names = unique(facts.name for _, facts in seen)
    return [(adapter, replace(facts, name=name)) for (adapter, facts), name in zip(seen, names, strict=True)]


def _facts(adapter: Handle) -> Facts:
    info: dict[str, Any] = dict(adapter.info)
    limits: dict[str, int] = dict(adapter.limits)
    kind, api = str(info["adapter_type"]), str(info["backend_type"])
    shared = kind in ("CPU", "IntegratedGPU")
    memory = physical_memory() if shared else card_memory(int(info["vendor_id"]), int(info["device_id"]))
    return Facts(
        name=f"{info['device'] or info['description'] or 'unnamed'}, {api}",
        api=api,
        driver=" ".join(_said(info, "description", "vendor")),
        kind=kind,
        memory=memory or _UNKNOWN_MEMORY,
        max_buffer=limits.get(_RAISED[0], _DEFAULT_BUFFER),
        max_binding=limits.get(_RAISED[1], _DEFAULT_BINDING),
        limits=tuple(sorted(limits.items())),
        features=tuple(sorted(adapter.features)),
    )


def _said(info: dict[str, Any], *names: str) -> Iterator[str]:
    yield from (str(info[name]) for name in names if info.get(name))
