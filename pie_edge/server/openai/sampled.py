"""What chat completions and completions have in common: how tokens are chosen, and when an answer ends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from pie_edge.server.generation import Card, Sampling
from pie_edge.server.openai.errors import BadRequest
from pie_edge.server.openai.parameters import Parameters, Strict, accepted

Stop = Annotated[str, StringConstraints(min_length=1)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**64)]
MOST_CHOICES = 128
_TOKEN = re.compile("0|[1-9][0-9]{0,9}")
_LEAST_NUCLEUS = 1e-6
"""In place of a ``top_p`` of 0: it keeps the likeliest token."""


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Sampled(Parameters):
    model: str
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    seed: Seed | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    # Beyond OpenAI's, under the names that other servers of open models have for them.
    top_k: int | None = Field(None, ge=0, lt=2**31)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, lt=1e6)
    ignore_eos: bool | None = None
    user: str | None = accepted("there is one user")

    NOTES: ClassVar[Mapping[str, str]] = {
        "model": "the one that is served",
        "frequency_penalty": "over the tokens of the answer",
        "logit_bias": "token ids of the model that is served",
        "n": f"up to {MOST_CHOICES}; the prompt is read once, and its pages are shared",
        "presence_penalty": "over the tokens of the answer",
        "seed": "the same answer each time, alone or beside others; choice i of n draws from a seed of its own",
        "stop": "up to 16; they may span tokens, and nothing of them is shown",
        "stream_options": "`include_usage`; `include_obfuscation` makes no difference",
        "top_k": "not OpenAI's",
        "min_p": "not OpenAI's",
        "repetition_penalty": "not OpenAI's; over the tokens of the answer",
        "ignore_eos": "not OpenAI's; the answer ends at `max_tokens` alone",
    }

    @property
    def counts_usage(self) -> bool:
        """Whether a stream ends with what it used."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    def sampling(self) -> Sampling:
        """Raises BadRequest."""
        return Sampling(
            temperature=self.temperature,
            top_p=nucleus(self.top_p),
            top_k=self.top_k,
            min_p=self.min_p,
            presence=self.presence_penalty or 0.0,
            frequency=self.frequency_penalty or 0.0,
            repetition=self.repetition_penalty,
            logit_bias=_biases(self.logit_bias),
            seed=self.seed,
        )

    def check_bias(self, card: Card) -> None:
        """Raises BadRequest for a bias of tokens that the model hasn't."""
        for token in _biases(self.logit_bias):
            if token >= card.vocabulary:
                raise BadRequest(
                    f"logit_bias names token {token}; ids of {card.name} are 0 to {card.vocabulary - 1}", "logit_bias"
                )

    def check(self) -> None:
        super().check()
        if self.stream_options is not None and not self.stream:
            raise BadRequest("stream_options is for streams; give stream: true", "stream_options")


def nucleus(top_p: float | None) -> float | None:
    return None if top_p is None else max(top_p, _LEAST_NUCLEUS)


def _biases(given: dict[str, float] | None) -> dict[int, float]:
    """Raises BadRequest for a name that is no token id as it is written; each token has one, so that none comes twice."""
    for token in given or {}:
        if not _TOKEN.fullmatch(token):
            raise BadRequest(f"logit_bias names {token!r:.80}; it takes token ids, as 5 or 120", "logit_bias")
    return {int(token): bias for token, bias in (given or {}).items()}
