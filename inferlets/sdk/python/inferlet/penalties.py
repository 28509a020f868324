"""What tokens that were made lose: counted here, subtracted on the device through a sparse table."""

from __future__ import annotations

import math
from collections.abc import Callable

from inferlet import model
from inferlet.samplers import Dry, Sampler

_LARGEST_POWER = 60.0  # of e


class Penalties:
    """Of one generation: tell it each token with ``add``."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._counts: dict[int, int] = {}
        self._repeats = Repeats(sampler.dry) if sampler.dry is not None else None

    def add(self, token: int) -> None:
        self._counts[token] = self._counts.get(token, 0) + 1
        if self._repeats is not None:
            self._repeats.add(token)

    def table(self) -> tuple[list[int], list[float]]:
        """The tokens that were made, and what is added to the logit of each."""
        presence, frequency = self._sampler.presence, self._sampler.frequency
        repeated = self._repeats.penalties() if self._repeats is not None else {}
        changes = [-presence - frequency * count - repeated.get(token, 0.0) for token, count in self._counts.items()]
        return list(self._counts), changes


def _text(token: int) -> str:
    return model.decode([token], special=True, continued=True)


class Repeats:
    """Where the end of what was made has stood before, for DRY.

    ``_lengths`` holds, for each earlier place that ends like the whole, how many tokens the two have in common. A new
    token keeps the places that it continues, so each costs as much as there are earlier places of the same token.
    """

    def __init__(self, dry: Dry, text: Callable[[int], str] = _text) -> None:
        self._dry = dry
        self._text = text
        self._made: list[int] = []
        self._places: dict[int, list[int]] = {}
        self._lengths: dict[int, int] = {}
        self._breakers: dict[int, bool] = {}

    def add(self, token: int) -> None:
        places = self._places.setdefault(token, [])
        if self._breaks(token):
            self._lengths = {}
        else:
            self._lengths = {place: self._lengths.get(place - 1, 0) + 1 for place in places}
        places.append(len(self._made))
        self._made.append(token)

    def penalties(self) -> dict[int, float]:
        """What each token that would carry a repetition on loses."""
        longest: dict[int, int] = {}
        for place, length in self._lengths.items():
            token = self._made[place + 1]
            if length >= self._dry.allowed and not self._breaks(token):
                longest[token] = max(longest.get(token, 0), length)
        return {token: self._penalty(length - self._dry.allowed) for token, length in longest.items()}

    def _penalty(self, excess: int) -> float:
        # The power overflows after some hundred repeated tokens; by then any large number will do.
        return self._dry.multiplier * math.exp(min(excess * math.log(self._dry.base), _LARGEST_POWER))

    def _breaks(self, token: int) -> bool:
        if token not in self._breakers:
            text = self._text(token)
            self._breakers[token] = any(breaker in text for breaker in self._dry.breakers)
        return self._breakers[token]
