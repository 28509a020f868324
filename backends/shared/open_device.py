"""What every open device is made of, whatever its API: the session, the loader, the compiler, how they are asked, and what is
done once at a first opening."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from pie_edge.backend import Stop, WeightSource
from pie_edge.backends.shared import examined, tune
from pie_edge.backends.shared.device_backend import DeviceBackend, LiveT, open_live
from pie_edge.backends.shared.examination import Paper, paper
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.region import Region
from pie_edge.backends.shared.remembered import Record
from pie_edge.backends.shared.trial import Bench
from pie_edge.backends.shared.weights import Weight, supports
from pie_edge.errors import BackendUnavailable, DeviceLost, UsageError
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program, Role, Value

T = TypeVar("T")
"""A backend's tuning."""


@dataclass(frozen=True)
class Options:
    """How a device is opened; 0 and "" leave it to the device. ``max_binding`` caps what the device says of itself."""

    device: str = ""
    memory: int = 0
    exact: bool = False
    cache_dir: Path | None = None
    tuning: Any = None
    """The backend's own, or None for what was measured or what is usual."""
    max_binding: int = 0
    self_test: bool = False
    """Run every kernel once, unless they passed here before."""
    tune: bool = False
    """Measure the variants of the hot kernels, briefly, unless that was done here before."""
    progress: Callable[[int, int, str], None] = lambda done, total, what: None
    """Told of what is done at a first opening alone, and takes seconds."""


class Named:
    """What a device says of itself. Each API has facts of its own."""

    title: str
    """What the API is called."""
    facts: Any
    closed = False

    @property
    def name(self) -> str:
        return str(self.facts.name)

    @property
    def driver(self) -> str:
        """Which one serves it."""
        return str(self.facts.driver)

    @property
    def software(self) -> bool:
        return bool(self.facts.software)

    @property
    def scarce(self) -> str:
        """See ``Limits``."""
        return ""

    @property
    def lost(self) -> bool:
        """See ``device_backend.Live``."""
        return False

    def tuned(
        self, options: Options, record: Record, found: T | None, measured: Callable[[], T], keep: Callable[[T], None]
    ) -> T | None:
        """``found``, which was measured on this device before, or, for a first load, what is ``measured`` in a second or two
        now, and kept as ``record``. Software is not measured unless it is asked for: its defaults were, and its compiler takes
        longer than what there is to win."""
        if found is None and options.tune and options.cache_dir is not None and not self.software:
            kernels = f"{self.title}'s kernels on {self.name} ({record.how_often()})"
            options.progress(0, 0, f"measuring variants of {kernels}")
            found = measured()
            keep(found)
        return found


