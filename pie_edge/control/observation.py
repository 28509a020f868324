"""Observing a pass: whose attention, in which layers."""

from __future__ import annotations

from dataclasses import dataclass

from pie_edge.errors import InvalidHandle, Unsupported
from pie_edge.program.step import LAYER_WORDS


@dataclass(frozen=True, slots=True)
class Observation:
    """``rows`` are indices into the pass's tokens; of each it gives how its attention, as a mean over heads and ``layers``, was
    spread over the pages of the pass."""

    layers: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def words(self) -> list[int]:
        """The layers as a step's ``mass_layers`` has them, of one row."""
        found = [0] * LAYER_WORDS
        for layer in self.layers:
            found[layer // 32] |= 1 << layer % 32
        return found


def check(observation: Observation, layers: int, backend: str, who: str) -> None:
    """Raises Unsupported where the device can observe none (``layers`` is how many), InvalidHandle for what isn't there."""
    if not layers:
        raise Unsupported(
            f"{who} observes attention, and the {backend} backend has no trait introspective here; ask available_traits first"
        )
    chosen = observation.layers
    wrong = [layer for layer in chosen if not 0 <= layer < layers]
    if wrong:
        raise InvalidHandle(f"{who} observes layer {wrong[0]}; the model has layers 0…{layers - 1}")
    if not chosen:
        raise InvalidHandle(f"{who} observes no layer; name at least one of 0…{layers - 1}")
    if len(set(chosen)) != len(chosen):
        raise InvalidHandle(f"{who} observes layers {list(chosen)}, one of them twice; name each once")
    if not observation.rows:
        raise InvalidHandle(f"{who} observes layers {list(chosen)} of no row; name a row, or an output, to observe")
