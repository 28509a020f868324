"""The WGSL texts that the wgpu backend makes of Programs: compiled for a device that there is only on paper, so that those of all
variants can be had anywhere, in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from pie_edge.backend import WeightSource
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.shapes import StepShape
from pie_edge.backends.shared.tuning import Tuning
from pie_edge.backends.wgpu.compiler import Compiler
from pie_edge.backends.wgpu.device import Facts
from pie_edge.backends.wgpu.memory import Buffer, Region
from pie_edge.backends.wgpu.plan import Layout
from pie_edge.backends.wgpu.shader import Shader
from pie_edge.backends.wgpu.tuning import default_tuning
from pie_edge.program.ops import Program, Role

_BINDING = 128 << 20


class _Nothing:
    """Stands for every object of the API: it has whatever is asked of it."""

    _internal = None

    def create_bind_group(self, **given: Any) -> _Nothing:
        return self


@dataclass
class _Pipelines:
    """Writes down what it is asked to make."""

    found: dict[tuple[str, Layout], Shader] = field(default_factory=dict)
    params: Any = None

    def pipeline(self, shader: Shader, layout: Layout) -> _Nothing:
        self.found.setdefault((shader.digest, layout), shader)
        return _Nothing()

    def layout(self, layout: Layout) -> None:
        return None


@dataclass
class _PaperSession:
    """What a compiler asks of a session, without a device behind it."""

    facts: Facts
    pipelines: _Pipelines = field(default_factory=_Pipelines)
    device: Any = field(default_factory=_Nothing)
    timeline: Any = field(default_factory=_Nothing)

    def buffer(self, nbytes: int, label: str, *, readback: bool = False) -> Buffer:
        return Buffer(_Nothing(), label, max(-(-nbytes // 16) * 16, 16))

    def device_buffer(self, nbytes: int, what: str) -> Buffer:
        return self.buffer(nbytes, what)

    def free(self, buffer: Buffer) -> None: ...

    def fill(self, region: Region, data: memoryview) -> None: ...

    def upload(self, region: Region, data: Any) -> None: ...


@dataclass(frozen=True)
class Variant:
    """A device that there might be: what it is, and what it has."""

    kind: str
    """CPU, or DiscreteGPU."""
    subgroups: bool
    halves: bool

    @property
    def facts(self) -> Facts:
        features = ("subgroup",) * self.subgroups + ("shader-f16",) * self.halves
        return Facts("paper", "Vulkan", "", self.kind, 4 << 30, 1 << 30, _BINDING, (), features)

    @property
    def tuning(self) -> Tuning:
        """Halves where the device has them, also where they are slower than words."""
        return replace(default_tuning(self.facts), half_floats=self.halves)


VARIANTS = tuple(Variant(*each) for each in product(("CPU", "DiscreteGPU"), (True, False), (True, False)))


class Collector:
    """Compiles Programs for one variant. ``shaders`` are what a device would have been given, each with its layout of group 0."""

    def __init__(self, variant: Variant) -> None:
        self.tuning = variant.tuning
        self._session: Any = _PaperSession(variant.facts)
        self._loader = Loader[Buffer](self._session, self.tuning.interleaved, _BINDING)
        self._compiler = Compiler(self._session, self._loader, self.tuning, _BINDING)

    @property
    def shaders(self) -> Mapping[tuple[str, Layout], Shader]:
        found: Mapping[tuple[str, Layout], Shader] = self._session.pipelines.found
        return found

    def compile(self, program: Program, sources: Mapping[str, WeightSource]) -> None:
        """For every shape that a step may have."""
        states = {v.name: self._session.buffer(v.nbytes, v.name).region() for v in program.by_role(Role.STATE)}
        weights = {v.name: self._loader.load(v, sources[v.name]) for v in program.by_role(Role.WEIGHT)}
        planned = self._compiler.compile(program, states, weights)
        if "token_src" in program.values:
            planned.prepare(list(self._shapes(program)))

    def _shapes(self, program: Program) -> Iterator[StepShape]:
        most = program.values["token_src"].shape[0]
        tokens: Sequence[int] = sorted({self.tuning.tokens(rows) for rows in range(1, most + 1)})
        attends = any(op.kind == "attention" for op in program.ops)
        kinds = ((True, False, False), (True, True, True), (False, True, True)) if attends else ((True, True, True),)
        for rows, (singles, several, splits) in product(tokens, kinds):
            yield StepShape(rows, min(rows, tokens[-1]), singles=singles, several=several, splits=splits)
