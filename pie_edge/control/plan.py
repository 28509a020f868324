"""What is asked of a device, and a model as its Programs are traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pie_edge.model.adapters import Adapters
from pie_edge.model.spec import Cache, Family, Spec
from pie_edge.program.encodings import Encoding
from pie_edge.program.ops import Program
from pie_edge.program.states import States, states_of
from pie_edge.program.step import Bucket


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """``memory`` is what the backend was told it may have in all, 0 for all there is, told in errors alone; ``kv_memory`` in
    bytes, 0 for half of what is free, up to 512 MiB; ``state_memory`` is for recurrent state, 0 for a quarter of what is free,
    up to 512 MiB; ``rows`` is the most tokens of one step, ``shared_rows`` the most of prompts beside others' single tokens,
    until the pace knows what suits the device; ``park_memory`` is host memory for the pages of waiting inferlets;
    ``speculation_depth`` 0 turns run-ahead off."""

    page_size: int = 16
    memory: int = 0
    kv_memory: int = 0
    state_memory: int = 0
    rows: int = 512
    shared_rows: int = 128
    sequences: int = 256
    logits_memory: int = 64 << 20
    park_memory: int = 1 << 30
    speculation_depth: int = 1


@dataclass(frozen=True, slots=True)
class Model:
    """A family and all that it traces Programs from."""

    spec: Spec
    family: Family
    encodings: Mapping[str, Encoding]
    adapters: Adapters | None = None
    _traced: dict[tuple[Bucket, Cache], Program] = field(default_factory=dict, compare=False, repr=False)

    @property
    def smallest(self) -> Bucket:
        """A step whose Program has all weights and states."""
        return Bucket(1, 1, 1, 1, recurrent=int(self.spec.recurrent), adapters=int(self.adapters is not None), hidden=1)

    def trace(self, bucket: Bucket, cache: Cache) -> Program:
        """Once each: sizing the pools, loading and the first step look at the same Programs."""
        found = self._traced.get((bucket, cache))
        if found is None:
            found = self._traced[bucket, cache] = self.family.trace(self.spec, bucket, cache, self.encodings)
        return found

    def window(self, cache: Cache) -> int:
        """Tokens that the furthest-looking layer sees; 0 where one sees all."""
        program = self.trace(self.smallest, cache)
        windows = [op.integer("window") for op in program.ops if op.kind == "attention"]
        return max(windows) if windows and all(windows) else 0

    def states(self, cache: Cache) -> States:
        """What it keeps between steps, in a cache of that geometry."""
        return states_of(self.trace(self.smallest, cache))
