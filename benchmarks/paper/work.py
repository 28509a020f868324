"""A launch of a kernel on paper: the bytes that it has to move, the operations that it does, and the time that a device's figures
leave it. Shapes are those of a model of 8 B parameters; keys and values are halves, all other values float32.

What blocks read again is taken to come from the second-level cache, where that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness import table
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, encoded_bytes

HIDDEN, INNER, VOCABULARY = 4096, 14336, 128256
FOURS, FIVES, SIXES = Affine(4, 32, DType.F16, None), Affine(5, 32, DType.F16, 16), Affine(6, 32, DType.F16, 32)
EIGHTS, HALVES, BRAINS = Affine(8, 32, DType.F16, 128), Dense(DType.F16), Dense(DType.BF16)
FLOAT, HALF = 4, 2


@dataclass(frozen=True)
class Device:
    """Bytes a second, and operations a second of each unit that it has; a multiplication and an addition are two."""

    name: str
    bandwidth: float
    units: Mapping[str, float]


@dataclass(frozen=True)
class Work:
    """Of one launch."""

    kernel: str
    shape: str
    nbytes: int
    operations: int
    unit: str
    """The one that does most of them."""

    def seconds(self, device: Device) -> tuple[float, bool]:
        """At least; and whether memory is what takes them. Raises KeyError where the device lacks the unit."""
        memory, arithmetic = self.nbytes / device.bandwidth, self.operations / device.units[self.unit]
        return max(memory, arithmetic), memory >= arithmetic


@dataclass(frozen=True)
class Heads:
    """Of a model's attention: how many are of queries, how many of keys, and how wide each is."""

    queries: int
    keys: int
    width: int

    def __str__(self) -> str:
        return f"{self.queries} heads of {self.width}, {self.keys} of keys"

    def cached(self, tokens: int) -> int:
        """Bytes of keys and values."""
        return 2 * tokens * self.keys * self.width * HALF

    def asked(self, rows: int) -> int:
        """Bytes of queries, or of what attention gives for them."""
        return rows * self.queries * self.width * FLOAT


HEADS = Heads(32, 8, 128)


def product(
    kernel: str, name: str, encoding: Encoding, rows: int, unit: str, products: int = 1, times: int = 1
) -> Work:
    """x · weightᵀ: weights are read so many ``times``, and each is multiplied ``products`` times for a row of x."""
    nbytes = times * encoded_bytes(encoding, (INNER, HIDDEN)) + rows * (HIDDEN + INNER) * FLOAT
    shape = f"{INNER:,} × {HIDDEN:,}, {name}, {several(rows)}"
    return Work(kernel, shape, nbytes, 2 * products * rows * INNER * HIDDEN, unit)


def decode(kernel: str, heads: Heads, keys: int, given: int) -> Work:
    """Each key and value once, whatever queries share it; ``given`` are the bytes of what it writes."""
    nbytes = heads.cached(keys) + heads.asked(1) + given
    return Work(kernel, f"{heads}, {keys:,} keys", nbytes, 4 * keys * heads.queries * heads.width, "float32")


def prompt(kernel: str, heads: Heads, rows: int, unit: str, products: float) -> Work:
    """Attention of a prompt with nothing before it. For each query and each of the ``rows``, ``products`` of as many columns as
    a head has."""
    nbytes = heads.cached(rows) + 2 * heads.asked(rows)
    operations = int(2 * products * rows * rows * heads.queries * heads.width)
    return Work(kernel, f"{heads}, {several(rows)}", nbytes, operations, unit)


def add_norm(rows: int) -> Work:
    nbytes = (4 * rows + 1) * HIDDEN * FLOAT
    return Work("add_rms_norm", f"{HIDDEN:,}, {several(rows)}", nbytes, 5 * rows * HIDDEN, "float32")


def rope_append(heads: Heads, rows: int, more: int = 0) -> Work:
    """``more`` bytes a row than queries, keys and values once in and once out."""
    new = 2 * heads.keys * heads.width
    nbytes = 2 * heads.asked(rows) + rows * (new * (FLOAT + HALF) + more)
    operations = 3 * rows * (heads.queries + heads.keys) * heads.width
    return Work("rope_append", f"{heads}, {several(rows)}", nbytes, operations, "float32")


def sample(kernel: str) -> Work:
    """A row of logits is read once for its largest and the first digit of its threshold, and once more for what may be drawn."""
    nbytes = 2 * VOCABULARY * FLOAT
    return Work(kernel, f"top-k and top-p of {VOCABULARY:,} logits", nbytes, 8 * VOCABULARY, "float32")


def several(rows: int) -> str:
    return f"{rows:,} row{'s' * (rows > 1)}"


def told(works: Iterable[Work], devices: Sequence[Device]) -> str:
    """A table: microseconds on each device that has the unit."""
    head = ("kernel", "shape", "MB", "operations a byte", "unit", *(f"{device.name}, µs" for device in devices))
    return table(head, [[*_of(work), *(_time(work, device) for device in devices)] for work in works])


def _of(work: Work) -> list[str]:
    intensity = work.operations / work.nbytes
    return [f"`{work.kernel}`", work.shape, f"{work.nbytes / 1e6:,.2f}", f"{intensity:,.1f}", work.unit]


def _time(work: Work, device: Device) -> str:
    if work.unit not in device.units:
        return "–"
    seconds, memory = work.seconds(device)
    return f"{1e6 * seconds:,.{1 if seconds >= 1e-7 else 2}f} {'m' if memory else 'a'}"
