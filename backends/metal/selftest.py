"""Every op once against a stored answer, when a device is opened for the first time with this MLX and these kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from pie_edge.backend import Stop, WeightSource
from pie_edge.backends.metal.device import Facts
from pie_edge.backends.metal.launch import FOLDER
from pie_edge.backends.metal.memory import Region
from pie_edge.backends.shared import examination
from pie_edge.backends.shared.remembered import Record, Subject
from pie_edge.backends.shared.selftest import Examination
from pie_edge.program.ops import Program, Role, Value


class Examined(Protocol):
    """What of an open device is examined."""

    facts: Facts

    def zeroed(self, nbytes: int, role: Role) -> Region: ...
    def upload(self, region: Region, data: memoryview) -> None: ...
    def free(self, region: Region) -> None: ...
    def load(self, value: Value, source: WeightSource, stop: Stop) -> Any: ...
    def unload(self, weight: Any) -> None: ...
    def compile(self, program: Program, states: Mapping[str, Region], weights: Mapping[str, Any]) -> Any: ...
    def drain(self) -> None: ...


def once(
    live: Examined, how: str, halves: bool, folder: Path | None, progress: Callable[[int, int, str], None], stop: Stop
) -> None:
    """Unless it passed here before. ``how`` ops are run is part of what is remembered. Raises BackendUnavailable naming the first
    op that computes wrong."""
    facts = live.facts
    subject = Subject("metal", facts.name, facts.driver, digest())
    passed = Record(subject, folder, "passed", f"{how} {halves}")
    if (passed.read() or {}).get("passed") is True:
        return
    what = f"testing Metal's kernels on {facts.name} (once)"
    progress(0, 0, what)
    examination.check("Metal", facts.name, facts.driver, halves, lambda exam: _outputs(live, exam, stop))
    progress(1, 1, what)
    passed.write({"passed": True})


def _outputs(live: Examined, exam: Examination, stop: Stop) -> Mapping[str, memoryview]:
    states = {name: live.zeroed(array.nbytes, Role.STATE) for name, array in exam.states.items()}
    for name, region in states.items():
        live.upload(region, memoryview(exam.states[name].tobytes()))
    values = exam.program.values
    weights = {name: live.load(values[name], source, stop) for name, source in exam.sources.items()}
    compiled = live.compile(exam.program, states, weights)
    flight = compiled.run({"step": exam.block})
    live.drain()
    found: Mapping[str, memoryview] = compiled.outputs(flight)
    for region in states.values():
        live.free(region)
    for weight in weights.values():
        live.unload(weight)
    return found


@cache
def digest() -> str:
    """Of the kernels, and of how ops are made of MLX's."""
    files = sorted((*FOLDER.iterdir(), *FOLDER.with_name("ops").glob("*.py")))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files if file.is_file())).hexdigest()
