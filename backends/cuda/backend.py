"""The Backend protocol on CUDA: weights and states on the card, Programs captured as graphs, a step one graph launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pie_edge.backend import BytesLike, Stop
from pie_edge.backends.cuda import examination, nvrtc, ranges, tune
from pie_edge.backends.cuda.api import Driver
from pie_edge.backends.cuda.device import Gpu
from pie_edge.backends.cuda.executable import PinnedSlot
from pie_edge.backends.cuda.lower import KINDS
from pie_edge.backends.cuda.session import Compile, Session
from pie_edge.backends.cuda.together import Together
from pie_edge.backends.shared import open_device
from pie_edge.backends.shared.device_backend import DeviceExecutable, DeviceTicket
from pie_edge.backends.shared.examination import Paper
from pie_edge.backends.shared.open_device import OpenDevice, OpenedBackend
from pie_edge.backends.shared.region import Region
from pie_edge.backends.shared.slots import Flight
from pie_edge.backends.shared.weights import Weight
from pie_edge.program.encodings import Affine, Encoding
from pie_edge.program.ops import Program

__all__ = ["CudaBackend", "Options", "open_cuda"]


@dataclass(frozen=True)
class Options(open_device.Options):
    """And what stands in for NVIDIA's software."""

    library: str = ""
    """The driver's; "" for the system's."""
    compile_kernels: Compile | None = None
    """In NVRTC's place."""


class Live(OpenDevice):
    """What an open device consists of; it dies when the device is lost."""

    title = "CUDA"

    def __init__(self, options: Options, stop: Stop | None = None) -> None:
        gpu = Gpu(Driver(options.library), options.device)
        self.facts = facts = gpu.facts
        self._exact = options.exact
        memory = min(options.memory or facts.memory, facts.memory)
        compile_kernels = options.compile_kernels or nvrtc.Compiler(facts.architecture, options.cache_dir)
        session = Session(gpu, memory, compile_kernels, stop)
        bench = tune.bench(session, options.max_binding or tune.ANY)
        super().__init__(bench, options)
        self._nvtx = ranges.marker()
        self._together = Together(session)
        self.prove(bench, options)

    def papers(self, halves: bool) -> Iterable[Paper]:
        return [*super().papers(halves), *examination.papers(halves)]

    @property
    def driver(self) -> str:
        return tune.served(self.facts)

    def supports(self, encoding: Encoding) -> bool:
        """In exact mode no codes: beside them a value of x is rounded to 16 bits, so that they are widened to float32 instead."""
        return super().supports(encoding) and not (self._exact and isinstance(encoding, Affine))

    @property
    def scarce(self) -> str:
        return str(self.facts.scarce)

    def compile(self, program: Program, states: Mapping[str, Region[Any]], weights: Mapping[str, Weight]) -> Any:
        recorded = super().compile(program, states, weights)
        return recorded if self._nvtx is None else ranges.Ranged(recorded, program.name, self._nvtx)

    def run_together(self, runs: Sequence[tuple[Any, Mapping[str, BytesLike]]]) -> Sequence[Flight[PinnedSlot]]:
        """Of what was compiled here, with its inputs."""
        return ranges.run_together(self._together.run, runs) if self._nvtx else self._together.run(runs)


class CudaBackend(OpenedBackend[Live]):
    """A card's faults stick to the process, as NVIDIA's driver has it: a lost one isn't opened again."""

    id, title, kinds = "cuda", "CUDA", KINDS
    opens = Live
    options, reopens = Options, False

    def run_together(self, runs: Sequence[tuple[DeviceExecutable, Mapping[str, BytesLike]]]) -> Sequence[DeviceTicket]:
        """See ``pie_edge.backend.Joining``: one graph for all of them, where they come again."""
        live = self._live
        given = [(executable.recorded, inputs) for executable, inputs in runs]
        return self._enqueued([executable for executable, _ in runs], lambda: live.run_together(given))


open_cuda = CudaBackend.opened
