"""A corrupt GGUF header gives a typed error within a second, whatever is corrupt: no crash, no hang, no huge read."""

from __future__ import annotations

import random
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.weights.checkpoint import open_checkpoint
from tests.support.checkpoints import small_gguf, write

REFUSALS = (BadCheckpoint, Unsupported)
EXTREMES = [0, 1, 2, 3, 0x7F, 0x80, 0xFF, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
EXTREMES += [1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 8]


def read_all(path: Path) -> str | None:
    """Open a file, decode all metadata and touch every tensor; return the refusal, or None if it was read."""
    start = time.monotonic()
    try:
        with open_checkpoint(path) as checkpoint:
            dict(checkpoint.metadata)
            for tensor in checkpoint.tensors.values():
                bytes(tensor.span.view())
    except REFUSALS as error:
        return str(error)
    finally:
        assert time.monotonic() - start < 1
    return None


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    made = small_gguf()
    for length in range(len(made.data)):
        assert read_all(write(tmp_path / "m.gguf", made.data[:length])) is not None, length
    assert read_all(write(tmp_path / "m.gguf", made.data)) is None


@pytest.mark.parametrize("value", EXTREMES, ids=hex)
def test_every_field_may_hold_any_value(tmp_path: Path, value: int) -> None:
    made = small_gguf()
    for what, offset, size in made.fields:
        data = bytearray(made.data)
        data[offset : offset + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
        refusal = read_all(write(tmp_path / "m.gguf", data))
        if value >= 1 << 32 and size == 8 and what != "big":
            assert refusal is not None, what
            assert "m.gguf" in refusal, what


def test_no_allocation_follows_an_unchecked_count(tmp_path: Path) -> None:
    made = small_gguf()
    tracemalloc.start()
    try:
        for what, offset, size in made.fields:
            data = bytearray(made.data)
            data[offset : offset + size] = (0xFFFFFF).to_bytes(8, "little")[:size]
            path = write(tmp_path / "m.gguf", data)
            tracemalloc.reset_peak()
            read_all(path)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20, what
    finally:
        tracemalloc.stop()


@settings(max_examples=300, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4),
    tail=st.binary(max_size=40),
)
def test_any_mutation_is_read_or_refused(tmp_path: Path, edits: list[tuple[int, bytes]], tail: bytes) -> None:
    data = bytearray(small_gguf().data)
    for place, patch in edits:
        at = place % len(data)
        data[at : at + len(patch)] = patch
    data[:4] = b"GGUF"
    read_all(write(tmp_path / "m.gguf", data + tail))


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_after_the_magic_are_refused(tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed)
    for _ in range(50):
        data = b"GGUF" + bytes([3, 0, 0, 0]) + noise.randbytes(noise.randrange(400))
        assert read_all(write(tmp_path / "m.gguf", data)) is not None
