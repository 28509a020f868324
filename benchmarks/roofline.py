"""What the CUDA kernels move and compute, on paper and on the emulator: ``python -m benchmarks.roofline [--write]``.

On paper: of each hot kernel, at the shapes of a model of 8 B parameters, the bytes that it has to move, the operations that it
does on the unit which does most of them, and the time that a card's data sheet leaves it. On the emulator: the sectors of 32
bytes that each warp's access touches, and the turns that accesses to shared memory take, of the same kernels run on the CPU.
``--write`` puts both into ``docs/backends.md``; a test compares them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import table
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, encoded_bytes

PAGE = Path(__file__).resolve().parent.parent / "docs" / "backends.md"
BEGIN, END = "<!-- paper: python -m benchmarks.roofline --write -->", "<!-- end of paper -->"


@dataclass(frozen=True)
class Card:
    """From its data sheet: bytes a second, and operations a second of each unit; a multiplication and an addition are two."""

    name: str
    bandwidth: float
    units: Mapping[str, float]

    @classmethod
    def of(cls, name: str, bandwidth: float, processors: int, clock: float, tensor: float) -> Card:
        """``clock`` in Hz; a processor does 128 multiply-adds of floats and 64 ``dp4a`` of four bytes in each turn of it."""
        floats, bytes_ = processors * clock * 128 * 2, processors * clock * 64 * 8
        return cls(name, bandwidth, {"float32": floats, "dp4a": bytes_, "tensor": tensor})


CARDS = (
    Card.of("L4", 300e9, 58, 2.04e9, 121e12),
    Card.of("RTX 4090", 1008e9, 128, 2.52e9, 165e12),
    Card.of("H200", 4800e9, 132, 1.83e9, 989e12),
)
"""Tensor cores multiply halves and sum floats, without sparsity."""


@dataclass(frozen=True)
class Work:
    """Of one launch of a kernel."""

    kernel: str
    shape: str
    nbytes: int
    operations: int
    unit: str

    def seconds(self, card: Card) -> tuple[float, bool]:
        """At least; and whether memory is what takes them."""
        memory, arithmetic = self.nbytes / card.bandwidth, self.operations / card.units[self.unit]
        return max(memory, arithmetic), memory >= arithmetic


HIDDEN, INNER, HEADS, KV_HEADS, HEAD, VOCABULARY = 4096, 14336, 32, 8, 128, 128256
FOURS, SIXES, BRAINS = Affine(4, 32, DType.F16, None), Affine(6, 32, DType.F16, 32), Dense(DType.BF16)
_FLOAT, _HALF, _BLOCK = 4, 2, 32


def product(name: str, encoding: Encoding, rows: int) -> Work:
    """``linear``: beside codes a value of x is two bytes, so that each weight is multiplied twice."""
    nbytes = encoded_bytes(encoding, (INNER, HIDDEN)) + rows * (HIDDEN + INNER) * _FLOAT
    integers = isinstance(encoding, Affine)
    operations = 2 * rows * INNER * HIDDEN * (2 if integers else 1)
    shape = f"{INNER:,} × {HIDDEN:,}, {name}, {rows} row{'s' * (rows > 1)}"
    return Work("linear", shape, nbytes, operations, "dp4a" if integers else "float32")


def tile(kernel: str, rows: int) -> Work:
    """Weights once; x as two halves and its factors, once, for the second-level cache has it then; two products each."""
    halves = rows * HIDDEN * 2 * _HALF + rows * HIDDEN // _BLOCK * 2 * _FLOAT
    nbytes = encoded_bytes(FOURS, (INNER, HIDDEN)) + halves + rows * INNER * _FLOAT
    return Work(kernel, f"{INNER:,} × {HIDDEN:,}, 4 bits, {rows} rows", nbytes, 4 * rows * INNER * HIDDEN, "tensor")


def halve(rows: int) -> Work:
    nbytes = rows * HIDDEN * (_FLOAT + 2 * _HALF) + rows * HIDDEN // _BLOCK * 2 * _FLOAT
    return Work("halve", f"{rows} × {HIDDEN:,}", nbytes, 4 * rows * HIDDEN, "float32")


def decode(keys: int) -> Work:
    """Each key and value once, whatever queries share it."""
    nbytes = keys * KV_HEADS * HEAD * 2 * _HALF + 2 * HEADS * HEAD * _FLOAT
    return Work(
        "attention_decode",
        f"{HEADS} heads of {HEAD}, {KV_HEADS} of keys, {keys:,} keys",
        nbytes,
        4 * keys * HEADS * HEAD,
        "float32",
    )


def prefill(rows: int) -> Work:
    """Of a prompt with nothing before it: keys and values are read by every 64 queries of a head's that share a block, half of
    them on average; two halves of each query and each weight."""
    queries, sharing = rows * HEADS, HEADS // KV_HEADS
    tiles = queries // KV_HEADS // 64
    nbytes = tiles * KV_HEADS * (rows // 2) * HEAD * 2 * _HALF + 2 * queries * HEAD * _FLOAT
    shape = f"{HEADS} heads of {HEAD}, {sharing} to a key's, {rows} rows"
    return Work("attention_tile", shape, nbytes, 2 * 4 * queries * (rows // 2) * HEAD, "tensor")


def norm() -> Work:
    return Work("add_rms_norm", f"{HIDDEN:,}, one row", 5 * HIDDEN * _FLOAT, 5 * HIDDEN, "float32")


def rope_append() -> Work:
    values = (HEADS + 2 * KV_HEADS) * HEAD
    nbytes = values * _FLOAT + HEADS * HEAD * _FLOAT + 2 * KV_HEADS * HEAD * _HALF
    return Work("rope_append", f"{HEADS} + {KV_HEADS} heads of {HEAD}, one row", nbytes, 3 * values, "float32")


def sample() -> Work:
    """A row of logits is read once into registers' reach, and once more for its draw."""
    return Work("nodes_sample", f"{VOCABULARY:,} logits", 2 * VOCABULARY * _FLOAT, 8 * VOCABULARY, "float32")


