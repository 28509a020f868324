"""What a model will take of a device's memory, and how its KV pool is sized: known before the first byte of a weight moves.

``model show`` prints it, and opening a model decides by it, so the two can't disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pie_edge.backend import Backend
from pie_edge.control.plan import DeviceSettings, Model
from pie_edge.control.recurrence import LEAST_SLOTS, REVERSIBLE
from pie_edge.errors import ConfigError, OutOfMemory, Unsupported
from pie_edge.model.spec import Cache
from pie_edge.program.encodings import DType
from pie_edge.program.expand import expand
from pie_edge.program.ops import Program, Role, Value
from pie_edge.program.states import States, states_of
from pie_edge.program.step import Bucket

DEFAULT_KV_MEMORY = 512 << 20
DEFAULT_STATE_MEMORY = 512 << 20
VECTOR = 16
"""Bytes that stay together in a page of keys."""
_MIB = 1 << 20
_OWN = 16 << 20
"""Bytes that a backend may keep for itself."""
VALUE_WORDS = 1 << 14
"""Of the device's pool, beside a token for each sequence: for values that go from pass to pass."""
SLOTS_OF_A_CONTEXT = 2
_LONGEST_TAIL = 64
"""Of the tails of a Program that is only looked at: no convolution is wider."""
_TRIES = 16
"""For the least memory that is enough: each takes what the one before it was said to need."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Sizes are bytes, as the backend rounds them."""

    cache: Cache
    limit: Bucket
    """The largest step."""
    weights: int
    pages: int
    """The KV pool."""
    logits: int
    states: int
    """What else outlives a step: the token pool, rows of hidden states, adapters, and recurrent state of models that have it."""
    slots: int
    """Of these the recurrent state, as it is without rounding; and of one slot, of which a context has up to two."""
    slot: int
    working: int
    """Temporaries of the largest step, compiled Programs, staging, and what the backend has for itself."""
    memory: int
    """What the backend may have in all."""
    page: int
    """Of one KV page, all layers."""
    most_pages: int
    """That would fit if the pool got all that is free."""
    window: int = 0
    """Tokens that the furthest-looking layer sees; 0 where one sees all."""

    @property
    def total(self) -> int:
        return self.weights + self.pages + self.logits + self.states + self.working

    @property
    def context(self) -> int:
        """Tokens that one context can have in the pool; page 0 is nobody's. 0 if the model doesn't fit."""
        return (self.cache.pages - 1) * self.cache.page_size if self.fits else 0

    @property
    def most_context(self) -> int:
        """Tokens, if the pool got all that is free."""
        return max(self.most_pages - 1, 0) * self.cache.page_size

    def longest(self, room: int, good_for: int) -> int:
        """Tokens of the longest context in a pool with room for so many, of a model that is good for so many. Where pages behind
        windows are released a window, a chunk and a few pages are enough for any."""
        enough = self.window + self.limit.rows + 3 * self.cache.page_size
        return good_for if self.window and room >= enough else min(room, good_for)

    @property
    def fits(self) -> bool:
        return self.total <= self.memory

    @property
    def contexts(self) -> int:
        """That can have recurrent state on the device at once; 0 where there is none to have."""
        return (self.cache.state_slots - 1) // SLOTS_OF_A_CONTEXT if self.slot else 0

    def less(self, settings: DeviceSettings) -> list[str]:
        """What the settings ask for more of than there is, each a sentence."""
        told = []
        if settings.memory and not _capped(settings, self.memory):
            told.append(
                f"memory asks for {_mib(settings.memory)} MiB; the device has {_mib(self.memory)}, and no more is used"
            )
        if settings.kv_memory - self.pages > self.page:
            told.append(
                f"kv_memory asks for {_mib(settings.kv_memory)} MiB; the device binds no more than the {_mib(self.pages)} that "
                "KV pages get"
            )
        return told

    def growth(self, settings: DeviceSettings) -> str:
        """What would give the KV pool more pages."""
        more = self.most_pages > self.cache.pages
        halved = not settings.kv_memory and self.cache.pages * self.page <= DEFAULT_KV_MEMORY
        raised = ["memory"] if _capped(settings, self.memory) and (halved or not more) else []
        raised += ["kv_memory"] if more else []
        return f"raise {' or '.join(raised)} in the configuration" if raised else "use a backend with more memory"

    def largest(self, model: Model, backend: Backend) -> Program:
        """Of a step's Programs, the one that needs the most."""
        return expand(model.trace(self.limit, self.cache), backend.limits.kinds)

    def check(self, name: str, model: Model, backend: Backend, settings: DeviceSettings) -> None:
        """Raises OutOfMemory, saying what is needed and what there is, and how much ``memory`` would be enough if it is set."""
        if self.fits:
            return
        limits, work = backend.limits, self.states + self.working - self.slots
        recurrent = f"{_mib(self.slots)} for {self.cache.state_slots} slots of recurrent state, " if self.slots else ""
        fewer = settings.kv_memory - self.pages > self.page
        asked = f" (kv_memory asks for {_mib(settings.kv_memory)}: more than the device binds)" if fewer else ""
        scarce = f", {limits.scarce}" if limits.scarce and not _capped(settings, self.memory) else ""
        remedy = _more_room(settings, self.memory, least(model, backend, settings, self))
        raise OutOfMemory(
            f"{name} needs {_mib(self.weights)} MiB for its weights, {recurrent}{_mib(self.pages)} for KV pages{asked}, "
            f"{_mib(self.logits)} for logits and {_mib(work)} to work with; the {limits.backend} backend may use "
            f"{_mib(self.memory)} MiB of {limits.device}{scarce}. {remedy}"
        )


