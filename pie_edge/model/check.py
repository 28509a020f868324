"""Whether a checkpoint is what its metadata says: nothing missing, nothing left over, no number that a model can't have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.model.rope import Rope
from pie_edge.model.spec import Facts, Spec, WeightSpec

_COUNTS = ("vocabulary", "context", "hidden", "layers", "heads", "kv_heads", "head_dim", "mlp")
_DERIVED = (
    *(".rotary_emb.inv_freq", ".attention.masked_bias", ".attn.masked_bias", ".attn.bias"),
    *("rope_factors_long.weight", "rope_factors_short.weight"),
)
"""Buffers that old exports carry and that follow from the configuration, and the set of factors that isn't in use."""


def check(facts: Facts, spec: Spec, weights: tuple[WeightSpec, ...]) -> None:
    """Every weight is there in the right shape, and the facts agree with each other. Raises BadCheckpoint or Unsupported."""
    check_counts(facts, {fact: getattr(spec, fact) for fact in _COUNTS})
    for name, value in _factors(spec):
        # A cap of 0 is none.
        if not 0 <= value < math.inf or (value == 0 and not name.endswith("softcap")):
            raise BadCheckpoint(
                f"{facts.path}: the {spec.architecture} model states {name} = {value}; it must be a positive number. "
                "Fetch the file again"
            )
    _check_tensors(facts, spec, weights)


def check_counts(facts: Facts, found: Mapping[str, Any]) -> None:
    """The numbers that shapes are made of, by their names in ``Spec``. Raises BadCheckpoint."""
    for fact in _COUNTS:
        if found[fact] <= 0:
            raise BadCheckpoint(f"{facts.path}: the {facts.architecture} model states {fact} = {found[fact]}")
    if found["heads"] % found["kv_heads"]:
        raise BadCheckpoint(
            f"{facts.path}: {found['heads']} heads can't share {found['kv_heads']} key-value heads evenly"
        )


def _factors(spec: Spec) -> Iterable[tuple[str, float]]:
    """Every number of a Spec that is multiplied or divided by."""
    for field in fields(spec):
        value = getattr(spec, field.name)
        if isinstance(value, float):
            yield field.name, value
        elif isinstance(value, Rope):
            yield from ((f"{field.name} {name}", getattr(value, name)) for name in ("base", "scale", "magnitude"))
            yield from ((f"{field.name} factor", factor) for factor in value.factors)


def _check_tensors(facts: Facts, spec: Spec, weights: tuple[WeightSpec, ...]) -> None:
    parts: dict[str, list[WeightSpec]] = {}
    for weight in weights:
        if weight.source:
            parts.setdefault(weight.source, []).append(weight)
    known = (name for name in facts.tensors.keys() - parts.keys() if not name.endswith(_DERIVED))
    unread = sorted(name for name in known if not name.startswith(spec.unread))
    if unread:
        # Leaving out a bias or a norm would give fluent nonsense, so a tensor that nobody reads is refused.
        raise Unsupported(
            f"{facts.path}: tensor {unread[0]} ({len(unread)} such) has no place in the {spec.architecture} family of this "
            "version; import a checkpoint without it"
        )
    for source, sharers in parts.items():
        found = facts.tensors.get(source)
        if found is None:
            raise BadCheckpoint(f"{facts.path}: tensor {source} is missing; fetch the file again")
        if wide(found) != wide(shape := _whole(sharers)):
            raise BadCheckpoint(
                f"{facts.path}: tensor {source} has shape {list(found)}; its metadata says {list(shape)}"
            )


def wide(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without axes of one, which convolutions have and which say nothing."""
    return tuple(count for count in shape if count != 1)


def _whole(sharers: list[WeightSpec]) -> tuple[int, ...]:
    """The shape of the tensor whose rows these weights share out."""
    one = sharers[0]
    shape = (sum(weight.shape[0] for weight in sharers) // max(one.matrices, 1), *one.shape[1:])
    shape = shape[::-1] if one.transposed else shape
    return (one.matrices, *shape) if one.matrices else shape