def works() -> Iterator[Work]:
    yield product("4 bits", FOURS, 1)
    yield product("6 bits", SIXES, 1)
    yield product("bf16", BRAINS, 1)
    yield product("4 bits", FOURS, 8)
    yield halve(512)
    yield tile("linear_tile", 512)
    yield tile("linear_wgmma", 512)
    yield decode(4096)
    yield prefill(1024)
    yield norm()
    yield rope_append()
    yield sample()


def paper() -> str:
    rows = []
    for work in works():
        times = []
        for card in CARDS:
            seconds, memory = work.seconds(card)
            own = card.name == "H200" or work.kernel != "linear_wgmma"
            times.append(f"{1e6 * seconds:,.1f} {'m' if memory else 'a'}" if own else "–")
        intensity = work.operations / work.nbytes
        rows.append(
            [f"`{work.kernel}`", work.shape, f"{work.nbytes / 1e6:,.2f}", f"{intensity:,.1f}", work.unit, *times]
        )
    head = ("kernel", "shape", "MB", "operations a byte", "unit", *(f"{card.name}, µs" for card in CARDS))
    return table(head, rows)


COUNTED: Mapping[str, tuple[str, str]] = {
    "4 bits, one row": ("linear", "linear affine4g32-f16-min 1 rows"),
    "8 bits, one row": ("linear", "linear affine8g32-f16-z16 1 rows"),
    "6 bits, two rows": ("linear", "linear affine6g16-f32-z32 2 rows"),
    "bf16, one row": ("linear", "linear bf16 1 rows"),
    "4 bits, 70 rows": ("linear_tile", "linear affine4g32-f16-min, 70 rows"),
    "f16, 70 rows": ("linear_tile", "linear f16, 70 rows"),
    "224 columns of 70 rows": ("halve", "linear affine4g32-f16-min, 70 rows"),
    "two experts' rows": ("expert_linear", "expert_linear bf16, rows past the true ones"),
    "a long decode": ("attention_decode", "halves attention long decode"),
    "a batch with prompts": ("attention_tile", "halves attention batch"),
    "768 values": ("rms_norm", "rms_norm 576x1 1 rows"),
}
"""What is run: a kernel, and a case of the tests that launches it."""


def counts() -> str:
    """Runs the cases on a traced emulator."""
    from pie_edge.backends.cuda import nvrtc
    from tests.backend.cuda_emulated import compiler, counted, opened
    from tests.backend.device_cases import check
    from tests.simt import build

    backend, rows = opened(compile_kernels=compiler(nvrtc.sources(), build.TRACED)), []
    for name, (kernel, case) in COUNTED.items():
        before = counted(kernel)
        check(backend, case)
        narrow, wide, shared = (
            {key: now[key] - then[key] for key in now} for then, now in zip(before, counted(kernel), strict=True)
        )
        rows.append([f"`{kernel}`", name, *_sectors(narrow), *_sectors(wide), _turns(shared)])
    asyncio.run(backend.close())
    head = (
        "kernel",
        "of",
        "narrow accesses",
        "sectors a warp's",
        "wide accesses",
        "sectors a warp's",
        "turns in shared memory",
    )
    return table(head, rows)


def _sectors(found: Mapping[str, int]) -> tuple[str, str]:
    """How many accesses of warps, and the sectors of each beside the fewest that its bytes can lie in."""
    count = found["instructions"]
    if not count:
        return "0", "–"
    return f"{count:,}", f"{found['sectors'] / count:.2f} of {found['ideal_sectors'] / count:.2f}"


def _turns(found: Mapping[str, int]) -> str:
    return f"{found['waves'] / found['ideal_waves']:.2f} × the fewest" if found["ideal_waves"] else "–"


def rendered() -> str:
    return f"{BEGIN}\n{paper()}\n\n{counts()}\n{END}"


def written(page: str) -> str:
    """What a page has between its markers, with them. Raises ValueError where it lacks one."""
    return page[page.index(BEGIN) : page.index(END) + len(END)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into docs/backends.md")
    found = rendered()
    print(found)
    if parser.parse_args(argv).write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page.replace(written(page), found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
