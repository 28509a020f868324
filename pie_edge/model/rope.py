"""Rotary positions as checkpoints declare them: linear, Llama 3, YaRN and LongRoPE scaling, in both containers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pie_edge.errors import BadCheckpoint
from pie_edge.model.spec import GGUF, Facts, Recording, WeightSpec
from pie_edge.program import trace as ops
from pie_edge.program.ops import Value

FACTORS = "rope_factors"
"""The weight that divides frequencies."""
_MOST = 1 << 16
"""Values of a head that a file may turn: a damaged count must not become a list of billions."""
_LONG, _SHORT, _FREQUENCIES = "rope_factors_long.weight", "rope_factors_short.weight", "rope_freqs.weight"


@dataclass(frozen=True)
class Rope:
    """How queries and keys are turned: the attributes of the op ``rope``, and the context that they are good for."""

    rotary: int
    """Values of a head that are turned."""
    base: float
    style: str = "neox"
    scale: float = 1.0
    """Positions are multiplied by it."""
    magnitude: float = 1.0
    """What is turned is multiplied by it: the attention factor of YaRN and LongRoPE."""
    factors: tuple[float, ...] = ()
    """A divisor of each frequency."""
    tensor: str = ""
    """Or the file's tensor of them."""

    def weights(self) -> tuple[WeightSpec, ...]:
        if not self.tensor and not self.factors:
            return ()
        return (WeightSpec(FACTORS, self.tensor, (self.rotary // 2,), values=self.factors),)

    def turn(self, r: Recording, x: Value, heads: int) -> Value:
        given = r.weight(FACTORS) if self.tensor or self.factors else None
        attributes = {"base": self.base, "scale": self.scale, "magnitude": self.magnitude}
        positions = r.step["positions"]
        return ops.rope(
            r.t, x, positions, heads=heads, rotary=self.rotary, style=self.style, factors=given, **attributes
        )


def read_rope(
    facts: Facts, head_dim: int, context: int, *, base: float = 10000.0, style: str = "neox", whole: bool = True
) -> tuple[Rope, int]:
    """The rope of a checkpoint, and how many positions it is good for: ``context``, or what its scaling makes of that.

    ``style`` is that of the GGUF; Hugging Face checkpoints keep the halves apart. ``whole``: YaRN's ramp begins and ends at
    whole frequencies, for which a GGUF has no key. Raises Unsupported for another scaling.
    """
    if facts.container == GGUF:
        plain = _plain(
            facts,
            facts.integer("rope.dimension_count", head_dim),
            head_dim,
            facts.number("rope.freq_base", base),
            style,
        )
        return _from_gguf(facts, plain, context, whole)
    return scaled(declared(facts, base), head_dim, context)


def declared(facts: Facts, base: float) -> Facts:
    """The scaling that a config.json declares, ``rope_theta`` and the partial factor in it, whoever wrote the file:
    transformers 5 writes ``rope_parameters``, earlier versions ``rope_scaling`` and the rest beside it."""
    key = "rope_scaling" if facts.metadata.get("rope_scaling") else "rope_parameters"
    found = dict(facts.within(key).metadata)
    for name in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings"):
        if facts.metadata.get(name) is not None:
            found.setdefault(name, facts.metadata[name])
    found.setdefault("rope_theta", base)
    found["rope_type"] = found.get("rope_type", found.get("type", "default"))
    return replace(facts, metadata=found)


def _positive(facts: Facts, name: str, value: float, least: float = 0.0) -> float:
    if least < value < math.inf:
        return value
    raise BadCheckpoint(
        f"{facts.path}: the model states {name} = {value}; it must be more than {least:g}. Fetch the file again"
    )


def _plain(facts: Facts, rotary: int, head_dim: int, base: float, style: str = "neox") -> Rope:
    if not 0 < rotary <= min(head_dim, _MOST) or rotary % 2:
        raise BadCheckpoint(
            f"{facts.path}: rope is said to turn {rotary} of {head_dim} values a head; it must be an even number of them"
        )
    # A base up to 1 would turn later pairs faster than the first one, which no model does.
    return Rope(rotary, _positive(facts, "rope base", base, 1.0), style)


def scaled(given: Facts, head_dim: int, context: int) -> tuple[Rope, int]:
    """The rope of ``declared`` facts."""
    kind = given.text("rope_type", "default")
    part = _positive(given, "partial_rotary_factor", given.number("partial_rotary_factor", 1.0))
    rotary = int(min(head_dim * part, _MOST + 1))
    plain = _plain(given, rotary, head_dim, given.number("rope_theta"))
    original = int(
        _positive(given, "original_max_position_embeddings", given.integer("original_max_position_embeddings", context))
    )
    if kind == "default":
        return plain, context
    if kind == "linear":
        return replace(plain, scale=1.0 / _positive(given, "rope factor", given.number("factor"))), context
    if kind == "llama3":
        low = _positive(given, "low_freq_factor", given.number("low_freq_factor"))
        high = _positive(given, "high_freq_factor", given.number("high_freq_factor"), low)
        factor = _positive(given, "rope factor", given.number("factor"))
        return replace(plain, factors=_llama3(plain, factor, (low, high), original)), context
    if kind == "yarn":
        return _yarn_from_config(given, plain, original, context)
    if kind in ("longrope", "su"):
        return _longrope_from_config(given, plain, original, context)
    raise given.refuse(f"rope scaling {kind!r}")


def _frequencies(rope: Rope) -> list[float]:
    return [rope.base ** (-2.0 * i / rope.rotary) for i in range(rope.rotary // 2)]


def _llama3(rope: Rope, factor: float, ends: tuple[float, float], original: int) -> tuple[float, ...]:
    """Llama 3.1: long waves are divided by ``factor``, short ones kept, and those between blended."""
    low, high = ends
    found = []
    for frequency in _frequencies(rope):
        turns = original * frequency / (2 * math.pi)
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        found.append(1.0 / ((1.0 - kept) / factor + kept))
    return tuple(found)


def _yarn_from_config(given: Facts, plain: Rope, original: int, context: int) -> tuple[Rope, int]:
    factor = _positive(given, "rope factor", given.number("factor", context / original))
    magnitude = given.number("attention_factor", _yarn_magnitude(given, factor))
    ends = _ends(given, "beta_fast", "beta_slow")
    factors = _yarn(plain, factor, ends, original, whole=given.metadata.get("truncate") is not False)
    return replace(plain, factors=factors, magnitude=magnitude), _stretched(context, original, factor)


def _stretched(context: int, original: int, factor: float) -> int:
    """The context that ``factor`` makes of the original one, where the file doesn't state as much itself."""
    return max(context, int(min(original * factor, 2.0**31)))


def _ends(facts: Facts, fast: str, slow: str) -> tuple[float, float]:
    """Turns within the original length beyond which a frequency is kept, and below which it is divided."""
    found = (facts.number(fast, 32.0), facts.number(slow, 1.0))
    return _positive(facts, fast, found[0]), _positive(facts, slow, found[1])


def _yarn_magnitude(given: Facts, factor: float) -> float:
    def of(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0

    one, all_dimensions = given.number("mscale", 0.0), given.number("mscale_all_dim", 0.0)
    return of(one) / of(all_dimensions) if one and all_dimensions else of(1.0)


def _yarn(
    rope: Rope, factor: float, ends: tuple[float, float], original: int, *, whole: bool = True
) -> tuple[float, ...]:
    """YaRN, arXiv:2309.00071: frequencies that turn often are kept, slow ones divided by ``factor``, with a ramp between."""

    def index_of(turns: float) -> float:
        return rope.rotary * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    low, high = map(index_of, ends)
    if whole:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary - 1)
    span = (high - low) or 0.001
    divided = [min(max((i - low) / span, 0.0), 1.0) for i in range(rope.rotary // 2)]
    # In this order: of a huge factor nothing may be left but what isn't divided.
    return tuple(1.0 / (part / factor + (1.0 - part)) for part in divided)


def _longrope_from_config(given: Facts, plain: Rope, original: int, context: int) -> tuple[Rope, int]:
    long, reach = _reach(given, original, context)
    factors = given.numbers("long_factor" if long else "short_factor", plain.rotary // 2)
    magnitude = given.number(
        "attention_factor", _longrope_magnitude(given.number("factor", context / original), original)
    )
    return replace(plain, factors=factors, magnitude=magnitude), reach


def _longrope_magnitude(factor: float, original: int) -> float:
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(max(original, 2)))


def _reach(facts: Facts, original: int, context: int) -> tuple[bool, int]:
    """LongRoPE (arXiv:2402.13753) has two sets of factors, and one cache can hold keys of one of them only: the short one,
    exact for contexts up to the original length, unless more is wanted. Whether the long one is meant, and its context."""
    long = facts.wanted > original
    return long, context if long else min(original, context)


def _from_gguf(facts: Facts, plain: Rope, context: int, whole: bool) -> tuple[Rope, int]:
    kind, factor = facts.text("rope.scaling.type", "none"), facts.number("rope.scaling.factor", 1.0)
    original = facts.integer("rope.scaling.original_context_length", context)
    original = int(_positive(facts, "rope.scaling.original_context_length", original))
    magnitude = facts.number("rope.scaling.attn_factor", 1.0)
    for key, usual in (("yarn_ext_factor", 1.0), ("yarn_attn_factor", 1.0), ("yarn_log_multiplier", 0.0)):
        if (found := facts.number(f"rope.scaling.{key}", usual)) != usual:
            raise facts.refuse(f"rope.scaling.{key} = {found}")
    if _LONG in facts.tensors or _SHORT in facts.tensors:
        long, reach = _reach(facts, original, context)
        return replace(plain, tensor=_LONG if long else _SHORT, magnitude=magnitude), reach
    if kind in ("linear", "yarn"):
        factor = _positive(facts, "rope.scaling.factor", facts.number("rope.scaling.factor"))
    if kind == "yarn" and factor > 1:
        ends = _ends(facts, "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow")
        factors, grown = _yarn(plain, factor, ends, original, whole=whole), magnitude * (0.1 * math.log(factor) + 1.0)
        return replace(plain, factors=factors, magnitude=grown), _stretched(context, original, factor)
    if kind not in ("none", "linear", "yarn"):
        raise facts.refuse(f"rope scaling {kind!r}")
    scale = 1.0 / factor if kind == "linear" else 1.0
    return replace(plain, scale=scale, tensor=_FREQUENCIES if _FREQUENCIES in facts.tensors else ""), context