def least(model: Model, backend: Backend, settings: DeviceSettings, found: Needs) -> int:
    """Whole MiB that ``settings.memory`` has to be for a model that doesn't fit, by its own account; 0 if that isn't what is in
    the way. Pools and staging take a part of what there is, so it is more than the total now."""
    if not _capped(settings, found.memory):
        return 0
    own = settings.memory - backend.limits.memory
    for _ in range(_TRIES):
        memory = -(-(found.total + own) // _MIB)
        found = needs_of(model, backend, settings, memory * _MIB - own)
        if found.fits:
            return memory
    return 0


def needs_of(model: Model, backend: Backend, settings: DeviceSettings, memory: int = 0) -> Needs:
    """How many pages, slots of recurrent state and logits rows there is room for beside the weights, and what all of it takes.
    ``fits`` says whether it does. With ``memory``, as if the backend might have so much. Raises ConfigError for a
    ``kv_memory`` that holds no page."""
    plan = _Plan(model, backend, settings, memory)
    page, row, binding = plan.one.page_bytes, 4 * model.spec.vocabulary, backend.limits.max_binding
    if settings.kv_memory and settings.kv_memory < page:
        raise ConfigError(
            f"kv_memory is {settings.kv_memory} bytes, and a page of {settings.page_size} tokens takes {page} with "
            f"{model.spec.architecture}'s {model.spec.layers} layers; raise it, or leave it at 0"
        )
    free = plan.memory - plan.counted(plan.cache(pages=1, rows=1, slots=min(plan.slots(0), 1))).total
    # Fewer rows of logits where memory is short: steps read out less then, but what the user wants of pages is there.
    logits = min(settings.logits_memory, binding, max(free - settings.kv_memory, 0) // 4)
    logit_rows = max(min(logits // row, settings.sequences), 1)
    free -= logit_rows * row
    slots = plan.slots(free)
    free -= slots * plan.one.slot_bytes
    pool = settings.kv_memory or max(min(DEFAULT_KV_MEMORY, free // 2), 0)
    # States are bound whole: each layer's keys.
    bound = binding // plan.one.largest_page
    pages = max(min(pool // page + 1, bound), 2)
    return plan.counted(plan.cache(pages, logit_rows, slots), bound)


def kv_dtype(model: Model, backend: Backend) -> DType:
    """What keys and values are kept in: what the backend prefers, or float32 for heads that aren't made of whole vectors of that.

    Raises Unsupported for those that aren't made of vectors of float32 either.
    """
    width, wanted = model.spec.head_dim, backend.limits.kv_dtype
    for dtype in (wanted, DType.F32):
        if width % (VECTOR // dtype.nbytes) == 0:
            return dtype
    raise Unsupported(
        f"the {model.spec.architecture} model has heads of {width} values, and this version keeps keys and values of multiples "
        f"of {VECTOR // DType.F32.nbytes}; run another model"
    )


class _Plan:
    """What does not change while pools are sized."""

    def __init__(self, model: Model, backend: Backend, settings: DeviceSettings, memory: int) -> None:
        self.memory = memory or backend.limits.memory
        self._dtype = kv_dtype(model, backend)
        self._model = model
        self._backend = backend
        self._settings = settings
        self._tail = 0
        if model.spec.recurrent:
            least = replace(self.cache(pages=1, rows=1, slots=1), tail=_LONGEST_TAIL)
            self._tail = REVERSIBLE + model.states(least).convolved
        least = self.cache(pages=1, rows=1, slots=int(model.spec.recurrent))
        self.one: States = model.states(least)
        """States of one page, and of one slot."""
        self._weights = model.trace(model.smallest, least).by_role(Role.WEIGHT)

    def cache(self, pages: int, rows: int, slots: int) -> Cache:
        settings, adapters = self._settings, self._model.adapters
        return Cache(
            pages,
            settings.page_size,
            self._dtype,
            rows,
            token_slots=settings.sequences + VALUE_WORDS,
            state_slots=slots,
            tail=self._tail,
            hidden_rows=settings.rows,
            **({} if adapters is None else adapters.geometry()),
        )

    def slots(self, free: int) -> int:
        """Of recurrent state, beside the one that is nobody's, for the memory there is; 0 for models without."""
        slot, settings = self.one.slot_bytes, self._settings
        if not slot:
            return 0
        wanted = settings.state_memory or min(DEFAULT_STATE_MEMORY, free // 4)
        most = min(
            SLOTS_OF_A_CONTEXT * settings.sequences, self._backend.limits.max_binding // self.one.largest_slot - 1
        )
        return max(min(wanted // slot, most), LEAST_SLOTS) + 1

    def counted(self, cache: Cache, bound: int = 1) -> Needs:
        model, settings = self._model, self._settings
        entries = settings.sequences * 4 + 2 * -(-model.spec.context // settings.page_size)
        sizes = {"sequences": settings.sequences, "sampled": cache.logit_rows, "entries": entries}
        limit = replace(model.smallest, rows=settings.rows, **sizes)
        program = model.trace(model.smallest, cache)
        states, kept = states_of(program), {v.name: v.nbytes for v in program.by_role(Role.STATE)}
        paged = [kept.pop(value.name) for value in states.paged]
        logits, others = [kept.pop("logits")], list(kept.values())
        base = self._footprint()
        found = {
            "weights": self._footprint(weights=self._weights) - base,
            "pages": self._footprint(paged) - base,
            "logits": self._footprint(logits) - base,
            "states": self._footprint(others) - base,
        }
        largest = expand(model.trace(limit, cache), self._backend.limits.kinds)
        total = self._footprint([*paged, *logits, *others], self._weights, largest)
        memory, page = self.memory, sum(paged) // cache.pages
        most = (memory - total + found["pages"]) // page
        return Needs(
            cache,
            limit,
            **found,
            slots=sum(value.nbytes for value in states.slotted),
            slot=self.one.slot_bytes,
            working=total - sum(found.values()),
            memory=memory,
            page=page,
            most_pages=max(min(most, bound), 0),
            window=model.window(cache),
        )

    def _footprint(
        self, states: Sequence[int] = (), weights: Sequence[Value] = (), largest: Program | None = None
    ) -> int:
        return self._backend.footprint(states, weights, largest, self.memory)


def _more_room(settings: DeviceSettings, memory: int, enough: int) -> str:
    """The remedies that can help: a setting that isn't in the way needs no changing."""
    remedies = [f"lower {name}" for name in ("kv_memory", "state_memory") if getattr(settings, name)]
    if _capped(settings, memory):
        remedies.append(f"raise memory to {enough} MiB" if enough else "raise memory")
    settled = f"{' or '.join(remedies)} in the configuration, or " if remedies else ""
    told = f"{settled}take a smaller model, or a backend with more memory"
    return told[0].upper() + told[1:]


def _capped(settings: DeviceSettings, memory: int) -> bool:
    """Whether the setting is why a backend may have no more than that: it keeps a little for itself. One that has much less than
    it was told to take has no more."""
    return bool(settings.memory) and memory >= settings.memory - max(settings.memory // 8, _OWN)


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f}"
