"""What a model will take of a device's memory, and how its KV pool is sized: known before the first byte of a weight moves.

``model show`` prints it, and opening a model decides by it, so the two can't disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pie_edge.backend import Backend
from pie_edge.errors import ConfigError, OutOfMemory
from pie_edge.model.adapters import Adapters
from pie_edge.model.spec import Cache, Family, Spec
from pie_edge.program.encodings import Encoding
from pie_edge.program.expand import expand
from pie_edge.program.ops import Program, Role, Value
from pie_edge.program.step import Bucket

DEFAULT_KV_MEMORY = 512 << 20
VALUE_WORDS = 1 << 14
"""Of the device's pool, beside a token for each sequence: for values that go from pass to pass."""


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """``memory`` is what the backend was told it may have in all, 0 for all there is, told in errors alone; ``kv_memory`` in
    bytes, 0 for half of what is free, up to 512 MiB; ``rows`` is the most tokens of one step,
    ``shared_rows`` the most of prompts beside others' single tokens, until the pace knows what suits the device;
    ``park_memory`` is host memory for the pages of waiting inferlets; ``speculation_depth`` 0 turns run-ahead off."""

    page_size: int = 16
    memory: int = 0
    kv_memory: int = 0
    rows: int = 512
    shared_rows: int = 128
    sequences: int = 256
    logits_memory: int = 64 << 20
    park_memory: int = 1 << 30
    speculation_depth: int = 1


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
    """What else outlives a step: the token pool, adapters, and recurrent state of models that have it."""
    working: int
    """Temporaries of the largest step, compiled Programs, staging, and what the backend has for itself."""
    memory: int
    """What the backend may have in all."""
    page: int
    """Of one KV page, all layers."""
    most_pages: int
    """That would fit if the pool got all that is free."""

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

    @property
    def fits(self) -> bool:
        return self.total <= self.memory

    def check(self, model: str, backend: Backend, settings: DeviceSettings) -> None:
        """Raises OutOfMemory, saying what is needed and what there is."""
        if self.fits:
            return
        limits, work = backend.limits, self.states + self.working
        raise OutOfMemory(
            f"{model} needs {_mib(self.weights)} MiB for its weights, {_mib(self.pages)} for KV pages, {_mib(self.logits)} for "
            f"logits and {_mib(work)} to work with; the {limits.backend} backend may use {_mib(self.memory)} MiB of "
            f"{limits.device}. {_more_room(settings, self.memory)}"
        )


def single(adapters: Adapters | None = None) -> Bucket:
    """The smallest step, whose Program has all weights and states."""
    return Bucket(1, 1, 1, 1, adapters=int(adapters is not None))


