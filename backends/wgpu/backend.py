"""The Backend protocol on wgpu: weights and states on the device, Programs planned once, a step one submit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pie_edge.backend import in_thread
from pie_edge.backends.shared.device_backend import DeviceBackend
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.open_device import OpenDevice
from pie_edge.backends.wgpu.compiler import Compiler
from pie_edge.backends.wgpu.device import Facts, open_device
from pie_edge.backends.wgpu.lower import KINDS
from pie_edge.backends.wgpu.memory import Buffer, Region
from pie_edge.backends.wgpu.session import Readback, Session
from pie_edge.backends.wgpu.tuning import Tuning, default_tuning
from pie_edge.errors import UsageError
from pie_edge.program.ops import Role

__all__ = ["Options", "WgpuBackend", "open_wgpu"]


@dataclass(frozen=True)
class Options:
    """How a device is opened; 0 and "" leave it to the device. ``max_binding`` caps what the device says of itself."""

    device: str = ""
    memory: int = 0
    exact: bool = False
    tuning: Tuning | None = None
    max_binding: int = 0


class Live(OpenDevice):
    """What an open device consists of; it dies when the device is lost."""

    def __init__(self, options: Options) -> None:
        device, facts = open_device(options.device)
        self.facts: Facts = facts
        self.max_binding = min(options.max_binding or facts.max_binding, facts.max_binding)
        memory = min(options.memory or facts.memory, facts.memory)
        self.session: Session = Session(device, facts, memory)
        self.tuning: Tuning = options.tuning or default_tuning(facts)
        self.loader: Loader[Buffer] = Loader(self.session, self.tuning.interleaved, self.max_binding)
        self.compiler: Compiler = Compiler(self.session, self.loader, self.tuning, self.max_binding)

    def zeroed(self, nbytes: int, role: Role) -> Region:
        """Buffers are zeroed when they are made."""
        return self.session.buffer(nbytes, f"a {role}").region(0, -(-nbytes // 16) * 16)

    def upload(self, region: Region, data: memoryview) -> None:
        self.session.write(region, data)

    def download(self, regions: Sequence[Region]) -> Readback:
        return self.session.download(regions)

    async def wait(self, value: int) -> None:
        await self.session.timeline.wait(value)

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
