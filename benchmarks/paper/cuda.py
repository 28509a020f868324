"""The CUDA backend's hot kernels on paper."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.paper.work import (
    BRAINS,
    EIGHTS,
    FIVES,
    FLOAT,
    FOURS,
    HALF,
    HALVES,
    HEADS,
    HIDDEN,
    INNER,
    SIXES,
    Device,
    Heads,
    Work,
    add_norm,
    decode,
    product,
    prompt,
    rope_append,
    sample,
    several,
)
from pie_edge.program.encodings import encoded_bytes


def card(name: str, bandwidth: float, processors: int, clock: float, tensor: float, *more: str) -> Device:
    """From its data sheet, ``clock`` in Hz. A processor does 128 multiply-adds of floats and 64 ``dp4a`` of four bytes in each
    turn of it; tensor cores multiply halves and sum floats, without sparsity, also by the names in ``more``."""
    units = {"float32": processors * clock * 128 * 2, "dp4a": processors * clock * 64 * 8, "tensor": tensor}
    return Device(name, bandwidth, units | dict.fromkeys(more, tensor))


CARDS = (
    card("L4", 300e9, 58, 2.04e9, 121e12),
    card("RTX 4090", 1008e9, 128, 2.52e9, 165e12),
    card("H200", 4800e9, 132, 1.83e9, 989e12, "wgmma"),
)
_BLOCK = 32
_SPLIT = 256
"""Keys of a split of a decode."""
_WIDE = Heads(4, 1, 256)
"""As Gemma 3 1B has them: too wide for the fragments of tensor cores."""
_EXPERTS, _CHOSEN, _EXPERT = 128, 8, (768, 2048)
"""As Qwen3-30B-A3B has them."""
_VALUE_HEADS, _KEY_HEADS, _STATE = 32, 16, 128
"""Of the gated delta rule, as Qwen3-Next has it: a head's state is so many values by as many."""


def tile(kernel: str, rows: int, unit: str) -> Work:
    """Weights once; x as two halves and their factors, once; two products each."""
    halves = rows * HIDDEN * 2 * HALF + rows * HIDDEN // _BLOCK * 2 * FLOAT
    nbytes = encoded_bytes(FOURS, (INNER, HIDDEN)) + halves + rows * INNER * FLOAT
    return Work(kernel, f"{INNER:,} × {HIDDEN:,}, 4 bits, {several(rows)}", nbytes, 4 * rows * INNER * HIDDEN, unit)


def halve(rows: int) -> Work:
    nbytes = rows * HIDDEN * (FLOAT + 2 * HALF) + rows * HIDDEN // _BLOCK * 2 * FLOAT
    return Work("halve", f"{HIDDEN:,}, {several(rows)}", nbytes, 4 * rows * HIDDEN, "float32")


def expert_linear(rows: int) -> Work:
    """The weights of experts that are chosen, once: of a prompt all."""
    outputs, columns = _EXPERT
    matrices = min(rows * _CHOSEN, _EXPERTS)
    nbytes = matrices * encoded_bytes(FOURS, _EXPERT) + rows * (columns + _CHOSEN * outputs) * FLOAT
    shape = f"{_CHOSEN} of {_EXPERTS} experts, {outputs} × {columns:,}, 4 bits, {several(rows)}"
    return Work("expert_linear", shape, nbytes, 4 * rows * _CHOSEN * outputs * columns, "dp4a")


def parts(keys: int) -> int:
    """Bytes of what a decode's splits leave each other: sums, a peak and a total for each head."""
    return keys // _SPLIT * HEADS.queries * (HEADS.width + 4) * FLOAT


def merge(keys: int) -> Work:
    """Each value of each split is weighed, the weight being computed for it."""
    operations = 3 * keys // _SPLIT * HEADS.queries * HEADS.width
    shape = f"{HEADS}, {keys // _SPLIT} splits"
    return Work("attention_merge", shape, parts(keys) + HEADS.asked(1), operations, "float32")


def gated_delta(rows: int) -> Work:
    """A head's state is read and written once, whatever the rows; for each of these it decays, is asked twice, and learns."""
    state = _VALUE_HEADS * _STATE * _STATE
    given = (2 * _KEY_HEADS + _VALUE_HEADS) * _STATE + 2 * _VALUE_HEADS
    nbytes = FLOAT * (2 * state + rows * (given + _VALUE_HEADS * _STATE))
    shape = f"{_VALUE_HEADS} heads of {_STATE} × {_STATE}, {several(rows)}"
    return Work("gated_delta", shape, nbytes, 7 * rows * state, "float32")


def works() -> Iterator[Work]:
    for name, encoding in (("4 bits", FOURS), ("5 bits", FIVES), ("6 bits", SIXES), ("8 bits", EIGHTS)):
        # Beside codes a value of x is two bytes, so that each weight is multiplied twice.
        yield product("linear", name, encoding, 1, "dp4a", products=2)
    yield product("linear", "bf16", BRAINS, 1, "float32")
    yield product("linear", "f16", HALVES, 1, "float32")
    yield product("linear", "4 bits", FOURS, 8, "dp4a", products=2)
    yield halve(512)
    yield tile("linear_tile", 512, "tensor")
    yield tile("linear_wgmma", 512, "wgmma")
    yield expert_linear(1)
    yield expert_linear(512)
    yield decode("attention_decode", HEADS, 4096, parts(4096))
    yield merge(4096)
    # Two halves of each query and each weight; keys and values that a row sees are half of them, on average.
    yield prompt("attention_tile", HEADS, 1024, "tensor", products=2 * (0.5 + 0.5))
    # Every key is scored, and the values of half of them are weighed.
    yield prompt("attention_prefill", _WIDE, 1024, "float32", products=1 + 0.5)
    yield gated_delta(1)
    yield gated_delta(512)
    yield add_norm(1)
    yield add_norm(512)
    yield rope_append(HEADS, 1)
    yield rope_append(HEADS, 512)
    yield sample("sample")
