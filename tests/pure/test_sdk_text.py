"""Stop strings and repetitions of the SDK, against their definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import sampling_oracle as oracle
from tests.support import sdk_parts  # noqa: F401  (it puts the SDK on the path)

from inferlet import Dry  # isort: skip
from inferlet._seeds import derived  # isort: skip
from inferlet.errors import UsageError  # isort: skip
from inferlet.penalties import Repeats  # isort: skip
from inferlet.stops import StopStrings  # isort: skip

TEXTS = st.text(alphabet="ab\U0001f600", max_size=24)


def given_out(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    """What a stream of pieces shows, and the string that ended it."""
    matcher, shown = StopStrings(stops), ""
    for piece in pieces:
        shown += matcher.push(piece)
        if matcher.found is not None:
            return shown, matcher.found
    return shown + matcher.flush(), None


def by_definition(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Character by character: at the first one that completes a stop string, the text before that string."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], max(ended, key=len)
    return text, None


@given(st.lists(TEXTS, max_size=8), st.lists(st.text(alphabet="ab\U0001f600", min_size=1, max_size=7), max_size=3))
def test_a_stream_shows_the_text_before_the_first_stop_string_however_it_is_cut(
    pieces: list[str], stops: list[str]
) -> None:
    assert given_out(pieces, stops) == by_definition("".join(pieces), stops)


@given(TEXTS, st.lists(st.text(alphabet="ab", min_size=1, max_size=7), min_size=1, max_size=3))
def test_nothing_is_held_back_that_can_t_begin_a_stop_string(text: str, stops: list[str]) -> None:
    matcher = StopStrings(stops)
    shown = matcher.push(text)
    if matcher.found is None:
        held = text[len(shown) :]
        assert held == "" or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize("stop", ["", 5, None])
def test_a_stop_string_has_a_character(stop: object) -> None:
    with pytest.raises(UsageError, match="can't stop a generation"):
        StopStrings(["x", stop])  # type: ignore[list-item]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 4), st.sets(st.integers(0, 3), max_size=2))
def test_repetitions_are_found_as_by_searching_for_them(made: list[int], allowed: int, breakers: set[int]) -> None:
    dry = Dry(multiplier=0.7, base=1.5, allowed=allowed, breakers=tuple(map(str, breakers)))
    repeats = Repeats(dry, text=str)
    for count, token in enumerate(made, 1):
        repeats.add(token)
        expected = oracle.dry_penalties(made[:count], 0.7, 1.5, allowed, breakers)
        assert repeats.penalties() == pytest.approx(expected)


def test_a_very_long_repetition_costs_a_finite_number() -> None:
    repeats = Repeats(Dry(multiplier=2.0, base=40.0), text=str)
    for _ in range(2000):
        repeats.add(1)
    assert repeats.penalties() == {1: pytest.approx(2 * math.exp(60))}


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_seeds_that_follow_from_a_seed_are_all_different(seed: int, other: int) -> None:
    family = {derived(seed, number) for number in range(200)}
    assert len(family) == 200
    assert all(0 <= one < 2**64 for one in family)
    assert other == seed or family.isdisjoint(derived(other, number) for number in range(200))
