"""The Backend protocol on MLX: weights and states are its arrays, a run is one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakSet

import mlx.core as mx
import numpy as np

from pie_edge.backend import Stop, WeightSource
from pie_edge.backends.metal import device, tune
from pie_edge.backends.metal.device import Facts, Mode
from pie_edge.backends.metal.epilogues.on_device import DeviceEpilogue
from pie_edge.backends.metal.epilogues.on_host import HostedEpilogue
from pie_edge.backends.metal.examination import papers
from pie_edge.backends.metal.launch import Launcher, on_metal
from pie_edge.backends.metal.memory import Cell, Ledger, Region
from pie_edge.backends.metal.model import Model
from pie_edge.backends.metal.ops import KINDS
from pie_edge.backends.metal.timeline import Flight, Timeline
from pie_edge.backends.metal.tuning import Tuning, widened_bytes
from pie_edge.backends.metal.weights import Loader, Weight, supports, weight_bytes
from pie_edge.backends.shared import examined, open_device
from pie_edge.backends.shared import region as shared
from pie_edge.backends.shared.open_device import OpenedBackend
from pie_edge.backends.shared.remembered import Record
from pie_edge.program.encodings import Encoding
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Program, Role, Value
from pie_edge.program.plan import arena

__all__ = ["MetalBackend", "Options", "open_metal"]


@dataclass(frozen=True)
class Options(open_device.Options):
    """A device binds whatever it holds: ``max_binding`` caps nothing."""

    mode: Mode | None = None
    """How ops are run; None for what the device can."""
    launcher: Launcher = on_metal
    """Of kernels by hand."""


class Live(open_device.Named):
    """What an open device consists of; it dies when the device is lost. See ``device_backend.Live``."""

    title = "Metal"
    facts: Facts

    def __init__(self, options: Options, stop: Stop | None = None) -> None:
        """Raises BackendUnavailable."""
        self.facts = device.chosen(options.device)
        if options.exact:
            device.want_whole_floats()
        self.mode = options.mode or (Mode.KERNELS if self.facts.gpu else Mode.OPS)
        limit = min(options.memory or self.facts.memory, self.facts.memory)
        self.ledger = Ledger(
            self.facts.name, limit, min(self.facts.largest, limit), device.more_memory(self.facts, limit)
        )
        self.timeline = Timeline(partial(device.enter, self.facts, limit))
        self._launcher = options.launcher
        self._cells: WeakSet[Cell] = WeakSet()
        self._models: WeakSet[Model] = WeakSet()
        self.loader = Loader(self.ledger, self.mode)
        try:
            if options.exact:
                self.timeline.call(lambda: device.check_whole_floats(self.facts))
            self.tuning = options.tuning or self._measured(options, stop or Stop()) or Tuning()
            if options.self_test:
                examined.once(self, self._test(options, stop or Stop()))
        except BaseException:
            self.close()
            raise

    def _test(self, options: Options, stop: Stop) -> examined.Test:
        """How ops are run is part of what is remembered."""
        facts, halves = self.facts, not options.exact
        passed = Record(tune.subject(facts), options.cache_dir, "passed", f"{self.mode} {self.tuning} {halves}")
        return examined.Test(self.title, self.driver, passed, partial(papers, halves), options.progress, stop)

    def _measured(self, options: Options, stop: Stop) -> Tuning | None:
        before, record = tune.remembered(self.facts, options.cache_dir), tune.record(self.facts, options.cache_dir)
        measure = partial(self.timeline.call, lambda: tune.measured(stop.look, lambda line: None))
        return self.tuned(options, record, before, measure, lambda found: record.write(found.document()))

    @property
    def lost(self) -> bool:
        return self.timeline.failed is not None

    @property
    def memory_limit(self) -> int:
        return self.ledger.limit

    @property
    def max_binding(self) -> int:
        return self.ledger.largest

    def supports(self, encoding: Encoding) -> bool:
        return supports(encoding)

    def footprint(
        self, buffers: Sequence[int], weights: Sequence[Value], largest: Program | None, count: int, memory: int
    ) -> int:
        """Temporaries are MLX's own affair, which keeps those of one run while it computes: as many as the ops that are alive at
        once need, of two runs, and what a dense matrix is made before its product. A compiled Program has nothing for itself."""
        made = [*buffers, *(weight_bytes(value, self.mode) for value in weights)]
        if self.mode is Mode.KERNELS:
            made.append(widened_bytes(weights))
        if largest is not None:
            made += [2 * arena(largest).nbytes, *(value.nbytes for value in largest.by_role(Role.OUTPUT))]
        return self.ledger.used + sum(made)

    def expect(self, weights: Sequence[Value], largest: Program) -> None:
        """Every array is allocated by itself: there is nothing to prepare."""

    def zeroed(self, nbytes: int, role: Role) -> Region:
        def made() -> Cell:
            # In its turn: what was freed before is given back by then.
            self.ledger.take(nbytes, f"a {role}")
            try:
                cell = Cell(nbytes)
            except BaseException:
                self.ledger.give_back(nbytes)
                raise
            self._cells.add(cell)
            return cell

        return shared.Region(self.timeline.call(made), 0, nbytes)

    def free(self, region: Region) -> None:
        """After the runs before it."""
        cell, nbytes = region.buffer, region.nbytes

        def forget() -> None:
            cell.drop()
            self.ledger.give_back(nbytes)

        self.timeline.do(forget)

    def upload(self, region: Region, data: memoryview) -> None:
        copied = np.frombuffer(bytes(data), np.uint8)

        def write() -> None:
            region.buffer.bytes()[region.offset : region.end] = copied

        self.timeline.do(write)

    def download(self, regions: Sequence[Region]) -> Download:
        def copy() -> dict[str, memoryview]:
            parts = (region.buffer.bytes()[region.offset : region.end].tobytes() for region in regions)
            return {str(number): memoryview(part) for number, part in enumerate(parts)}

        return Download(self.timeline.read(copy))

    def load(self, value: Value, source: WeightSource, stop: Stop) -> Weight:
        return self.timeline.call(lambda: self.loader.load(value, source, stop))

    def unload(self, weight: Weight) -> None:
        self.timeline.do(lambda: self.loader.free(weight))

    def compile(
        self, program: Program, states: Mapping[str, Region], weights: Mapping[str, Weight]
    ) -> Model | HostedEpilogue | DeviceEpilogue:
        """Raises Unsupported for an epilogue's node that isn't known."""
        cells = {name: region.buffer for name, region in states.items()}
        if any(op.kind.startswith(PREFIX) for op in program.ops):
            if self.mode is Mode.KERNELS:
                on_device = DeviceEpilogue(self.timeline, self._launcher, self.tuning, program, cells)
                if on_device.fits:
                    return on_device
            return HostedEpilogue(self.timeline, program, cells)
        model = Model(self.timeline, program, self.mode, self._launcher, self.tuning, cells, weights)
        self._models.add(model)
        return model

    def reached(self) -> int:
        return self.timeline.reached()

    async def wait(self, value: int) -> None:
        await self.timeline.wait(value)

    def drain(self) -> None:
        self.timeline.drain()

    def close(self) -> None:
        """What was on it is given back at once, whoever still has a state or a Program of it: after a loss the same is loaded
        anew before they let go."""
        self.closed = True
        self.timeline.do(self._drop)
        self.timeline.close()

    def _drop(self) -> None:
        for cell in list(self._cells):
            cell.drop()
        for model in list(self._models):
            model.drop()
        mx.clear_cache()


@dataclass(frozen=True)
class Download:
    """Pieces of states, by number, as they were when it was their turn."""

    flight: Flight

    @property
    def value(self) -> int:
        return self.flight.value

    def outputs(self) -> dict[str, memoryview]:
        return self.flight.result()


class MetalBackend(OpenedBackend[Live]):
    id, title, kinds = "metal", "Metal", KINDS
    opens, options = Live, Options


open_metal = MetalBackend.opened
