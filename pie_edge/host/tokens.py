"""What tokens each inferlet read and chose, told when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pie_edge.control.cells import known_part

if TYPE_CHECKING:
    from pie_edge.control.queue import HostTensor, Work
    from pie_edge.control.space import Space

MOST = 1_000_000
"""Tokens of an inferlet that are kept; what comes after them is counted."""


@dataclass
class Tokens:
    """Of one context, in their order. Those ``chosen`` are what epilogues gave that could be tokens."""

    read: list[int] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)


@dataclass
class _Inferlet:
    contexts: dict[int, Tokens] = field(default_factory=dict)
    kept: int = 0
    left_out: int = 0


class TokenLog:
    """``tell`` gets an inferlet's name, what each of its contexts read and chose, and how many tokens were left out."""

    def __init__(self, tell: Callable[[str, Sequence[Tokens], int], None]) -> None:
        self._tell = tell
        self._inferlets: dict[Space, _Inferlet] = {}

    def answered(self, work: Work, results: Sequence[HostTensor]) -> None:
        inferlet = self._inferlets.setdefault(work.space, _Inferlet())
        read, chosen = known_part(work.tokens), _chosen(work, results)
        if inferlet.kept + len(read) + len(chosen) > MOST:
            inferlet.left_out += len(read) + len(chosen)
            return
        inferlet.kept += len(read) + len(chosen)
        tokens = inferlet.contexts.setdefault(id(work.context), Tokens())
        tokens.read += read
        tokens.chosen += chosen

    def closed(self, space: Space) -> None:
        inferlet = self._inferlets.pop(space, None)
        if inferlet is not None:
            self._tell(space.name, list(inferlet.contexts.values()), inferlet.left_out)


def _chosen(work: Work, results: Sequence[HostTensor]) -> list[int]:
    if work.epilogue is None:
        return []
    numbers = [number for number in work.epilogue.embeddable[:1] if number < work.epilogue.returned]
    return [token for number in numbers for token in results[number].data.cast("B").cast("I")]
