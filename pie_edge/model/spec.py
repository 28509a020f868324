"""What the rest of the system knows of a model: its facts, its weights' names, and how a family is asked for a Program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.program.encodings import DType, Encoding
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import Bucket, StepLayout
from pie_edge.program.trace import Trace

GGUF = "gguf"
SAFETENSORS = "safetensors"


@dataclass(frozen=True)
class Spec:
    """Facts that every decoder has. Families extend it with their own."""

    architecture: str
    container: str
    vocabulary: int
    context: int
    """Positions the model was trained for."""
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    eps: float
    tied: bool

    @property
    def attention_layers(self) -> int:
        """Layers with keys and values."""
        return self.layers

    @property
    def recurrent(self) -> bool:
        """Whether a context has state beside its keys and values, which can't be taken apart by tokens."""
        return False

    @property
    def decoder_prefix(self) -> str:
        """How the names of a Hugging Face checkpoint's decoder begin."""
        return "model."

    @property
    def unread(self) -> tuple[str, ...]:
        """How the names of tensors begin that generating text doesn't need."""
        return ()

    @property
    def reordered(self) -> tuple[str, ...]:
        """Parts of a layer whose values lie in another order than the model's own code has them: no adapter fits them."""
        return ()

    def kv_bytes_per_token(self, dtype: DType) -> int:
        """Of all layers, keys and values."""
        return 2 * self.attention_layers * self.kv_heads * self.head_dim * dtype.nbytes


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """A weight that a family needs: its name in the Program and its shape there, and where it comes from."""

    name: str
    source: str
    """The file's tensor; empty where ``values`` has the weight."""
    shape: tuple[int, ...]
    first: int = 0
    """Of a fused tensor (queries, keys and values in one), the row that this weight begins at."""
    runs: tuple[tuple[int, int], ...] = ()
    """Where its rows don't lie together: the first row of each run of them, and how many there are."""
    transposed: bool = False
    """The file keeps it as ``[columns, rows]``."""
    matrices: int = 0
    """How many matrices it has one below another, for which the file's tensor has an axis; or vectors one after another."""
    step: int = 1
    """Of rows that take turns (a gate's and what it lets through), every how many-th is its own."""
    values: tuple[float, ...] = ()
    """A weight that follows from the metadata: a vector of these."""


@dataclass(frozen=True, slots=True)
class Cache:
    """Geometry of the state that Programs share: the KV pool, the logits rows, the token pool."""

    pages: int
    page_size: int
    dtype: DType
    logit_rows: int
    token_slots: int
    state_slots: int = 0
    """Slots of recurrent state, the first of which is nobody's."""
    tail: int = 0
    """Tokens whose inputs are kept beside a recurrent state."""
    adapters: int = 0
    """Low-rank adapters beside the weights, and the rank that all of them are padded to."""
    adapter_rank: int = 0
    adapted: frozenset[str] = frozenset()
    """The weights that some of them change."""
    hidden_rows: int = 0
    """Rows of hidden states that a step can read out."""


class Family(Protocol):
    """One module of ``model/``: ``read`` a checkpoint's facts, list its ``weights``, ``trace`` a bucket's Program."""

    def read(self, facts: Facts) -> Any:
        """The family's own Spec."""

    def weights(self, spec: Any) -> tuple[WeightSpec, ...]: ...

    def trace(self, spec: Any, bucket: Bucket, cache: Cache, encodings: Mapping[str, Encoding]) -> Program: ...


