"""The Backend protocol on Vulkan: weights and states on the device, Programs recorded once, a step one submit."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from pie_edge.backend import Stop
from pie_edge.backends.shared.open_device import OpenDevice, OpenedBackend, Options
from pie_edge.backends.vulkan import tune
from pie_edge.backends.vulkan.device import Facts, open_gpu
from pie_edge.backends.vulkan.lower import KINDS
from pie_edge.backends.vulkan.session import Session
from pie_edge.backends.vulkan.waiting import Waiter
from pie_edge.errors import DeviceLost

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
        self.prove(bench, options)

    async def wait(self, value: int) -> None:
        await self.waiter.wait(value)

    def close(self) -> None:
        self.closed = True
        self.waiter.close()
        self.drain()
        with suppress(DeviceLost):
            self.session.pipelines.save()
        self.session.close()


class VulkanBackend(OpenedBackend[Live]):
    id, title, kinds = "vulkan", "Vulkan", KINDS
    opens = Live


open_vulkan = VulkanBackend.opened
