"""The Backend protocol on Vulkan: weights and states on the device, Programs recorded once, a step one submit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pie_edge.backend import in_thread
from pie_edge.backends.shared.device_backend import DeviceBackend
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.open_device import OpenDevice
from pie_edge.backends.vulkan import selftest, tune
from pie_edge.backends.vulkan.compiler import Compiler
from pie_edge.backends.vulkan.device import Facts, open_gpu
from pie_edge.backends.vulkan.download import Download
from pie_edge.backends.vulkan.lower import KINDS
from pie_edge.backends.vulkan.memory import Buffer, Region
from pie_edge.backends.vulkan.remembered import Passed
from pie_edge.backends.vulkan.session import Session
from pie_edge.backends.vulkan.tuning import Tuning, default_tuning
from pie_edge.backends.vulkan.waiting import Waiter
from pie_edge.errors import DeviceLost, UsageError
from pie_edge.program.ops import Role

__all__ = ["Options", "VulkanBackend", "open_vulkan"]


@dataclass(frozen=True)
class Options:
    """How a device is opened; 0 and "" leave it to the device. ``max_binding`` caps what the device says of itself."""

    device: str = ""
    memory: int = 0
    exact: bool = False
    cache_dir: Path | None = None
    tuning: Tuning | None = None
    max_binding: int = 0
    self_test: bool = False
    """Run every kernel once, unless they passed here before."""
    tune: bool = False
    """Measure the variants of the hot kernels, briefly, unless that was done here before."""
    progress: Callable[[int, int, str], None] = lambda done, total, what: None
    """Told of what is done at a first opening alone, and takes seconds."""


class Live(OpenDevice):
    """What an open device consists of; it dies when the device is lost."""

    def __init__(self, options: Options) -> None:
        gpu = open_gpu(options.device)
        if options.max_binding:
            gpu = replace(gpu, facts=replace(gpu.facts, max_binding=min(options.max_binding, gpu.facts.max_binding)))
        facts = gpu.facts
        memory = min(options.memory or facts.memory, facts.memory)
        self.facts: Facts = facts
        self.session: Session = Session(gpu, memory, options.cache_dir)
        self.tuning: Tuning = options.tuning or self._tuned(options)
        self.loader: Loader[Buffer] = Loader(self.session, self.tuning.interleaved, facts.max_binding)
        self.compiler: Compiler = Compiler(self.session, self.loader, self.tuning, facts.max_binding)
        self.waiter = Waiter(self.session.timeline)
        self._passed = Passed(gpu.facts, self.tuning, options.exact, options.cache_dir)
        if options.self_test and not self._passed.before():
            try:
                options.progress(0, 0, f"testing Vulkan's kernels on {facts.name} (once)")
                selftest.check(facts.name, facts.driver, not options.exact, self._examine)
            except BaseException:
                self.close()
                raise
            self._passed.remember()

    def _tuned(self, options: Options) -> Tuning:
        """What was measured on this device before or, for a first load, in a second or two now. Software is not measured
        unless it is asked for: its defaults were, and its compiler takes longer than what there is to win."""
        found = tune.remembered(self.facts, options.cache_dir)
        default = found or default_tuning(self.facts)
        if found is None and options.tune and options.cache_dir is not None and not self.facts.software:
            options.progress(0, 0, f"measuring variants of Vulkan's kernels on {self.facts.name} (once)")
            default = tune.tune(self.session, default, tune.SHORT_SECONDS)
            tune.remember(self.facts, options.cache_dir, default)
        return default

    def _examine(self, exam: selftest.Examination) -> Mapping[str, memoryview]:
        states = {}
        for name, array in exam.states.items():
            region = self.session.device_buffer(array.nbytes, "the self-test").region()
            self.session.upload(region, memoryview(array.tobytes()))
            states[name] = region
        values = exam.program.values
        weights = {name: self.loader.load(values[name], source) for name, source in exam.sources.items()}
        recorded = self.compiler.compile(exam.program, states, weights)
        flight = recorded.run({"step": exam.block})
        self.session.timeline.wait(flight.value)
        outputs = recorded.outputs(flight)
        for region in states.values():
            self.session.free(region.buffer)
        for weight in weights.values():
            self.loader.free(weight)
        return outputs

    @property
    def max_binding(self) -> int:
        return self.facts.max_binding

    def zeroed(self, nbytes: int, role: Role) -> Region:
        region = self.session.device_buffer(nbytes, f"a {role}").region(0, -(-nbytes // 16) * 16)
        self.session.clear(region)
        return region

    def upload(self, region: Region, data: memoryview) -> None:
        self.session.upload(region, data)

    def download(self, regions: Sequence[Region]) -> Download:
        return Download(self.session, regions)

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
    return VulkanBackend(options, await in_thread(Live, options))


class VulkanBackend(DeviceBackend[Live]):
    id, title, kinds = "vulkan", "Vulkan", KINDS

    def __init__(self, options: Options, live: Live) -> None:
        super().__init__(live, options.exact)
        self._options = options

    def _reopen(self) -> Live:
        return Live(self._options)
