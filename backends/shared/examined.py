"""Every kernel of an open device once against stored answers, when it is opened for the first time with this driver and these
kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from pie_edge.backend import Stop, WeightSource
from pie_edge.backends.shared import examination
from pie_edge.backends.shared.examination import Paper
from pie_edge.backends.shared.region import Region
from pie_edge.backends.shared.remembered import Record
from pie_edge.backends.shared.selftest import Examination
from pie_edge.program.ops import Program, Role, Value


class Examined(Protocol):
    """What of an open device is examined: see ``device_backend.Live``. What it compiles runs slowly, too."""

    @property
    def name(self) -> str: ...

    def zeroed(self, nbytes: int, role: Role) -> Region[Any]: ...

    def upload(self, region: Region[Any], data: memoryview) -> None: ...

    def free(self, region: Region[Any]) -> None: ...

    def load(self, value: Value, source: WeightSource, stop: Stop) -> Any: ...

    def unload(self, weight: Any) -> None: ...

    def download(self, regions: Sequence[Region[Any]]) -> Any: ...

    def drain(self) -> None: ...

    def compile(self, program: Program, states: Mapping[str, Any], weights: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Test:
    title: str
    """What the API is called."""
    driver: str
    passed: Record
    papers: Callable[[], Iterable[Paper]]
    progress: Callable[[int, int, str], None]
    stop: Stop


def once(live: Examined, test: Test) -> None:
    """Unless it passed here before. Raises BackendUnavailable naming the first kernel that computes wrong."""
    if (test.passed.read() or {}).get("passed") is True:
        return
    for paper in test.papers():
        _pass(live, test, paper)
    test.passed.write({"passed": True})


def _pass(live: Examined, test: Test, paper: Paper) -> None:
    what = f"testing {test.title}'s {paper.what} on {live.name} ({test.passed.how_often()})"
    test.progress(0, 0, what)
    run = partial(_answers, live, test.stop, lambda done, total: test.progress(done, total, what))
    examination.check(test.title, live.name, test.driver, paper, run)


def _answers(
    live: Examined, stop: Stop, told: Callable[[int, int], None], exam: Examination
) -> Mapping[str, memoryview]:
    """Kernel by kernel, for a driver may compile each when it first runs: ``told`` hears how far it is, and whoever gives it up
    doesn't wait for the rest."""
    states = {name: live.zeroed(array.nbytes, Role.STATE) for name, array in exam.states.items()}
    for name, region in states.items():
        live.upload(region.part(0, exam.states[name].nbytes), memoryview(exam.states[name].tobytes()))
    values = exam.program.values
    weights = {}
    for name, source in exam.sources.items():
        stop.look()
        weights[name] = live.load(values[name], source, stop)
    recorded = live.compile(exam.program, states, weights)

    def between(done: int, total: int) -> None:
        stop.look()
        told(done, total)

    flight = recorded.run_slowly(exam.inputs, between)
    outputs: Mapping[str, memoryview] = recorded.outputs(flight) | _kept(live, exam, states)
    for region in states.values():
        live.free(region)
    for weight in weights.values():
        live.unload(weight)
    return outputs


def _kept(live: Examined, exam: Examination, states: Mapping[str, Region[Any]]) -> dict[str, memoryview]:
    """The states that are looked at, too."""
    if not exam.kept:
        return {}
    arrays = [exam.states[name] for name in exam.kept]
    flight = live.download([states[name].part(0, a.nbytes) for name, a in zip(exam.kept, arrays, strict=True)])
    live.drain()
    found = flight.outputs().values()
    return {
        name: memoryview(np.frombuffer(data, a.dtype)) for name, a, data in zip(exam.kept, arrays, found, strict=True)
    }
