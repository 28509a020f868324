"""How the next token is chosen from the logits: one sampler says it all, and runs on the device as one epilogue.

In this order: logit bias, penalties, temperature, top-k, top-p, min-p, typical or mirostat, and the draw. What changes
from step to step are parameters, so every step of a generation is the same epilogue, and different ones share a batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from inferlet import model
from inferlet.errors import InvalidHandle, UsageError

_LARGEST_BIAS = 1e9


@dataclass(frozen=True, slots=True)
class Mirostat:
    """Mirostat 2.0 (Basu et al., arXiv:2007.14966): keeps the surprise of a token, in bits, near ``target``.

    Only tokens with a surprise up to a bound are drawn from; the bound starts at twice the target, and moves by
    ``rate`` times what each token missed it by. The surprise is that of the distribution before it is cut off.
    """

    target: float = 5.0
    rate: float = 0.1

    def __post_init__(self) -> None:
        _check("mirostat's target", self.target, 0 < self.target < math.inf, "a surprise above 0, in bits")
        _check("mirostat's rate", self.rate, 0 <= self.rate <= 1, "a number from 0 to 1")


@dataclass(frozen=True, slots=True)
class Dry:
    """Don't repeat yourself: a token that would carry a repetition on loses multiplier · base^(n − allowed), n being how many
    tokens have been repeated, ``allowed`` at least. None reaches across a token whose text has one of ``breakers``."""

    multiplier: float = 0.8
    base: float = 1.75
    allowed: int = 2
    breakers: tuple[str, ...] = ("\n", ":", '"', "*")

    def __post_init__(self) -> None:
        _check("DRY's multiplier", self.multiplier, 0 <= self.multiplier < 1e6, "0 (off) or more")
        _check("DRY's base", self.base, 1 <= self.base < math.inf, "1 or more")
        _check("DRY's allowed length", self.allowed, self.allowed >= 1, "1 token or more")


@dataclass(frozen=True, slots=True)
class Sampler:
    """Temperature 0 takes the likeliest token. ``top_k`` 0, ``top_p`` 1, ``min_p`` 0, ``typical`` 1, ``repetition`` 1 and a
    ``presence`` or ``frequency`` of 0 are off.

    Penalties count the tokens that this generation has made, and none of the prompt's: a token that was made loses
    ``presence``, and ``frequency`` for each time; ``repetition`` first divides its logit, or multiplies a negative one.
    ``logit_bias`` is added to the logits of single tokens. Raises UsageError for a value that means nothing.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical: float = 1.0
    mirostat: Mirostat | None = None
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    dry: Dry | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("temperature", "top_k", "top_p", "min_p", "typical", "repetition", "presence", "frequency"):
            value = getattr(self, name)
            kinds = (int,) if name == "top_k" else (int, float)
            _check(name, value, type(value) in kinds, "a whole number" if name == "top_k" else "a number")
        _check("temperature", self.temperature, 0 <= self.temperature < 1e6, "0 (the likeliest token) or more")
        _check("top_k", self.top_k, 0 <= self.top_k < 2**31, "0 (off) or how many tokens to keep")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "a probability above 0; 1 is off")
        _check("min_p", self.min_p, 0 <= self.min_p <= 1, "a share of the likeliest token's probability; 0 is off")
        _check("typical", self.typical, 0 < self.typical <= 1, "a probability above 0; 1 is off")
        _check("repetition", self.repetition, 0 < self.repetition < 1e6, "a divisor above 0; 1 is off")
        _check("presence", self.presence, abs(self.presence) < 1e6, "a finite number; 0 is off")
        _check("frequency", self.frequency, abs(self.frequency) < 1e6, "a finite number; 0 is off")
        self._check_together()
        self._check_bias()

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0

    @property
    def penalises(self) -> bool:
        return self.repetition != 1 or self.adjusts

    @property
    def adjusts(self) -> bool:
        """Whether tokens that were made lose something that is subtracted."""
        return self.presence != 0 or self.frequency != 0 or (self.dry is not None and self.dry.multiplier > 0)

    def _check_together(self) -> None:
        if self.mirostat is None:
            return
        others = {"top_k": 0, "top_p": 1, "min_p": 0, "typical": 1}
        wrong = [name for name, off in others.items() if getattr(self, name) != off]
        if wrong or self.greedy:
            what = " and ".join(wrong) or "temperature 0"
            raise UsageError(f"mirostat decides by itself how many tokens to draw from; leave {what} out")

    def _check_bias(self) -> None:
        for token, bias in self.logit_bias.items():
            if type(token) is not int or not 0 <= token < model.vocabulary_size():
                raise InvalidHandle(
                    f"logit_bias names token {token!r}; this model's ids are 0 to {model.vocabulary_size() - 1}"
                )
            _check(f"the bias of token {token}", bias, abs(bias) <= _LARGEST_BIAS, "a finite number")


def _check(name: str, value: float, good: bool, wanted: str) -> None:
    if not good:
        raise UsageError(f"{name} is {value!r}; give {wanted}")


GREEDY = Sampler(temperature=0.0)
