"""The variants of the hot kernels: their defaults by the kind of device."""

from __future__ import annotations

from dataclasses import dataclass

from pie_edge.backends.wgpu.device import Facts


@dataclass(frozen=True, slots=True)
class LinearVariant:
    """``splits`` invocations share a row's columns, and each computes ``groups`` row groups: of a gated unit half as many of
    each matrix, and half as many where a row takes more than one vector a block."""

    splits: int
    groups: int


@dataclass(frozen=True, slots=True)
class AttentionVariant:
    """``rows`` rows and ``chunk`` keys at a time by ``local`` invocations."""

    local: int
    rows: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Tuning:
    """What kernels are specialised with, beside what the model asks."""

    interleaved: int
    """Rows of a row group: part of the weights' layout, so it can't change once they are loaded."""
    linear: tuple[tuple[int, LinearVariant], ...]
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
    half_floats: bool
    """Whether kernels read halves by the type of their own, from ``shader-f16``; else they unpack words."""
    odd_bits: bool
    """Whether codes of 5 and 6 bits stay so narrow. Else they become bytes, which are quicker to unpack."""

    def tokens(self, rows: int) -> int:
        """Tokens an invocation of ``linear`` computes in a step of this many rows."""
        return next((tokens for tokens, _ in self.linear if tokens >= rows), self.linear[-1][0])

    def linear_variant(self, tokens: int) -> LinearVariant:
        return dict(self.linear)[tokens]


def default_tuning(facts: Facts) -> Tuning:
    return _software(facts) if facts.software else _hardware(facts)


def _software(facts: Facts) -> Tuning:
    """Workgroups of one vector of the processor: a barrier costs a switch of coroutines for each further one."""
    width = 8
    return Tuning(
        interleaved=width,
        linear=(
            (1, LinearVariant(1, 16)),
            (2, LinearVariant(1, 12)),
            (4, LinearVariant(1, 12)),
            (8, LinearVariant(1, 12)),
        ),
        decode=AttentionVariant(width, 1, 8 * width),
        prefill=AttentionVariant(width, 1, 8 * width),
        by_row=width,
        held=192,
        split=512,
        elementwise=8 * width,
        reduction=width,
        subgroups=facts.subgroups,
        half_floats=False,
        odd_bits=False,
    )


def _hardware(facts: Facts) -> Tuning:
    """Many invocations hide the latency of memory; a row group is as wide as the widest common subgroup."""
    return Tuning(
        interleaved=32,
        linear=(
            (1, LinearVariant(8, 1)),
            (2, LinearVariant(8, 1)),
            (4, LinearVariant(4, 1)),
            (8, LinearVariant(4, 2)),
        ),
        decode=AttentionVariant(64, 1, 128),
        prefill=AttentionVariant(64, 4, 64),
        by_row=64,
        held=64,
        split=256,
        elementwise=64,
        reduction=64,
        subgroups=facts.subgroups,
        half_floats=facts.half_floats,
        odd_bits=True,
    )
