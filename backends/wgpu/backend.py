"""The Backend protocol on wgpu: weights and states on the device, Programs planned once, a step one submit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pie_edge.backend import Stop
from pie_edge.backends.shared.device_backend import DeviceBackend, open_live
from pie_edge.backends.shared.open_device import OpenDevice, Options
from pie_edge.backends.wgpu import tune
from pie_edge.backends.wgpu.device import Facts, open_device
from pie_edge.backends.wgpu.lower import KINDS
from pie_edge.backends.wgpu.memory import Region
from pie_edge.backends.wgpu.session import Session
from pie_edge.errors import UsageError
from pie_edge.program.ops import Role

__all__ = ["Options", "WgpuBackend", "open_wgpu"]


class Live(OpenDevice):
    """What an open device consists of; it dies when the device is lost."""

    title = "wgpu"
    facts: Facts
    session: Session

    def __init__(self, options: Options, stop: Stop | None = None) -> None:
        device, facts = open_device(options.device)
        self.facts = facts
        session = Session(device, facts, min(options.memory or facts.memory, facts.memory), stop)
        bench = tune.bench(session, min(options.max_binding or facts.max_binding, facts.max_binding))
        super().__init__(bench, options)
        self.test(bench, options)

    def zeroed(self, nbytes: int, role: Role) -> Region:
        """Buffers are zeroed when they are made."""
        return self.session.device_buffer(nbytes, f"a {role}").region(0, -(-nbytes // 16) * 16)


async def open_wgpu(
    device: str = "",
    *,
    threads: int = 0,
    memory: int = 0,
    exact: bool = False,
    cache_dir: Path | None = None,
    tune: bool = True,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> WgpuBackend:
    """Open a device by its name. ``threads`` is the driver's own affair. Variants and the self-test's result are kept in
    ``cache_dir``, but no pipelines: WebGPU gives none away. ``tune`` lets a first load measure variants. ``progress`` is told
    of what a first opening does. Raises BackendUnavailable."""
    if memory < 0:
        raise UsageError(f"the wgpu backend was asked for {memory} bytes; give 0 for what the device has")
    options = Options(
        device, memory=memory, exact=exact, cache_dir=cache_dir, self_test=True, tune=tune, progress=progress
    )
    return WgpuBackend(options, await open_live(partial(Live, options)))


class WgpuBackend(DeviceBackend[Live]):
    id, title, kinds = "wgpu", "wgpu", KINDS

    def __init__(self, options: Options, live: Live) -> None:
        super().__init__(live, options.exact, options.progress, partial(Live, options))
