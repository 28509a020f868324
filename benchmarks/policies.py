"""Ways to decide when a step is formed and what is in it: ours, and those it is compared with.

Those that differ in when have our way of what, chunks included; those that differ in what have our when.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.simulation import BUDGET, Policy, Simulation
from pie_edge.control.queue import Work
from pie_edge.control.scheduler import Budget

Selection = tuple[list[Work], Budget]


@dataclass(frozen=True)
class WorkConserving:
    """As the engine decides: at once when the device is idle, and one step always ready behind the running one; a prompt
    beside decodes in chunks that the pace chooses, or of ``chunk`` rows."""

    ahead: bool = False
    chunk: int | None = None

    def hold(self, sim: Simulation) -> float | None:
        return sim.pace.hold(sim.waiting, len(sim.asking), sim.alive, sim.now)

    def select(self, sim: Simulation, heads: list[Work]) -> Selection:
        if self.chunk is None:
            return heads, sim.pace.budget(BUDGET, heads, sim.alive)
        return heads, replace(BUDGET, shared_rows=self.chunk)


@dataclass(frozen=True)
class Eager:
    """One call a step: no batching."""

    ahead: bool = False

    def hold(self, sim: Simulation) -> float | None:
        return 0.0

    def select(self, sim: Simulation, heads: list[Work]) -> Selection:
        return heads[:1], BUDGET


@dataclass(frozen=True)
class FixedSize:
    """A step when ``size`` calls wait, or as many as there are inferlets."""

    size: int
    ahead: bool = False

    def hold(self, sim: Simulation) -> float | None:
        return 0.0 if len(sim.waiting) >= min(self.size, len(sim.alive)) else None

    def select(self, sim: Simulation, heads: list[Work]) -> Selection:
        limits = replace(BUDGET, sequences=min(self.size, BUDGET.sequences))
        return heads, sim.pace.budget(limits, heads, sim.alive)


@dataclass
class FixedWait:
    """A step ``seconds`` after the first call that it has."""

    seconds: float
    ahead: bool = False
    _since: float | None = None

    def hold(self, sim: Simulation) -> float | None:
        if self._since is None:
            self._since = sim.now
        return max(self._since + self.seconds - sim.now, 0.0)

    def select(self, sim: Simulation, heads: list[Work]) -> Selection:
        self._since = None
        return heads, sim.pace.budget(BUDGET, heads, sim.alive)


@dataclass(frozen=True)
class PrefillFirst(WorkConserving):
    """Prompts alone, and whole, whenever there is one; else decodes."""

    def select(self, sim: Simulation, heads: list[Work]) -> Selection:
        prompts = [work for work in heads if work.remaining > 1]
        return prompts or heads, replace(BUDGET, shared_rows=BUDGET.rows)


@dataclass(frozen=True)
class DecodeFirst(WorkConserving):
    """Single tokens alone whenever there is one; prompts when nobody decodes."""

    def select(self, sim: Simulation, heads: list[Work]) -> Selection:
        singles = [work for work in heads if work.remaining == 1]
        return singles or heads, replace(BUDGET, shared_rows=BUDGET.rows)


OURS: Policy = WorkConserving(ahead=True)