def needs_of(
    spec: Spec,
    family: Family,
    backend: Backend,
    settings: DeviceSettings,
    encodings: Mapping[str, Encoding],
    adapters: Adapters | None = None,
) -> Needs:
    """How many pages and logits rows there is room for beside the weights, and what all of it takes. ``fits`` says whether it
    does. Raises ConfigError for a ``kv_memory`` that holds no page."""
    memory, binding = backend.limits.memory, backend.limits.max_binding
    weights = family.trace(spec, single(), Cache(1, settings.page_size, backend.limits.kv_dtype, 1, 1), encodings)
    counted = _Counted(spec, family, backend, settings, encodings, weights.by_role(Role.WEIGHT), adapters)
    token = spec.kv_bytes_per_token(backend.limits.kv_dtype)
    row = 4 * spec.vocabulary
    free = memory - counted.of(_cache(backend, settings, pages=1, rows=1, adapters=adapters)).total
    # Fewer rows of logits where memory is short: steps read out less then, but what the user wants of pages is there.
    logits = min(settings.logits_memory, binding, max(free - settings.kv_memory, 0) // 4)
    logit_rows = max(min(logits // row, settings.sequences), 1)
    pool = settings.kv_memory or max(min(DEFAULT_KV_MEMORY, (free - logit_rows * row) // 2), 0)
    if settings.kv_memory and settings.kv_memory < token * settings.page_size:
        raise ConfigError(
            f"kv_memory is {settings.kv_memory} bytes, and a page of {settings.page_size} tokens takes "
            f"{token * settings.page_size} with {spec.architecture}'s {spec.layers} layers; raise it, or leave it at 0"
        )
    # States are bound whole: each layer's keys.
    bound = binding * 2 * spec.attention_layers // (token * settings.page_size)
    pages = max(min(pool // (token * settings.page_size) + 1, bound), 2)
    return counted.of(_cache(backend, settings, pages, logit_rows, adapters), bound)


def _cache(backend: Backend, settings: DeviceSettings, pages: int, rows: int, adapters: Adapters | None) -> Cache:
    slots, adapted = settings.sequences + VALUE_WORDS, {} if adapters is None else adapters.geometry()
    return Cache(pages, settings.page_size, backend.limits.kv_dtype, rows, token_slots=slots, **adapted)


@dataclass(frozen=True, slots=True)
class _Counted:
    """What does not change while the pool is sized."""

    spec: Spec
    family: Family
    backend: Backend
    settings: DeviceSettings
    encodings: Mapping[str, Encoding]
    weights: Sequence[Value]
    adapters: Adapters | None

    def of(self, cache: Cache, bound: int = 1) -> Needs:
        entries = self.settings.sequences * 4 + 2 * -(-self.spec.context // self.settings.page_size)
        smallest = single(self.adapters)
        limit = replace(
            smallest,
            rows=self.settings.rows,
            sequences=self.settings.sequences,
            sampled=cache.logit_rows,
            entries=entries,
        )
        largest = largest_program(self.spec, self.family, self.backend, cache, limit, self.encodings)
        states = self.family.trace(self.spec, smallest, cache, self.encodings).by_role(Role.STATE)
        paged = [state.nbytes for state in states if is_paged(state)]
        logits = [state.nbytes for state in states if state.name == "logits"]
        others = [state.nbytes for state in states if not is_paged(state) and state.name != "logits"]
        base = self._footprint()
        found = {
            "weights": self._footprint(weights=self.weights) - base,
            "pages": self._footprint(paged) - base,
            "logits": self._footprint(logits) - base,
            "states": self._footprint(others) - base,
        }
        total = self._footprint([*paged, *logits, *others], self.weights, largest)
        memory, page = self.backend.limits.memory, sum(paged) // cache.pages
        most = (memory - total + found["pages"]) // page
        working = total - sum(found.values())
        return Needs(
            cache, limit, **found, working=working, memory=memory, page=page, most_pages=max(min(most, bound), 0)
        )

    def _footprint(
        self, states: Sequence[int] = (), weights: Sequence[Value] = (), largest: Program | None = None
    ) -> int:
        return self.backend.footprint(states, weights, largest)


def largest_program(
    spec: Spec, family: Family, backend: Backend, cache: Cache, limit: Bucket, encodings: Mapping[str, Encoding]
) -> Program:
    """Of a step's Programs, the one that needs the most."""
    return expand(family.trace(spec, limit, cache, encodings), backend.limits.kinds)


def is_paged(state: Value) -> bool:
    """Whether it is of the KV pool: one entry a page."""
    return state.name.startswith(("k.", "v.")) or state.name == "key_positions"


def _more_room(settings: DeviceSettings, memory: int) -> str:
    """The remedies that can help: a setting that isn't in the way needs no changing."""
    remedies = []
    if settings.kv_memory:
        remedies.append("lower kv_memory")
    # A backend keeps a little of what it may have for itself. One that has much less than that has no more.
    if settings.memory and memory >= settings.memory - settings.memory // 8:
        remedies.append("raise memory")
    settled = f"{' or '.join(remedies)} in the configuration, or " if remedies else ""
    return f"{settled}take a smaller model, or a backend with more memory".capitalize()


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f}"
