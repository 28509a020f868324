"""What scalar expressions are made of, in the order in which they are computed, whatever they are written in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pie_edge.sampling.dialects.kernel import Loop
from pie_edge.sampling.dialects.scalar import Scalar


def needed(roots: Iterable[Scalar]) -> list[Scalar]:
    """Everything that the roots are made of, arguments first."""
    found: dict[int, Scalar] = {}
    pending = list(roots)
    while pending:
        scalar = pending.pop()
        if scalar.number not in found:
            found[scalar.number] = scalar
            pending += scalar.arguments
    return [found[number] for number in sorted(found)]


def roots(loop: Loop) -> Iterator[Scalar]:
    """What a loop computes for its own sake."""
    for reduction in loop.reductions:
        yield reduction.value
        if reduction.condition is not None:
            yield reduction.condition
    for store in loop.stores:
        yield from (store.offset, store.value)
