"""The Backend protocol on Vulkan: weights and states on the device, Programs recorded once, a step one submit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from pie_edge.backend import Stop
from pie_edge.backends.shared.device_backend import DeviceBackend, open_live
from pie_edge.backends.shared.open_device import OpenDevice, Options
from pie_edge.backends.vulkan import tune
from pie_edge.backends.vulkan.device import Facts, open_gpu
from pie_edge.backends.vulkan.lower import KINDS
from pie_edge.backends.vulkan.session import Session
from pie_edge.backends.vulkan.waiting import Waiter
from pie_edge.errors import DeviceLost, UsageError

__all__ = ["Options", "VulkanBackend", "open_vulkan"]


class Live(OpenDevice):
    """What an open device consists of; it dies when the device is lost."""

    title = "Vulkan"
    facts: Facts
    session: Session

    def __init__(self, options: Options, stop: Stop | None = None) -> None:
        gpu = open_gpu(options.device)
        if options.max_binding:
            gpu = replace(gpu, facts=replace(gpu.facts, max_binding=min(options.max_binding, gpu.facts.max_binding)))
        self.facts = gpu.facts
        memory = min(options.memory or gpu.facts.memory, gpu.facts.memory)
        bench = tune.bench(Session(gpu, memory, options.cache_dir, stop))
        super().__init__(bench, options)
        self.waiter = Waiter(self.session.timeline)
        self.test(bench, options)

    async def wait(self, value: int) -> None:
        await self.waiter.wait(value)

    def close(self) -> None:
        self.closed = True
        self.waiter.close()
        self.drain()
        with suppress(DeviceLost):
            self.session.pipelines.save()
        self.session.close()


async def open_vulkan(
    device: str = "",
    *,
    threads: int = 0,
    memory: int = 0,
    exact: bool = False,
    cache_dir: Path | None = None,
    tune: bool = True,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> VulkanBackend:
    """Open a device by its name. ``threads`` is the driver's own affair. Pipelines, variants and the self-test's result are
    kept in ``cache_dir``; ``tune`` lets a first load measure variants. ``progress`` is told of what a first opening does.
    Raises BackendUnavailable."""
    if memory < 0:
        raise UsageError(f"the Vulkan backend was asked for {memory} bytes; give 0 for what the device has")
    options = Options(
        device, memory=memory, exact=exact, cache_dir=cache_dir, self_test=True, tune=tune, progress=progress
    )
    return VulkanBackend(options, await open_live(partial(Live, options)))


class VulkanBackend(DeviceBackend[Live]):
    id, title, kinds = "vulkan", "Vulkan", KINDS

    def __init__(self, options: Options, live: Live) -> None:
        super().__init__(live, options.exact, options.progress, partial(Live, options))
