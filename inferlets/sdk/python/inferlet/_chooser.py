"""A sampler at work: the epilogue it is on the device, and what it remembers from token to token."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from inferlet import model
from inferlet._recipe import Recipe, Slots, capacity, padded, zeros
from inferlet.errors import UsageError
from inferlet.eta import intrinsics, ops
from inferlet.eta.tensor import Tensor
from inferlet.eta.trace import Traced
from inferlet.penalties import Penalties
from inferlet.samplers import Sampler

_MOST_ALTERNATIVES = 64
_LN2 = math.log(2)


@dataclass(frozen=True, slots=True)
class Choice:
    """A token, the log probability that the model itself gave it, and the likeliest tokens with theirs.

    The last two are there only if they were asked for.
    """

    token: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


class _Form(NamedTuple):
    """What makes two samplers the same epilogue: which stages there are, and how long their tables."""

    draws: bool
    top_k: bool
    top_p: bool
    min_p: bool
    typical: bool
    mirostat: bool
    bias: int
    seen: int
    repeats: bool
    adjusts: bool
    masked: bool
    logprobs: int | None


class Chooser:
    """Of one generation. ``epilogue`` is what the next pass runs, ``take`` reads its result.

    ``logprobs`` asks for log probabilities: of the token chosen, and of that many likeliest ones.
    """

    def __init__(self, sampler: Sampler, logprobs: int | None = None, matcher: int | None = None) -> None:
        """``matcher`` is the number of one that says which tokens may be chosen."""
        if logprobs is not None and (type(logprobs) is not int or not 0 <= logprobs <= _MOST_ALTERNATIVES):
            raise UsageError(
                f"logprobs is {logprobs!r}; give 0 (of the token alone) to {_MOST_ALTERNATIVES} alternatives"
            )
        self._sampler = sampler
        self._masked = matcher is not None
        self._logprobs = None if logprobs is None else min(logprobs, model.vocabulary_size())
        self._penalties = Penalties(sampler) if sampler.penalises else None
        self._bound = 2 * sampler.mirostat.target if sampler.mirostat is not None else 0.0
        self._bias = self._bias_table()
        self._always: Traced | None = None
        """Where nothing changes from step to step."""
        self._fixed = {
            "temperature": float(sampler.temperature),
            "top_k": sampler.top_k,
            "top_p": float(sampler.top_p),
            "min_p": float(sampler.min_p),
            "typical": float(sampler.typical),
            "repetition": float(sampler.repetition),
            "bias_ids": self._bias[0],
            "bias": self._bias[1],
            "allowed": matcher,
        }

    def epilogue(self) -> Traced:
        if self._always is not None:
            return self._always
        values = self.values()
        found = _recipe(self._form(len(values["seen"]))).with_values(values)
        if self._penalties is None and self._sampler.mirostat is None:
            self._always = found
        return found

    def values(self) -> dict[str, Any]:
        """Of all parameters that some form of it has."""
        ids, changes = self._penalties.table() if self._penalties is not None else ([], [])
        seen = capacity(len(ids)) if self._penalties is not None else 0
        return self._fixed | {
            "seen": padded(ids, seen),
            "changes": zeros(changes, seen),
            "least": -self._bound * _LN2,
        }

    def take(self, result: Any) -> Choice:
        """What the epilogue gave, remembered for the next one."""
        found = result if isinstance(result, dict) else {"token": result}
        token = found["token"]
        self.note(token)
        mirostat = self._sampler.mirostat
        if mirostat is not None:
            self._bound -= mirostat.rate * (-found["drawn"] / _LN2 - mirostat.target)
        alternatives = tuple(zip(found.get("ids", ()), found.get("logprobs", ()), strict=True))
        return Choice(token, found.get("logprob"), alternatives)

    def note(self, token: int) -> None:
        """A token that was made, by this or by something else."""
        if self._penalties is not None:
            self._penalties.add(token)

    @property
    def reports(self) -> bool:
        """Whether log probabilities were asked for."""
        return self._logprobs is not None

    def _form(self, seen: int) -> _Form:
        s = self._sampler
        draws = not s.greedy
        return _Form(
            draws=draws,
            top_k=draws and s.top_k > 0,
            top_p=draws and s.top_p < 1,
            min_p=draws and s.min_p > 0,
            typical=draws and s.typical < 1,
            mirostat=s.mirostat is not None,
            bias=len(self._bias[0]),
            seen=seen,
            repeats=s.repetition != 1,
            adjusts=s.adjusts,
            masked=self._masked,
            logprobs=self._logprobs,
        )

    def _bias_table(self) -> tuple[list[int], list[float]]:
        bias = self._sampler.logit_bias
        length = capacity(len(bias)) if bias else 0
        return padded(list(bias), length), zeros([float(value) for value in bias.values()], length)


@functools.cache
def _recipe(form: _Form) -> Recipe:
    return Recipe(lambda slots: _results(form, slots))


def _results(form: _Form, slots: Slots) -> Tensor | dict[str, Tensor]:
    """The token comes first: the runtime may embed it in a next pass before anybody has read it."""
    raw = intrinsics.logits()
    token, drawn = _choose(form, slots, biased(form, slots, raw))
    found = {"token": token}
    if drawn is not None:
        found["drawn"] = drawn
    if form.logprobs is not None:
        logprobs = ops.log_softmax(raw)
        found["logprob"] = logprobs[token]
        if form.logprobs:
            found["logprobs"], found["ids"] = ops.top_k(logprobs, form.logprobs)
    return found if len(found) > 1 else token


def biased(form: _Form, slots: Slots, x: Tensor) -> Tensor:
    """Logits with bias and penalties, −inf where a grammar allows nothing."""
    if form.masked:
        x = ops.mask_logits(x, slots.mask("allowed"))
    if form.bias:
        x = ops.scatter(x, slots.ids("bias_ids", form.bias), slots.numbers("bias", form.bias), "add")
    if not form.seen:
        return x
    seen = slots.ids("seen", form.seen)
    if form.repeats:
        logit, divisor = ops.take_along(x, seen), slots.number("repetition")
        x = ops.scatter(x, seen, ops.select(logit > 0, logit / divisor, logit * divisor))
    if form.adjusts:
        x = ops.scatter(x, seen, slots.numbers("changes", form.seen), "add")
    return x


def _choose(form: _Form, slots: Slots, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """The token, and with mirostat its log probability before the cut."""
    if not form.draws:
        return ops.reduce_argmax(x), None
    x = narrowed(form, slots, x)
    if not form.mirostat:
        return ops.gumbel_max(x), None
    logprobs = ops.log_softmax(x)
    least = ops.minimum(slots.number("least"), ops.reduce_max(logprobs, keepdims=True))
    token = ops.gumbel_max(ops.keep(logprobs, least))
    return token, logprobs[token]


def narrowed(form: _Form, slots: Slots, x: Tensor) -> Tensor:
    """Logits at the temperature, −inf where nothing is drawn from. The nodes are those of ``ops.sample``, so that a backend
    knows them again."""
    x = x / slots.number("temperature")
    if form.top_k:
        x = ops.keep(x, ops.kth_largest(x, slots.whole("top_k"), keepdims=True))
    if form.top_p:
        x = ops.keep(x, ops.nucleus(x, slots.number("top_p"), keepdims=True))
    if form.min_p:
        x = ops.keep(x, ops.min_p(x, slots.number("min_p"), keepdims=True))
    return _typical(x, slots.number("typical")) if form.typical else x


def _typical(x: Tensor, share: Tensor) -> Tensor:
    """Locally typical sampling (Meister et al., arXiv:2202.00666): the tokens whose surprise is nearest to the entropy, as many
    as it takes to have ``share`` of the probability."""
    logprobs = ops.log_softmax(x)
    distance = ops.abs_(-logprobs - ops.entropy(x, keepdims=True))
    nearest, order = ops.sort(distance)
    probability = ops.exp(ops.take_along(logprobs, order))
    before = ops.cumsum(probability) - probability
    furthest = ops.reduce_max(ops.select(before < share, nearest, 0.0), keepdims=True)
    return ops.select(distance <= furthest, x, -math.inf)