class OpenDevice(Named):
    """The part of ``device_backend.Live`` that the APIs have in common, made on a bench."""

    def __init__(self, bench: Bench, options: Options) -> None:
        self.session = bench.session
        self.max_binding = bench.max_binding
        self._known = options.tuning or tune.remembered(bench, options.cache_dir)
        self._use(bench, self._known or bench.default)

    def _use(self, bench: Bench, tuning: Any) -> None:
        self.tuning = tuning
        self.loader: Loader[Any] = Loader(bench.session, tuning.interleaved, bench.max_binding)
        self.compiler = bench.compiler(bench.session, self.loader, tuning, bench.max_binding)

    def _use_instead(self, bench: Bench, tuning: Any) -> None:
        """Nothing is loaded or compiled yet that is to stay."""
        self.compiler.close()
        self._use(bench, tuning)

    def zeroed(self, nbytes: int, role: Role) -> Region[Any]:
        region = Region(self.session.device_buffer(nbytes, f"a {role}"), 0, -(-nbytes // 16) * 16)
        self.session.clear(region)
        return region

    def upload(self, region: Region[Any], data: memoryview) -> None:
        self.session.upload(region, data)

    def download(self, regions: Sequence[Region[Any]]) -> Any:
        return self.session.download(regions)

    async def wait(self, value: int) -> None:
        await self.session.timeline.wait(value)

    def close(self) -> None:
        self.closed = True
        self.drain()
        self.session.close()

    def prove(self, bench: Bench, options: Options) -> None:
        """What a first opening does, as far as it is wanted and wasn't done before: run every kernel once, and only then measure
        variants. Raises BackendUnavailable, closed."""
        try:
            self._test(bench, options)
            choices: list[tune.Choice] = []
            measure = partial(tune.tune, bench, tune.SHORT_SECONDS, choices.append)
            settle = partial(self._settle, bench, options, choices)
            self.tuned(options, tune.record(bench.subject, options.cache_dir), self._known, measure, settle)
        except BaseException:
            self.close()
            raise

    def _settle(self, bench: Bench, options: Options, choices: Sequence[tune.Choice], found: Any) -> None:
        """Use what was measured if every kernel is right in these variants as well. It is kept if there was time for all choices:
        else the next opening measures again."""
        usual = self.tuning
        if found != usual:
            self._use_instead(bench, found)
            try:
                self._test(bench, options)
            except BackendUnavailable as error:
                options.progress(0, 0, f"the usual variants are used, for with those measured {error}")
                self._use_instead(bench, usual)
        if all(choice.finished for choice in choices):
            tune.remember(bench.subject, options.cache_dir, self.tuning)

    def _test(self, bench: Bench, options: Options) -> None:
        if not options.self_test:
            return
        passed = Record(bench.subject, options.cache_dir, "passed", f"{self.tuning} {options.exact}")
        papers = partial(self.papers, not options.exact)
        wanted = examined.Test(self.title, self.driver, passed, papers, options.progress, self.session.stop)
        examined.once(self, wanted)

    def papers(self, halves: bool) -> Iterable[Paper]:
        """What it is examined with; ``halves``: keys and values are float16."""
        return [paper(halves)]

    @property
    def memory_limit(self) -> int:
        return int(self.session.memory.limit)

    def supports(self, encoding: Encoding) -> bool:
        return supports(encoding, self.tuning.odd_bits)

    def footprint(
        self, buffers: Sequence[int], weights: Sequence[Value], largest: Program | None, count: int, memory: int
    ) -> int:
        made = [*buffers, *self.loader.buffer_sizes(weights)]
        if largest is not None:
            made += [self.compiler.arena_bytes(largest), *self.compiler.own_bytes(largest) * count]
        return int(self.session.settled(memory) + sum(map(self.session.memory.rounded, made)))

    def expect(self, weights: Sequence[Value], largest: Program) -> None:
        self.loader.expect(weights)
        self.compiler.reserve(largest)

    def free(self, region: Region[Any]) -> None:
        self.session.free(region.buffer)

    def load(self, value: Value, source: WeightSource, stop: Stop) -> Weight:
        weight: Weight = self.loader.load(value, source, stop)
        return weight

    def unload(self, weight: Weight) -> None:
        self.loader.free(weight)

    def compile(self, program: Program, states: Mapping[str, Region[Any]], weights: Mapping[str, Weight]) -> Any:
        return self.compiler.compile(program, states, weights)

    def reached(self) -> int:
        return int(self.session.timeline.reached())

    def drain(self) -> None:
        """Wait until nothing runs any more, for whatever reason."""
        with suppress(DeviceLost):
            self.session.timeline.drain()


class OpenedBackend(DeviceBackend[LiveT]):
    """A backend whose device is one of ``OpenDevice``. Where ``reopens`` is false a lost one stays lost."""

    options: type[Options] = Options
    opens: Callable[..., LiveT]
    """The class of its device, made of options, unless it is given up."""
    reopens = True

    def __init__(self, options: Options, live: LiveT) -> None:
        reopen = partial(self.opens, options) if self.reopens else None
        super().__init__(live, options.exact, options.progress, reopen)

    @classmethod
    async def opened(
        cls,
        device: str = "",
        *,
        threads: int = 0,
        memory: int = 0,
        exact: bool = False,
        cache_dir: Path | None = None,
        tune: bool = True,
        progress: Callable[[int, int, str], None] = lambda done, total, what: None,
    ) -> Self:
        """Open a device by its name. ``threads`` is the driver's own affair. Variants, the self-test's result, and what is
        compiled for the device, if the API gives that away, are kept in ``cache_dir``. ``tune`` lets a first load measure
        variants. ``progress`` is told of what a first opening does. Raises BackendUnavailable."""
        if memory < 0:
            raise UsageError(f"the {cls.title} backend was asked for {memory} bytes; give 0 for what the device has")
        options = cls.options(
            device, memory=memory, exact=exact, cache_dir=cache_dir, self_test=True, tune=tune, progress=progress
        )
        return cls(options, await open_live(partial(cls.opens, options)))
