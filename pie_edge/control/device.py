"""A model on a backend: its weights and caches there, its Programs by bucket, its epilogues by digest."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pie_edge.backend import Backend, Executable, Ticket, WeightSource
from pie_edge.control import epilogues
from pie_edge.control.batch import Batch, Readout, bucket_for
from pie_edge.control.epilogues import Group, words
from pie_edge.control.needs import DeviceSettings, is_paged, largest_program, needs_of, single
from pie_edge.control.pages import Copy
from pie_edge.control.queue import HostTensor
from pie_edge.model.adapters import Adapters
from pie_edge.model.spec import Cache, Family, Spec
from pie_edge.program import observe
from pie_edge.program.encodings import Encoding, encoded_bytes
from pie_edge.program.expand import expand
from pie_edge.program.ops import Program, Role, Value
from pie_edge.program.step import Bucket, StepLayout
from pie_edge.program.trace import copy_program
from pie_edge.sampling import Pool

COPIES = 64
"""Pages, or tokens, that one run of a copy Program duplicates."""

Progress = Callable[[int, int, str], None]
Samples = tuple[Sequence[int], Ticket | None]
"""Numbers of readouts, and the run that reads a logit of each."""


@dataclass(slots=True)
class Flight:
    """A step on the device."""

    batch: Batch
    reading: asyncio.Task[list[tuple[HostTensor, ...] | None]]

    @property
    def done(self) -> bool:
        return self.reading.done()

    def results(self) -> list[tuple[HostTensor, ...] | None]:
        """Of its readouts, in their order; None where the logits are no numbers. Raises DeviceLost or another BackendError."""
        return self.reading.result()


class Device:
    """Made whole by ``open``; ``launch`` is the only thing done per step."""

    def __init__(
        self,
        spec: Spec,
        family: Family,
        backend: Backend,
        cache: Cache,
        limit: Bucket,
        settings: DeviceSettings,
        encodings: Mapping[str, Encoding],
        buffers: dict[str, Any],
        adapters: tuple[str, ...] = (),
    ) -> None:
        self.cache = cache
        self.adapters = adapters
        self.limit = limit
        self.shared_rows = min(settings.shared_rows, settings.rows)
        self.park_memory = settings.park_memory
        self.speculation_depth = settings.speculation_depth
        self._spec = spec
        self._family = family
        self._backend = backend
        self._encodings = encodings
        self._buffers = buffers
        self._models: dict[Bucket, tuple[StepLayout, Executable]] = {}
        self._epilogues: dict[tuple[str, int, Pool], Executable] = {}
        self._copiers: dict[bool, Executable] = {}
        program = family.trace(spec, Bucket(1, 1, 1, 1), cache, encodings)
        self._paged = [(v, v.nbytes // cache.pages) for v in program.by_role(Role.STATE) if is_paged(v)]
        """States of the KV pool, with the bytes that a page has of each."""
        layers = observe.attention_layers(program)
        observable = observe.KIND in backend.limits.kinds and layers <= observe.MOST_LAYERS
        self.observable_layers = layers if observable else 0
        """How many layers' attention can be observed here."""

    @classmethod
    async def open(
        cls,
        spec: Spec,
        family: Family,
        weights: Mapping[str, tuple[Encoding, WeightSource]],
        backend: Backend,
        settings: DeviceSettings,
        progress: Progress | None,
        model: str,
        adapters: Adapters | None = None,
    ) -> Device:
        """Raises OutOfMemory, before anything is allocated, for what ``model`` needs and there isn't."""
        encodings = {name: encoding for name, (encoding, _) in weights.items()}
        needs = await asyncio.to_thread(needs_of, spec, family, backend, settings, encodings, adapters)
        needs.check(model, backend, settings)
        cache = needs.cache
        program = family.trace(spec, single(adapters), cache, encodings)
        if adapters is not None:
            adapters.check_read(program)
        largest = largest_program(spec, family, backend, cache, needs.limit, encodings)
        await backend.expect(program.by_role(Role.WEIGHT), largest)
        states = {v.name: await backend.allocate(v.nbytes, Role.STATE) for v in program.by_role(Role.STATE)}
        for name, matrices in {} if adapters is None else adapters.matrices.items():
            backend.write(states[name], matrices)
        loaded = await load_weights(program, weights, backend, progress)
        names = () if adapters is None else adapters.names
        return cls(spec, family, backend, cache, needs.limit, settings, encodings, states | loaded, names)

    async def launch(self, step: Batch, landed: Callable[[], None]) -> Flight:
        """Put a step on the device; ``landed`` is called when its results are there. Awaits only what isn't compiled yet."""
        # While a kernel compiles, a pass of the step may be taken up and its slot become the next one's: read it before.
        groups = epilogues.group(step)
        layout, executable = await self._model(bucket_for(step.inputs.counts, self.limit))
        runs = [(group, await self._epilogue(group)) for group in groups]
        ticket = self._backend.run(executable, {"step": memoryview(layout.pack(step.inputs)).cast("B")})
        # Before the epilogues: it is there when they are, and costs no wait of its own.
        samples = self._sample_logits(step.readouts)
        tickets = [(group, self._backend.run(compiled, group.inputs())) for group, compiled in runs]
        return Flight(step, asyncio.get_running_loop().create_task(self._read(step, ticket, samples, tickets, landed)))

    def _sample_logits(self, readouts: Sequence[Readout]) -> Samples:
        """Start reading one logit of the last row of passes that are to be checked. A hidden state that is no number makes every
        logit of its row one, and a context with such a token all rows after it: what a damaged weight or an overflow does shows
        there, and every so many tokens is often enough."""
        wanted = [index for index, one in enumerate(readouts) if one.checked]
        if not wanted:
            return (), None
        logits, row = self._buffers["logits"], 4 * self._spec.vocabulary
        rows = [readouts[index].first + readouts[index].count - 1 for index in wanted]
        return wanted, self._backend.download([(logits, number * row, 4) for number in rows])

    async def _read(
        self,
        step: Batch,
        ticket: Ticket,
        samples: Samples,
        tickets: Sequence[tuple[Group, Ticket]],
        landed: Callable[[], None],
    ) -> list[tuple[HostTensor, ...] | None]:
        try:
            masses = memoryview(b"")
            if step.inputs.counts.observed:
                masses = (await self._backend.read(ticket))[observe.MASSES]
            elif not tickets:
                await self._backend.read(ticket)
            broken = await self._not_finite(*samples)
            results: dict[Readout, tuple[HostTensor, ...]] = {}
            for group, pending in tickets:
                results |= group.split(await self._backend.read(pending))
            if not broken and not masses:
                return [results.get(readout, ()) for readout in step.readouts]
            observed = [readout.observed(masses) for readout in step.readouts]
            broken |= {index for index, found in enumerate(observed) if not all(map(_all_finite, found))}
            return [
                None if index in broken else (*results.get(readout, ()), *observed[index])
                for index, readout in enumerate(step.readouts)
            ]
        finally:
            # From here and not from the task's callback: that would be a turn of the loop later.
            landed()

    async def _not_finite(self, wanted: Sequence[int], samples: Ticket | None) -> set[int]:
        """Which of the readouts have logits that are no numbers."""
        if samples is None:
            return set()
        found = (await self._backend.read(samples)).values()
        return {index for index, logit in zip(wanted, found, strict=True) if not _finite(logit)}

    @property
    def backend(self) -> str:
        """Its name."""
        return self._backend.limits.backend

    @property
    def page_states(self) -> tuple[Value, ...]:
        """The states that ``save`` reads a page of, in its order."""
        return tuple(state for state, _ in self._paged)

    def save(self, pages: Sequence[int]) -> asyncio.Task[list[bytes]]:
        """Start reading the content of pages, as it is after the runs so far: one piece of bytes a page."""
        spans = [(self._buffers[state.name], page * size, size) for page in pages for state, size in self._paged]
        ticket = self._backend.download(spans)
        return asyncio.get_running_loop().create_task(self._join(ticket, len(pages)))

    async def _join(self, ticket: Ticket, count: int) -> list[bytes]:
        parts = list((await self._backend.read(ticket)).values())
        each = len(self._paged)
        return [b"".join(parts[index * each : (index + 1) * each]) for index in range(count)]

    def load(self, page: int, content: bytes) -> None:
        """Write what ``save`` read to a page, for the runs that follow."""
        start = 0
        for state, size in self._paged:
            self._backend.write(self._buffers[state.name], content[start : start + size], page * size)
            start += size

    async def close(self) -> None:
        await self._backend.close()

    async def _model(self, bucket: Bucket) -> tuple[StepLayout, Executable]:
        found = self._models.get(bucket)
        if found is None:
            program = self._family.trace(self._spec, bucket, self.cache, self._encodings)
            if bucket.observed:
                program = observe.observe(program, bucket)
            found = self._models[bucket] = StepLayout(bucket), await self._compile(program)
        return found

    async def _compile(self, program: Program) -> Executable:
        return await self._backend.compile(expand(program, self._backend.limits.kinds), self._buffers)

    async def copy_pages(self, copies: Sequence[Copy]) -> None:
        """Duplicate pages, for the runs that follow."""
        await self._copy([(copy.source, copy.target) for copy in copies], slots=False)

    async def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Duplicate tokens, (source slot, target slot) each, for the runs that follow."""
        await self._copy(pairs, slots=True)

    async def _copy(self, pairs: Sequence[tuple[int, int]], *, slots: bool) -> None:
        if slots not in self._copiers:
            program = copy_program([state for state, _ in self._paged], COPIES, slots=slots)
            self._copiers[slots] = await self._compile(program)
        for first in range(0, len(pairs), COPIES):
            part = pairs[first : first + COPIES]
            given = {
                "counts": words([len(part)], 1),
                "sources": words([source for source, _ in part], COPIES),
                "targets": words([target for _, target in part], COPIES),
            }
            self._backend.run(self._copiers[slots], given)

    async def _epilogue(self, group: Group) -> Executable:
        pool = Pool(self.cache.token_slots, group.kept, group.taken)
        key = group.epilogue.digest, group.capacity, pool
        found = self._epilogues.get(key)
        if found is None:
            program = group.epilogue.program(group.capacity * group.epilogue.rows, self.cache.logit_rows, pool)
            found = self._epilogues[key] = await self._backend.compile(program, self._buffers)
        return found


def _all_finite(masses: HostTensor) -> bool:
    return math.isfinite(sum(masses.data))


def _finite(logit: memoryview) -> bool:
    return math.isfinite(logit.cast("B").cast("f")[0])


async def load_weights(
    program: Program, weights: Mapping[str, tuple[Encoding, WeightSource]], backend: Backend, progress: Progress | None
) -> dict[str, Any]:
    values = program.by_role(Role.WEIGHT)
    sizes = {value.name: encoded_bytes(weights[value.name][0], value.shape) for value in values}
    loaded, done = {}, 0
    for value in values:
        loaded[value.name] = await backend.load(value, weights[value.name][1])
        done += sizes[value.name]
        if progress is not None:
            progress(done, sum(sizes.values()), "loading weights")
    return loaded
