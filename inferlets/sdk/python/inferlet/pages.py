"""What level 1 hands out: KV pages and embeds that can be sliced by tokens, and distributions. ``inferlet.traits`` uses them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

from inferlet import model
from inferlet._host import Slice
from inferlet.errors import InvalidHandle, UsageError


class KvPages:
    """Tokens of KV pages that lie one after the other. ``kv[:n]`` is its first n tokens, ``kv[i]`` one of them, ``a + b`` both.

    Slices name the same pages; they hold nothing by themselves.
    """

    def __init__(self, parts: Sequence[Slice]) -> None:
        self.parts = tuple(part for part in parts if part[1] < part[2])
        self._length = sum(last - first for _, first, last in self.parts)

    @classmethod
    def whole(cls, pages: Sequence[int]) -> KvPages:
        return cls([(tuple(pages), 0, len(pages) * model.page_size())])

    def __len__(self) -> int:
        """In tokens."""
        return self._length

    def __getitem__(self, chosen: int | slice) -> KvPages:
        start, stop = _span(chosen, self._length)
        size = model.page_size()
        parts: list[Slice] = []
        before = 0
        for pages, first, last in self.parts:
            from_, to = max(start - before, 0) + first, min(stop - before, last - first) + first
            if from_ < to:
                skipped = from_ // size
                parts.append((pages[skipped : -(-to // size)], from_ - skipped * size, to - skipped * size))
            before += last - first
        return KvPages(parts)

    def __iter__(self) -> Iterator[KvPages]:
        return (self[index] for index in range(self._length))

    def __add__(self, other: KvPages) -> KvPages:
        return KvPages([*self.parts, *other.parts])

    def __repr__(self) -> str:
        shown = " + ".join(f"{list(pages)}[{first}:{last}]" for pages, first, last in self.parts)
        return f"<KV tokens {shown or 'none'}>"

    @property
    def pages(self) -> list[int]:
        """The ids of its pages. Raises UsageError if it has only some of the tokens of one."""
        size = model.page_size()
        for pages, first, last in self.parts:
            if first or last != len(pages) * size:
                raise UsageError(f"{self!r} is a part of a page of {size} tokens; this call takes whole pages")
        return [page for pages, _, _ in self.parts for page in pages]


class Embeds:
    """Slots for tokens to forward, or for what a pass says comes next. ``e[:n]``, ``e[i]`` and ``a + b`` as for a list."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = tuple(ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, chosen: int | slice) -> Embeds:
        start, stop = _span(chosen, len(self.ids))
        return Embeds(self.ids[start:stop])

    def __iter__(self) -> Iterator[Embeds]:
        return (Embeds((one,)) for one in self.ids)

    def __add__(self, other: Embeds) -> Embeds:
        return Embeds(self.ids + other.ids)

    def __repr__(self) -> str:
        return f"<embeds {list(self.ids)}>"


class _Random(Protocol):
    def random(self) -> float: ...


class Distribution:
    """The likeliest next tokens, likeliest first, with their probabilities among all of the vocabulary."""

    def __init__(self, tokens: Sequence[int], probabilities: Sequence[float]) -> None:
        self.tokens = list(tokens)
        self.probabilities = list(probabilities)

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(self.tokens, self.probabilities, strict=True)

    def max_index(self) -> int:
        """The likeliest token."""
        return self.tokens[0]

    def probability(self, token: int) -> float:
        """0 for one that isn't among the likeliest."""
        return self.probabilities[self.tokens.index(token)] if token in self.tokens else 0.0

    def sample(self, temperature: float = 1.0, *, source: _Random = random) -> int:
        """One of them by chance, as likely as they are among one another at this temperature. ``random``, which ``source`` is
        by default, follows from the instance's seed."""
        if temperature < 0:
            raise UsageError(f"a temperature of {temperature} was given; it must be 0 or more")
        if temperature == 0:
            return self.max_index()
        # Of the largest, so that none overflows.
        weights = [(one / self.probabilities[0]) ** (1 / temperature) for one in self.probabilities]
        left = source.random() * sum(weights)
        for token, weight in zip(self.tokens, weights, strict=True):
            left -= weight
            if left < 0:
                return token
        return self.tokens[-1]


def _span(chosen: int | slice, length: int) -> tuple[int, int]:
    """Start and stop. A slice is cut to what there is, as for a list."""
    if isinstance(chosen, slice):
        start, stop, step = chosen.indices(length)
        if step != 1:
            raise UsageError(f"a step of {step} was given; KV pages and embeds are sliced without one")
        return start, max(start, stop)
    start = chosen + length if chosen < 0 else chosen
    if not 0 <= start < length:
        raise InvalidHandle(f"number {chosen} of {length} was asked for")
    return start, start + 1
