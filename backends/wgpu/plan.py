"""A compiled Program as data: a flat list that a native encoder takes as it is, and JSON that a browser's replayer takes.

Buffers are told by number; whoever runs the plan knows which is which. A dispatch's workgroups may depend on the step's
true counts: then an extent is a Count, in JSON ``[name, divisor, times, first, most]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pie_edge.backends.shared.grid import Extent, Grid
from pie_edge.backends.wgpu.memory import Buffer, Region
from pie_edge.backends.wgpu.shader import Shader, Slot
from pie_edge.errors import BackendError

MOST_GROUPS = 65535
"""Workgroups of a dimension: WebGPU's default limit."""
ALIGNMENT = 256
"""Of the offset of a binding: WebGPU's default limit."""
Layout = tuple[tuple[int, str], ...]
"""Number and kind of each binding of group 0."""


@dataclass(frozen=True)
class Launch:
    """A kernel launch: what it is bound to by name, how many workgroups, and its packed parameters."""

    shader: Shader
    bindings: Mapping[str, Region]
    grid: Grid
    params: bytes = b""


def launch(shader: Shader, bindings: Mapping[str, Region], grid: Grid, **params: int | float) -> Launch:
    return Launch(shader, bindings, grid, shader.params(params))


@dataclass(frozen=True, slots=True)
class Entry:
    """A binding of a bind group: bytes of a buffer."""

    slot: int
    buffer: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Group:
    layout: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Dispatch:
    pipeline: int
    group: int
    uniform: int
    """Where its parameters begin in the uniform block; 0 if it has none."""
    grid: Grid


@dataclass(frozen=True)
class Plan:
    """What runs for one step shape. ``pipelines`` are pairs of a shader and a layout of group 0."""

    buffers: tuple[Buffer, ...]
    shaders: tuple[Shader, ...]
    layouts: tuple[Layout, ...]
    pipelines: tuple[tuple[int, int], ...]
    groups: tuple[Group, ...]
    uniforms: bytes
    dispatches: tuple[Dispatch, ...]
    outbox: tuple[int, int, int] | None
    """What is copied to the host after the dispatches: a buffer's number, where in it, and bytes."""

    def as_json(self) -> dict[str, Any]:
        """Plain lists, numbers and text."""
        return {
            "buffers": [[buffer.label, buffer.nbytes] for buffer in self.buffers],
            "shaders": [{"name": s.name, "digest": s.digest, "code": s.standard} for s in self.shaders],
            "layouts": [[list(binding) for binding in layout] for layout in self.layouts],
            "pipelines": [list(pipeline) for pipeline in self.pipelines],
            "groups": [
                {"layout": g.layout, "entries": [[e.slot, e.buffer, e.offset, e.nbytes] for e in g.entries]}
                for g in self.groups
            ],
            "uniforms": self.uniforms.hex(),
            "dispatches": [[d.pipeline, d.group, d.uniform, [_extent(e) for e in d.grid]] for d in self.dispatches],
            "outbox": None if self.outbox is None else list(self.outbox),
        }


def _extent(extent: Extent) -> int | list[Any]:
    if isinstance(extent, int):
        return extent
    return [extent.name, extent.divisor, extent.times, extent.first, extent.most]


class _Table(dict[Any, int]):
    """Numbers for things in the order in which they are first seen."""

    def number(self, thing: Any) -> int:
        return self.setdefault(thing, len(self))


@dataclass
class _Builder:
    max_binding: int
    buffers: _Table = field(default_factory=_Table)
    shaders: dict[str, tuple[int, Shader]] = field(default_factory=dict)
    layouts: _Table = field(default_factory=_Table)
    pipelines: _Table = field(default_factory=_Table)
    groups: _Table = field(default_factory=_Table)
    offsets: dict[bytes, int] = field(default_factory=dict)
    uniforms: bytearray = field(default_factory=bytearray)

    def dispatch(self, given: Launch) -> Dispatch:
        _check(given)
        slots = given.shader.slots
        layout = self.layouts.number(tuple((slot.number, slot.kind) for slot in slots))
        shader, _ = self.shaders.setdefault(given.shader.digest, (len(self.shaders), given.shader))
        entries = tuple(self._entry(given, slot) for slot in slots)
        return Dispatch(
            self.pipelines.number((shader, layout)),
            self.groups.number(Group(layout, entries)),
            self._uniform(given.params),
            given.grid,
        )

    def _entry(self, given: Launch, slot: Slot) -> Entry:
        region = given.bindings[slot.name]
        if region.nbytes > self.max_binding or region.offset % ALIGNMENT:
            raise BackendError(
                f"{given.shader.name} would bind {region.nbytes} bytes at {region.offset} as {slot.name}; this device takes "
                f"{self.max_binding} at multiples of {ALIGNMENT}. Lower `kv_memory`"
            )
        return Entry(slot.number, self.buffers.number(region.buffer), region.offset, region.nbytes)

    def _uniform(self, params: bytes) -> int:
        if not params and self.uniforms:
            return 0
        if params not in self.offsets:
            self.offsets[params] = len(self.uniforms)
            self.uniforms += params.ljust(ALIGNMENT, b"\0")
        return self.offsets[params]


def build(launches: Sequence[Launch], outbox: Region | None, max_binding: int) -> Plan:
    """The plan of these launches in order. Raises BackendError beyond the limits."""
    builder = _Builder(max_binding)
    dispatches = tuple(map(builder.dispatch, launches))
    copied = None if outbox is None else (builder.buffers.number(outbox.buffer), outbox.offset, outbox.nbytes)
    return Plan(
        buffers=tuple(builder.buffers),
        shaders=tuple(shader for _, shader in builder.shaders.values()),
        layouts=tuple(builder.layouts),
        pipelines=tuple(builder.pipelines),
        groups=tuple(builder.groups),
        uniforms=bytes(builder.uniforms) or bytes(ALIGNMENT),
        dispatches=dispatches,
        outbox=copied,
    )


def _check(given: Launch) -> None:
    names = {slot.name for slot in given.shader.slots}
    if names != set(given.bindings):
        raise ValueError(f"{given.shader.name} is bound to {sorted(names)}, got {sorted(given.bindings)}")
    for extent in given.grid:
        most = extent if isinstance(extent, int) else -(-min(extent.most, 1) // extent.divisor) * extent.times
        if most > MOST_GROUPS:
            raise BackendError(f"{given.shader.name} would run {given.grid} workgroups; WebGPU takes {MOST_GROUPS}")
