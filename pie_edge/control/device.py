"""A model on a backend: its weights and caches there, its Programs by bucket, its epilogues by digest."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pie_edge.backend import Backend, Executable, Run, Ticket, WeightSource, together
from pie_edge.control import epilogues
from pie_edge.control.batch import Batch, Readout, bucket_for
from pie_edge.control.epilogues import Group
from pie_edge.control.needs import Needs, needs_of
from pie_edge.control.plan import DeviceSettings, Model
from pie_edge.control.queue import HostTensor
from pie_edge.control.store import Store
from pie_edge.errors import DeviceLost, Unsupported
from pie_edge.model.adapters import Adapters
from pie_edge.model.spec import Family, Spec
from pie_edge.program import observe
from pie_edge.program.encodings import Encoding, encoded_bytes
from pie_edge.program.expand import expand
from pie_edge.program.ops import Program, Role
from pie_edge.program.states import states_of
from pie_edge.program.step import Bucket, StepLayout
from pie_edge.sampling import Pool

Progress = Callable[[int, int, str], None]
Samples = tuple[Sequence[int], Ticket | None]
"""Numbers of readouts, and the run that reads what is looked at of each."""


@dataclass(slots=True)
class Flight:
    """A step on the device."""

    batch: Batch
    reading: asyncio.Task[list[tuple[HostTensor, ...] | None]]
    stale: bool
    """It was formed of what the device held before it was opened again."""

    @property
    def done(self) -> bool:
        return self.reading.done()

    def results(self) -> list[tuple[HostTensor, ...] | None]:
        """Of its readouts, in their order; None where what was read out is no number. Raises DeviceLost or a BackendError."""
        found = self.reading.result()
        if self.stale:
            raise DeviceLost("a step's pages were lost with the device before it ran; run the request again")
        return found


class Device:
    """Made whole by ``open``; ``launch`` is the only thing done per step."""

    def __init__(
        self,
        model: Model,
        backend: Backend,
        needs: Needs,
        settings: DeviceSettings,
        buffers: dict[str, Any],
        adapters: tuple[str, ...] = (),
    ) -> None:
        self.cache = cache = needs.cache
        self.adapters = adapters
        self.limit = needs.limit
        self.growth = needs.growth(settings)
        self.less = needs.less(settings)
        self.shared_rows = min(settings.shared_rows, settings.rows)
        self.park_memory = settings.park_memory
        self.speculation_depth = settings.speculation_depth
        self._model = model
        self._backend = backend
        self._run_together = together(backend)
        self._buffers = buffers
        self._models: dict[Bucket, tuple[StepLayout, Executable]] = {}
        self._epilogues: dict[tuple[str, int, Pool], Executable] = {}
        program = model.trace(model.smallest, cache)
        states = states_of(program)
        self.recurs = states.recurs
        self.pages = Store(backend, states.paged, buffers, self._compile)
        self.slots = Store(backend, states.slotted, buffers, self._compile) if states.slotted else None
        """Of recurrent state, where the model has such."""
        self.window = model.window(cache)
        """Tokens that the furthest-looking layer sees; 0 where one sees all."""
        layers = observe.attention_layers(program)
        observable = observe.KIND in backend.limits.kinds and layers <= observe.MOST_LAYERS
        self.observable_layers = layers if observable else 0
        """How many layers' attention can be observed here."""
        self.hidden = model.spec.hidden
        """Entries of a row of hidden states."""

    @classmethod
    async def open(
        cls,
        spec: Spec,
        family: Family,
        weights: Mapping[str, tuple[Encoding, WeightSource]],
        backend: Backend,
        settings: DeviceSettings,
        progress: Progress | None,
        name: str,
        adapters: Adapters | None = None,
    ) -> Device:
        """Raises OutOfMemory, before anything is allocated, for what the model of this ``name`` needs and there isn't."""
        encodings = {name: encoding for name, (encoding, _) in weights.items()}
        model = Model(spec, family, encodings, adapters)
        needs = await asyncio.to_thread(needs_of, model, backend, settings)
        needs.check(name, model, backend, settings)
        program = model.trace(model.smallest, needs.cache)
        if adapters is not None:
            adapters.check_read(program)
        await backend.expect(program.by_role(Role.WEIGHT), needs.largest(model, backend))
        states = {v.name: await backend.allocate(v.nbytes, Role.STATE) for v in program.by_role(Role.STATE)}
        for state, matrices in {} if adapters is None else adapters.matrices.items():
            backend.write(states[state], matrices)
        loaded = await load_weights(program, weights, backend, progress)
        names = () if adapters is None else adapters.names
        return cls(model, backend, needs, settings, states | loaded, names)

    async def launch(self, step: Batch, opened: int, landed: Callable[[], None]) -> Flight:
        """Put a step on the device, which had been ``opened`` so often when the step was chosen; ``landed`` is called when its
        results are there. Awaits only what isn't compiled yet."""
        # While a kernel compiles, a pass of the step may be taken up and its slot become the next one's: read it before.
        groups = epilogues.group(step)
        layout, executable = await self._step(bucket_for(step.inputs.counts, self.limit))
        compiled = [await self._epilogue(group) for group in groups]

        def runs() -> Iterator[Run]:
            yield executable, {"step": memoryview(layout.pack(step.inputs)).cast("B")}
            for group, epilogue in zip(groups, compiled, strict=True):
                yield epilogue, group.inputs()

        ticket, *others = self._run_together(runs())
        # An epilogue leaves the logits as they are.
        samples = self._sample(step.readouts)
        tickets = list(zip(groups, others, strict=True))
        reading = asyncio.get_running_loop().create_task(self._read(step, ticket, samples, tickets, landed))
        return Flight(step, reading, self.opened != opened)

    def _sample(self, readouts: Sequence[Readout]) -> Samples:
        """Start reading one logit of the last row of passes that are to be checked. A hidden state that is no number makes every
        logit of its row one, and a context with such a token all rows after it: what a damaged weight or an overflow does shows
        there, and every so many tokens is often enough. Where no logits are read it is the hidden state itself."""
        wanted = [index for index, one in enumerate(readouts) if one.checked]
        if not wanted:
            return (), None
        return wanted, self._backend.download([self._told_by(readouts[index]) for index in wanted])

    def _told_by(self, readout: Readout) -> tuple[Any, int, int]:
        """What of a readout is looked at: a buffer, and bytes of it."""
        if readout.count:
            return self._buffers["logits"], 4 * self._model.spec.vocabulary * (readout.first + readout.count - 1), 4
        nbytes = 4 * self.hidden
        return self._buffers["hidden"], nbytes * (readout.hidden + readout.hidden_count - 1), nbytes

    async def _read(
        self,
        step: Batch,
        ticket: Ticket,
        samples: Samples,
        tickets: Sequence[tuple[Group, Ticket]],
        landed: Callable[[], None],
    ) -> list[tuple[HostTensor, ...] | None]:
        try:
            # What went to the device last first: when it is there, so are the others, and a step is waited for once.
            broken = await self._not_finite(*samples)
            results: dict[Readout, tuple[HostTensor, ...]] = {}
            for group, pending in reversed(tickets):
                results |= group.split(await self._backend.read(pending))
            masses = memoryview(b"")
            if step.inputs.counts.observed:
                masses = (await self._backend.read(ticket))[observe.MASSES]
            elif not tickets:
                await self._backend.read(ticket)
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
        """Which of the readouts have logits, or hidden states, that are no numbers."""
        if samples is None:
            return set()
        found = (await self._backend.read(samples)).values()
        return {index for index, numbers in zip(wanted, found, strict=True) if not _finite(numbers)}

    @property
    def backend(self) -> str:
        """Its name."""
        return self._backend.limits.backend

    @property
    def name(self) -> str:
        """The device's own."""
        return self._backend.limits.device

    @property
    def sticky(self) -> bool:
        """Once lost, it stays lost for this process."""
        return self._backend.limits.sticky

    @property
    def opened(self) -> int:
        """How often: what it held is gone when it was again."""
        return self._backend.limits.opened

    async def close(self) -> None:
        await self._backend.close()

    async def _step(self, bucket: Bucket) -> tuple[StepLayout, Executable]:
        found = self._models.get(bucket)
        if found is None:
            program = self._model.trace(bucket, self.cache)
            if bucket.observed:
                program = observe.observe(program, bucket)
            found = self._models[bucket] = StepLayout(bucket), await self._compile(program)
        return found

    async def _compile(self, program: Program) -> Executable:
        try:
            return await self._backend.compile(expand(program, self._backend.limits.kinds), self._buffers)
        except Unsupported as error:
            backend = self._backend.limits.backend
            raise Unsupported(
                f"the {self._model.spec.architecture} model can't be run on {backend}: {error}. Use another --backend, or "
                "a model of other shapes"
            ) from None

    async def _epilogue(self, group: Group) -> Executable:
        pool = Pool(self.cache.token_slots, group.kept, group.taken)
        key = group.epilogue.digest, group.capacity, pool
        found = self._epilogues.get(key)
        if found is None:
            rows, cache = group.capacity * group.epilogue.rows, self.cache
            program = group.epilogue.program(rows, cache.logit_rows, pool, cache.hidden_rows)
            found = self._epilogues[key] = await self._backend.compile(program, self._buffers)
        return found


def _all_finite(masses: HostTensor) -> bool:
    return math.isfinite(sum(masses.data))


def _finite(numbers: memoryview) -> bool:
    return all(map(math.isfinite, numbers.cast("B").cast("f")))


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
