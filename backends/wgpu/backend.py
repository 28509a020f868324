"""The Backend protocol on wgpu: weights and states on the device, Programs planned once, a step one submit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pie_edge.backend import WeightSource, in_thread
from pie_edge.backends.shared.device_backend import DeviceBackend
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.weights import Weight
from pie_edge.backends.wgpu.compiler import Compiler
from pie_edge.backends.wgpu.device import Facts, open_device
from pie_edge.backends.wgpu.executable import Planned
from pie_edge.backends.wgpu.lower import KINDS
from pie_edge.backends.wgpu.memory import Region
from pie_edge.backends.wgpu.session import Readback, Session
from pie_edge.backends.wgpu.tuning import Tuning, default_tuning
from pie_edge.errors import DeviceLost, UsageError
from pie_edge.program.ops import Program, Role, Value

__all__ = ["Options", "WgpuBackend", "open_wgpu"]


@dataclass(frozen=True)
class Options:
    """How a device is opened; 0 and "" leave it to the device. ``max_binding`` caps what the device says of itself."""

    device: str = ""
    memory: int = 0
    exact: bool = False
    tuning: Tuning | None = None
    max_binding: int = 0


class Live:
    """What an open device consists of; it dies when the device is lost."""

    def __init__(self, options: Options) -> None:
        self.closed = False
        device, facts = open_device(options.device)
        self.facts: Facts = facts
        self.max_binding = min(options.max_binding or facts.max_binding, facts.max_binding)
        memory = min(options.memory or facts.memory, facts.memory)
        self.session = Session(device, facts, memory)
        self.tuning: Tuning = options.tuning or default_tuning(facts)
        self.loader = Loader(self.session, self.tuning.interleaved, self.max_binding)
        self.compiler = Compiler(self.session, self.loader, self.tuning, self.max_binding)

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def software(self) -> bool:
        return self.facts.software

    @property
    def memory_limit(self) -> int:
        return self.session.memory.limit

    @property
    def odd_bits(self) -> bool:
        return self.tuning.odd_bits

    def footprint(
        self, buffers: Sequence[int], weights: Sequence[Value], largest: Program | None, count: int, memory: int
    ) -> int:
        made = [*buffers, *self.loader.buffer_sizes(weights)]
        if largest is not None:
            made += [self.compiler.arena_bytes(largest), *self.compiler.own_bytes(largest) * count]
        return self.session.settled() + sum(map(self.session.memory.rounded, made))

    def expect(self, weights: Sequence[Value], largest: Program) -> None:
        self.loader.expect(weights)
        self.compiler.reserve(largest)

    def zeroed(self, nbytes: int, role: Role) -> Region:
        """Buffers are zeroed when they are made."""
        return self.session.buffer(nbytes, f"a {role}").region(0, -(-nbytes // 16) * 16)

    def free(self, region: Region) -> None:
        self.session.free(region.buffer)

    def upload(self, region: Region, data: memoryview) -> None:
        self.session.write(region, data)

    def download(self, regions: Sequence[Region]) -> Readback:
        return self.session.download(regions)

    def load(self, value: Value, source: WeightSource) -> Weight:
        return self.loader.load(value, source)

    def unload(self, weight: Weight) -> None:
        self.loader.free(weight)

    def compile(self, program: Program, states: Mapping[str, Region], weights: Mapping[str, Weight]) -> Planned:
        return self.compiler.compile(program, states, weights)

    def reached(self) -> int:
        return self.session.timeline.reached()

    async def wait(self, value: int) -> None:
        await self.session.timeline.wait(value)

    def drain(self) -> None:
        """Wait until nothing runs any more, for whatever reason."""
        with suppress(DeviceLost):
            self.session.timeline.drain()

    def close(self) -> None:
        self.closed = True
        self.drain()
        self.session.close()


async def open_wgpu(
    device: str = "",
    *,
    threads: int = 0,
    memory: int = 0,
    exact: bool = False,
    cache_dir: Path | None = None,
) -> WgpuBackend:
    """Open a device by its name. ``threads`` is the driver's own affair, and nothing is kept in ``cache_dir``: WebGPU gives no
    compiled pipelines away. Raises BackendUnavailable."""
    if memory < 0:
        raise UsageError(f"the wgpu backend was asked for {memory} bytes; give 0 for what the device has")
    options = Options(device, memory=memory, exact=exact)
    return WgpuBackend(options, await in_thread(Live, options))


class WgpuBackend(DeviceBackend[Live]):
    id, title, kinds = "wgpu", "wgpu", KINDS

    def __init__(self, options: Options, live: Live) -> None:
        super().__init__(live, options.exact)
        self._options = options

    def _reopen(self) -> Live:
        return Live(self._options)