def is_number(value: Any) -> bool:
    """Whether it is a finite one that a float can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -(2**1023) < value < 2**1023


def brief(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or -(2**64) < value < 2**64 else f"{value:#x}"
    return text if len(text) <= 60 else text[:57] + "…"


@dataclass(frozen=True)
class Facts:
    """A checkpoint's metadata with typed access: ``get`` names the file and the key when one is missing or odd."""

    path: str
    container: str
    architecture: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, tuple[int, ...]]
    """Shapes by the file's own names."""
    wanted: int = 0
    """Positions that a context is to have; 0 leaves it to the checkpoint."""

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise BadCheckpoint(
                f"{self.path}: {self._key(key)} should be a whole number, is {brief(value)}; fetch the file again"
            )
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if not is_number(value):
            raise BadCheckpoint(
                f"{self.path}: {self._key(key)} should be a number, is {brief(value)}; fetch the file again"
            )
        return float(value)

    def text(self, key: str, default: str) -> str:
        return str(self._get(key, default))

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """A list of ``count`` numbers."""
        value = self._get(key, None)
        found = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
        if len(found) != count or not all(map(is_number, found)):
            raise BadCheckpoint(f"{self.path}: {self._key(key)} should be {count} numbers; fetch the file again")
        return tuple(map(float, found))

    def within(self, key: str) -> Facts:
        """The facts of a nested object (``rope_parameters`` of a config.json); empty where there is none."""
        nested = self.metadata.get(key)
        if nested is not None and not isinstance(nested, Mapping):
            raise BadCheckpoint(f"{self.path}: {key} should be an object, is {brief(nested)}; fetch the file again")
        return replace(self, metadata=nested or {})

    def refuse(self, what: str) -> Unsupported:
        return Unsupported(
            f"{self.path}: {what} is not known to the {self.architecture} family of this version; import a checkpoint without it"
        )

    def _key(self, key: str) -> str:
        return f"{self.architecture}.{key}" if self.container == GGUF else key

    def _get(self, key: str, default: Any) -> Any:
        value = self.metadata.get(self._key(key))
        if value is not None:
            return value
        if default is None:
            raise BadCheckpoint(
                f"{self.path}: the {self.architecture} model's metadata lacks {self._key(key)}; "
                "convert or fetch the checkpoint again"
            )
        return default

    def rows(self, tensor: str) -> int:
        if tensor not in self.tensors:
            raise BadCheckpoint(f"{self.path}: tensor {tensor} is missing; fetch the file again")
        return self.tensors[tensor][0]


@dataclass(frozen=True)
class Recording:
    """What a family's trace starts from: the trace, the step's fields, and the states all layers share."""

    t: Trace
    step: dict[str, Value]
    cache: Cache
    encodings: Mapping[str, Encoding]
    shapes: Mapping[str, tuple[int, ...]]

    def weight(self, name: str) -> Value:
        return self.t.weight(name, self.shapes[name], self.encodings[name])

    def kv(self, layer: int, heads: int, width: int) -> tuple[Value, Value, Value]:
        """A layer's K, V and the key positions, in the paged layout of the op table."""
        c = self.cache
        vector = 16 // c.dtype.nbytes
        return (
            self.t.state(f"k.{layer}", c.dtype, (c.pages, heads, width // vector, c.page_size, vector)),
            self.t.state(f"v.{layer}", c.dtype, (c.pages, heads, c.page_size, width)),
            self.t.state("key_positions", DType.U32, (c.pages, c.page_size)),
        )

    def slotted(self, name: str, *shape: int) -> Value:
        """A recurrent state: one of ``shape`` for each slot."""
        return self.t.state(name, DType.F32, (self.cache.state_slots, *shape))

    def tail(self, name: str, width: int) -> Value:
        """The last tokens' rows of ``width`` columns, beside a recurrent state."""
        return self.slotted(name, self.cache.tail, width)

    def adapter_matrices(self, weight: str) -> tuple[Value, Value]:
        """A [adapters, rank, columns] and B [adapters, rows, rank] beside a weight."""
        c, (rows, columns) = self.cache, self.shapes[weight]
        return (
            self.t.state(f"lora_a.{weight}", DType.F32, (c.adapters, c.adapter_rank, columns)),
            self.t.state(f"lora_b.{weight}", DType.F32, (c.adapters, rows, c.adapter_rank)),
        )

    def tokens(self) -> Value:
        return self.t.state("tokens", DType.U32, (self.cache.token_slots,))

    def logits(self, vocabulary: int) -> Value:
        return self.t.state("logits", DType.F32, (self.cache.logit_rows, vocabulary))

    def hidden(self, width: int) -> Value:
        return self.t.state("hidden", DType.F32, (self.cache.hidden_rows, width))


def begin(
    spec: Spec, bucket: Bucket, cache: Cache, weights: tuple[WeightSpec, ...], encodings: Mapping[str, Encoding]
) -> Recording:
    t = Trace(f"{spec.architecture}-{bucket}")
    return Recording(t, t.step(StepLayout(bucket)), cache, encodings, {w.name: w.shape for w in weights})
