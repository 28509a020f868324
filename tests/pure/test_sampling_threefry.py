"""Counter-based random numbers: the published vectors, and the same words from scalar and array code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pie_edge.program import node_reference_random as arrays
from pie_edge.program import threefry

U32 = st.integers(0, 2**32 - 1)

# Random123's own known answers (kat_vectors): counter, key, result.
KNOWN_ANSWERS = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_threefry_gives_the_published_answers(counter: Any, key: Any, answer: Any) -> None:
    assert threefry.threefry2x32(key, counter) == answer
    found = arrays.threefry2x32(np.uint32(key)[:, None], np.uint32(counter)[:, None])
    assert (int(found[0][0]), int(found[1][0])) == answer


@given(seed=st.tuples(U32, U32), position=U32, draw=st.integers(0, 511), count=st.integers(1, 9))
def test_arrays_and_scalars_draw_the_same_words(seed: tuple[int, int], position: int, draw: int, count: int) -> None:
    stream = threefry.stream(seed, position, draw)
    expected = [threefry.word(stream, element) for element in range(count)]
    keys = arrays.streams(np.asarray([seed], np.uint32), np.asarray([position], np.uint32), draw)
    assert arrays.words(keys, count)[0].tolist() == expected
    assert arrays.words_at(keys, np.arange(count)).tolist() == expected
    assert arrays.uniform(np.asarray(expected, np.uint32)).tolist() == [threefry.uniform(word) for word in expected]


@pytest.mark.parametrize("word", [0, 255, 2**31, 2**32 - 1])
def test_a_uniform_is_never_0_or_1_and_its_gumbel_is_finite_and_below_the_stated_bound(word: int) -> None:
    number = arrays.uniform(np.asarray([word], np.uint32))
    assert 0 < float(number[0]) < 1
    assert math.isfinite(float(arrays.gumbel(number)[0]))
    assert float(arrays.gumbel(number)[0]) < arrays.GUMBEL_MAX


def test_uniforms_have_the_moments_of_a_uniform_and_neighbours_are_uncorrelated() -> None:
    keys = arrays.streams(np.asarray([[1, 2]], np.uint32), np.asarray([3], np.uint32), 0)
    numbers = arrays.uniform(arrays.words(keys, 200_000))[0].astype(np.float64)
    # Five standard deviations of the means of 200,000 draws.
    assert abs(numbers.mean() - 1 / 2) < 5 * math.sqrt(1 / 12 / 200_000)
    assert abs(numbers.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / 200_000)
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 5 / math.sqrt(200_000)


VALUES = st.floats(-60, 60, width=32) | st.sampled_from([math.inf, -math.inf])


@given(
    rows=st.lists(st.lists(VALUES, min_size=9, max_size=9), min_size=1, max_size=5), seed=st.tuples(U32, U32), first=U32
)
def test_drawing_only_for_entries_that_can_win_finds_the_winner_of_all(
    rows: list[list[float]], seed: tuple[int, int], first: int
) -> None:
    values, offsets = np.asarray(rows, np.float32), (np.arange(len(rows)) + first) % 2**20 * 9
    seeds = np.asarray([seed] * len(rows), np.uint32)
    keys = arrays.streams(seeds, np.arange(len(rows), dtype=np.uint32), 1)
    found = arrays.gumbel_argmax(values, keys, offsets)
    for row, value in enumerate(values):
        noise = arrays.gumbel_at((keys[0][row : row + 1], keys[1][row : row + 1]), offsets[row] + np.arange(9))
        assert found[row] == int(np.argmax(value + noise))
