"""The variants of the hot kernels: what is chosen by device. Defaults are each backend's; measuring is ``tune.py``'s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class LinearVariant:
    """Shape of a ``linear`` launch. In registers (``linear``) ``splits`` invocations share a row's columns, and each
    computes ``groups`` row groups, of a gated unit half as many of each matrix. As tiles (``linear_tile``, which Vulkan has) a
    workgroup computes ``groups`` row groups from shared memory."""

    splits: int
    groups: int
    tile: bool = False


@dataclass(frozen=True, slots=True)
class AttentionVariant:
    """Shape of an ``attention`` launch: ``rows`` rows and ``chunk`` keys at a time by ``local`` invocations."""

    local: int
    rows: int
    chunk: int


Linear = tuple[tuple[int, LinearVariant], ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """What kernels are specialised with, beside what the model asks."""

    interleaved: int
    """Rows of a row group: part of the weights' layout, so it can't change once they are loaded."""
    linear: Linear
    """By tokens an invocation computes, in rising order; the last one serves every larger step."""
    decode: AttentionVariant
    prefill: AttentionVariant
    by_row: int
    """Invocations of an ``attention_rows`` workgroup."""
    held: int
    """Values of queries that one of them may hold; wider heads are left to ``attention``."""
    split: int
    """Keys of a split of a decode."""
    elementwise: int
    """Invocations of a workgroup."""
    reduction: int
    subgroups: bool
    """Whether kernels use subgroup operations."""
    odd_bits: bool
    """Whether codes of 5 and 6 bits, and those into a table, stay so narrow: less to read where memory is what takes the time.
    Else they become bytes, which are quicker to unpack: on a software device a product takes a tenth to a sixth less time than
    from codes of 5 and 6 bits, and half of that from a table's."""
    texels: bool = False
    """Whether ``linear`` and ``attention`` load texels: where a load of words is one for each lane and word, and a texel's is
    one for all four. WGSL has none of buffers."""
    half_floats: bool = False
    """Whether WGSL reads halves by the type of their own, from ``shader-f16``; else it unpacks words."""

    @classmethod
    def restored(cls, found: Mapping[str, Any]) -> Self:
        """From what was kept of one. Raises KeyError, TypeError or ValueError."""
        linear = tuple((int(tokens), LinearVariant(**variant)) for tokens, variant in found["linear"])
        attention = {name: AttentionVariant(**found[name]) for name in ("decode", "prefill")}
        return cls(**{**found, **attention, "linear": linear})

    def tokens(self, rows: int) -> int:
        """Tokens an invocation of ``linear`` computes in a step of this many rows."""
        return next((tokens for tokens, _ in self.linear if tokens >= rows), self.linear[-1][0])

    def linear_variant(self, tokens: int) -> LinearVariant:
        return dict(self.linear)[tokens]


def software(width: int, linear: Linear, *, subgroups: bool, texels: bool) -> Tuning:
    """Workgroups of one vector of the processor, ``width`` lanes: a barrier costs a switch of coroutines for each further one,
    and a load as much as fifty arithmetic instructions, so that an invocation takes as many rows as its registers hold."""
    attention = AttentionVariant(width, 1, 8 * width)
    return Tuning(
        interleaved=width,
        linear=linear,
        decode=attention,
        prefill=attention,
        by_row=width,
        held=192,
        split=512,
        elementwise=8 * width,
        reduction=width,
        subgroups=subgroups,
        odd_bits=False,
        texels=texels,
    )


def hardware(tiles: Linear, reduction: int, *, subgroups: bool, half_floats: bool = False) -> Tuning:
    """Many invocations hide the latency of memory; a row group is as wide as the widest common subgroup, so that its codes
    are 512 bytes in a row. ``tiles`` are for more tokens than an invocation has registers for."""
    return Tuning(
        interleaved=32,
        linear=(
            (1, LinearVariant(8, 1)),
            (2, LinearVariant(8, 1)),
            (4, LinearVariant(4, 1)),
            (8, LinearVariant(4, 2)),
            *tiles,
        ),
        decode=AttentionVariant(64, 1, 128),
        prefill=AttentionVariant(64, 4, 64),
        by_row=64,
        held=64,
        split=256,
        elementwise=64,
        reduction=reduction,
        subgroups=subgroups,
        odd_bits=True,
        half_floats=half_floats,
    )
