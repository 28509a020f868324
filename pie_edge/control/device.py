"""A model on a backend: its weights and caches there, its Programs by bucket, its epilogues by digest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pie_edge.backend import Backend, Executable, Ticket, WeightSource
from pie_edge.control import epilogues
from pie_edge.control.batch import Batch, Readout, bucket_for
from pie_edge.control.epilogues import Group, words
from pie_edge.control.pages import Copy
from pie_edge.control.queue import HostTensor
from pie_edge.errors import OutOfMemory
from pie_edge.model.spec import Cache, Family, Spec
from pie_edge.program.encodings import Encoding, planes
from pie_edge.program.expand import expand
from pie_edge.program.ops import Program, Role, Value
from pie_edge.program.step import Bucket, StepLayout
from pie_edge.program.trace import copy_pages_program

COPIES = 64
"""Pages that one run of the copy Program duplicates."""

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """``kv_memory`` in bytes; ``rows`` is the most tokens of one step, and so the prefill chunk."""

    page_size: int = 16
    kv_memory: int = 512 << 20
    rows: int = 512
    sequences: int = 256
    logits_memory: int = 64 << 20


def plan_cache(spec: Spec, family: Family, backend: Backend, settings: DeviceSettings) -> tuple[Cache, Bucket]:
    """How many pages and logits rows fit the settings, and the largest step."""
    dtype = backend.limits.kv_dtype
    page_bytes = 2 * spec.layers * spec.kv_heads * spec.head_dim * settings.page_size * dtype.nbytes
    pages = 1 + max(settings.kv_memory // page_bytes, 1)
    logit_rows = max(min(settings.logits_memory // (4 * spec.vocabulary), settings.sequences), 1)
    entries = settings.sequences * 4 + 2 * -(-spec.context // settings.page_size)
    cache = Cache(pages, settings.page_size, dtype, logit_rows, token_slots=settings.sequences)
    return cache, Bucket(settings.rows, settings.sequences, logit_rows, entries)


class Device:
    """Made whole by ``open``; ``run`` is the only thing done per step."""

    def __init__(
        self,
        spec: Spec,
        family: Family,
        backend: Backend,
        cache: Cache,
        limit: Bucket,
        encodings: Mapping[str, Encoding],
        buffers: dict[str, Any],
    ) -> None:
        self.cache = cache
        self.limit = limit
        self._spec = spec
        self._family = family
        self._backend = backend
        self._encodings = encodings
        self._buffers = buffers
        self._models: dict[Bucket, Executable] = {}
        self._epilogues: dict[tuple[str, int], Executable] = {}
        self._copier: Executable | None = None

    @classmethod
    async def open(
        cls,
        spec: Spec,
        family: Family,
        weights: Mapping[str, tuple[Encoding, WeightSource]],
        backend: Backend,
        settings: DeviceSettings,
        progress: Progress | None,
    ) -> Device:
        cache, limit = plan_cache(spec, family, backend, settings)
        encodings = {name: encoding for name, (encoding, _) in weights.items()}
        program = family.trace(spec, Bucket(1, 1, 1, 1), cache, encodings)
        check_memory(program, backend)
        states = {v.name: await backend.allocate(v.nbytes, Role.STATE) for v in program.by_role(Role.STATE)}
        loaded = await load_weights(program, weights, backend, progress)
        return cls(spec, family, backend, cache, limit, encodings, states | loaded)

    async def run(self, step: Batch, copies: Sequence[Copy]) -> list[tuple[HostTensor, ...]]:
        """Run a step; the results of its readouts, in their order. Raises DeviceLost or another BackendError."""
        if copies:
            await self._copy(copies)
        bucket = bucket_for(step.inputs.counts, self.limit)
        executable = await self._model(bucket)
        ticket = self._backend.run(executable, {"step": memoryview(StepLayout(bucket).pack(step.inputs)).cast("B")})
        groups = [(group, await self._run_epilogue(group)) for group in epilogues.group(step)]
        if not groups:
            await self._backend.read(ticket)
        results: dict[Readout, tuple[HostTensor, ...]] = {}
        for group, pending in groups:
            results |= group.split(await self._backend.read(pending))
        return [results.get(readout, ()) for readout in step.readouts]

    async def close(self) -> None:
        await self._backend.close()

    async def _model(self, bucket: Bucket) -> Executable:
        if bucket not in self._models:
            program = self._family.trace(self._spec, bucket, self.cache, self._encodings)
            self._models[bucket] = await self._compile(program)
        return self._models[bucket]

    async def _compile(self, program: Program) -> Executable:
        return await self._backend.compile(expand(program, self._backend.limits.kinds), self._buffers)

    async def _copy(self, copies: Sequence[Copy]) -> None:
        if self._copier is None:
            states = [value for value in self._states() if value.shape[0] == self.cache.pages]
            self._copier = await self._compile(copy_pages_program(states, capacity=COPIES))
        for first in range(0, len(copies), COPIES):
            part = copies[first : first + COPIES]
            self._backend.run(
                self._copier,
                {
                    "counts": words([len(part)], 1),
                    "sources": words([copy.source for copy in part], COPIES),
                    "targets": words([copy.target for copy in part], COPIES),
                },
            )

    async def _run_epilogue(self, group: Group) -> Ticket:
        key = group.epilogue.digest, group.capacity
        if key not in self._epilogues:
            program = group.epilogue.program(group.capacity * group.epilogue.rows, self.cache.logit_rows)
            self._epilogues[key] = await self._backend.compile(program, self._buffers)
        return self._backend.run(self._epilogues[key], group.inputs())

    def _states(self) -> tuple[Value, ...]:
        return self._family.trace(self._spec, Bucket(1, 1, 1, 1), self.cache, self._encodings).by_role(Role.STATE)


def weight_bytes(value: Value) -> int:
    """Bytes of a weight's planes, codes packed to their bits."""
    assert value.encoding is not None
    rows, columns = value.shape if len(value.shape) == 2 else (1, value.shape[0])
    bits = getattr(value.encoding, "bits", 8)
    return sum(
        -(-plane.shape[0] * plane.shape[1] * (bits if plane.name == "codes" else 8 * plane.dtype.nbytes) // 8)
        for plane in planes(value.encoding, rows, columns)
    )


def check_memory(program: Program, backend: Backend) -> None:
    """Refuse a model that can't fit, before anything is read."""
    weights = sum(weight_bytes(value) for value in program.by_role(Role.WEIGHT))
    states = sum(value.nbytes for value in program.by_role(Role.STATE))
    have = backend.limits.memory
    if weights + states > have:
        raise OutOfMemory(
            f"{program.name} needs {weights >> 20} MiB for weights and {states >> 20} MiB for its caches; "
            f"{backend.limits.device} has {have >> 20} MiB. Lower kv_memory in the configuration, or take a smaller model"
        )


async def load_weights(
    program: Program, weights: Mapping[str, tuple[Encoding, WeightSource]], backend: Backend, progress: Progress | None
) -> dict[str, Any]:
    values = program.by_role(Role.WEIGHT)
    total = sum(weight_bytes(value) for value in values)
    loaded, done = {}, 0
    for value in values:
        loaded[value.name] = await backend.load(value, weights[value.name][1])
        done += weight_bytes(value)
        if progress is not None:
            progress(done, total, "loading weights")
    return loaded
