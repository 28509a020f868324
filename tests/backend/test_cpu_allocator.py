"""The cpu backend's allocator, and what its memory promises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pie_edge.backends.cpu.allocator import ALIGNMENT, Allocator
from pie_edge.backends.cpu.memory import LinearMemory, Region
from pie_edge.backends.cpu.module import engine


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3000)), max_size=60))
def test_allocations_never_overlap_and_everything_comes_back(actions: list[tuple[bool, int]]) -> None:
    allocator = Allocator(100, 20_000)
    free = allocator.available
    held: list[tuple[int, int]] = []
    for give_back, number in actions:
        if give_back and held:
            allocator.give_back(held.pop(number % len(held))[0])
            continue
        offset = allocator.take(number)
        if offset is None:
            continue
        assert offset % ALIGNMENT == 0
        assert 100 <= offset <= 20_000 - number
        assert all(offset + number <= start or end <= offset for start, end in held)
        held.append((offset, offset + max(number, 1)))
    for offset, _ in held:
        allocator.give_back(offset)
    assert allocator.available == free
    assert allocator.take(free) is not None


def test_memory_that_was_used_before_is_zeroed_again() -> None:
    memory = LinearMemory(engine(), 16, 65535)
    memory.open(1 << 16, 1 << 20)
    first = memory.allocate(1000, "a test")
    memory.view(first.offset, 1000)[:] = b"\xff" * 1000
    memory.free(first)
    second = memory.allocate(5000, "a test")
    assert second.offset == first.offset
    assert not any(memory.view(second.offset, 5000))


def test_memory_grows_to_what_is_allocated() -> None:
    memory = LinearMemory(engine(), 16, 65535)
    memory.open(1 << 16, 3 << 30)
    region: Region = memory.allocate(1 << 28, "a test")
    memory.view(region.offset + region.nbytes - 1, 1)[:] = b"\x01"
    assert memory.shared.data_len() >= region.offset + region.nbytes
