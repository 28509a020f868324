"""The Backend protocol on CUDA: weights and states on the card, Programs captured as graphs, a step one graph launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pie_edge.backend import Stop
from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.api import Driver
from pie_edge.backends.cuda.compiler import Compiler
from pie_edge.backends.cuda.device import Facts, Gpu
from pie_edge.backends.cuda.lower import KINDS
from pie_edge.backends.cuda.memory import Buffer, Region
from pie_edge.backends.cuda.session import Compile, Session
from pie_edge.backends.cuda.tuning import Tuning, default_tuning
from pie_edge.backends.shared import examination
from pie_edge.backends.shared.device_backend import DeviceBackend, open_live
from pie_edge.backends.shared.download import Download
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.open_device import OpenDevice
from pie_edge.backends.shared.remembered import Record, Subject
from pie_edge.errors import DeviceLost, UsageError
from pie_edge.program.ops import Role

__all__ = ["CudaBackend", "Options", "open_cuda"]

_ANY = 1 << 62
"""A kernel sees all of memory."""


@dataclass(frozen=True)
class Options:
    """How a device is opened; 0 and "" leave it to the device."""

    device: str = ""
    memory: int = 0
    exact: bool = False
    cache_dir: Path | None = None
    tuning: Tuning | None = None
    max_binding: int = 0
    """The most of a weight that lies together, 0 for any amount."""
    self_test: bool = False
    """Run every kernel once, unless they passed here before."""
    progress: Callable[[int, int, str], None] = lambda done, total, what: None
    """Told of what is done at a first opening alone, and takes seconds."""
    library: str = ""
    """The driver's; "" for the system's."""
    compile_kernels: Compile | None = None
    """In NVRTC's place."""


class Live(OpenDevice):
    """What an open device consists of; it dies when the device is lost."""

    def __init__(self, options: Options, stop: Stop | None = None) -> None:
        gpu = Gpu(Driver(options.library), options.device)
        facts = gpu.facts
        self.facts: Facts = facts
        self.max_binding = options.max_binding or _ANY
        memory = min(options.memory or facts.memory, facts.memory)
        compile_kernels = options.compile_kernels or nvrtc.Compiler(facts.architecture, options.cache_dir)
        self.session: Session = Session(gpu, memory, compile_kernels, stop)
        self.tuning: Any = options.tuning or default_tuning(facts)
        self.loader: Loader[Buffer] = Loader(self.session, self.tuning.interleaved, self.max_binding)
        self.compiler: Compiler = Compiler(self.session, self.loader, self.tuning, self.max_binding)
        if options.self_test:
            self._test_once(options)

    def _test_once(self, options: Options) -> None:
        """Raises BackendUnavailable naming the first kernel that computes wrong, closed."""
        facts = self.facts
        served = f"for CUDA {facts.driver / 1000:.1f}, NVRTC {'.'.join(map(str, nvrtc.version()))}"
        subject = Subject("cuda", f"{facts.name} sm_{facts.architecture}", served, nvrtc.digest())
        passed = Record(subject, options.cache_dir, "passed", f"{self.tuning} {options.exact}")
        if (passed.read() or {}).get("passed") is True:
            return
        try:
            what = f"compiling and testing CUDA's kernels on {facts.name} (once)"
            options.progress(0, 0, what)
            examine = partial(self._examine, lambda done, total: options.progress(done, total, what))
            examination.check("CUDA", facts.name, served, not options.exact, examine)
        except BaseException:
            self.close()
            raise
        passed.write({"passed": True})

    def zeroed(self, nbytes: int, role: Role) -> Region:
        region = self.session.device_buffer(nbytes, f"a {role}").region(0, -(-nbytes // 16) * 16)
        self.session.clear(region)
        return region

    def upload(self, region: Region, data: memoryview) -> None:
        self.session.upload(region, data)

    def download(self, regions: Sequence[Region]) -> Download:
        return self.session.download(regions)

    async def wait(self, value: int) -> None:
        await self.session.timeline.wait(value)

    def close(self) -> None:
        self.closed = True
        with suppress(DeviceLost):
            self.session.timeline.drain()
        self.session.close()


async def open_cuda(
    device: str = "",
    *,
    threads: int = 0,
    memory: int = 0,
    exact: bool = False,
    cache_dir: Path | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> CudaBackend:
    """Open a device by its name. ``threads`` is the driver's own affair; compiled kernels and the self-test's
    result are kept in ``cache_dir``. ``progress`` is told of what a first opening does. Raises BackendUnavailable."""
    if memory < 0:
        raise UsageError(f"the CUDA backend was asked for {memory} bytes; give 0 for what the device has")
    options = Options(device, memory=memory, exact=exact, cache_dir=cache_dir, self_test=True, progress=progress)
    return CudaBackend(options, await open_live(partial(Live, options)))


class CudaBackend(DeviceBackend[Live]):
    id, title, kinds = "cuda", "CUDA", KINDS

    def __init__(self, options: Options, live: Live) -> None:
        super().__init__(live, options.exact, options.progress)
        self._options = options

    def _reopen(self, stop: Stop) -> Live:
        return Live(self._options, stop)
