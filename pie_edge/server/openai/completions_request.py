"""``POST /v1/completions``: what may be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from pie_edge.server.generation import Card, Request, Text
from pie_edge.server.openai.errors import BadRequest
from pie_edge.server.openai.parameters import refused
from pie_edge.server.openai.sampled import MOST_CHOICES, Sampled

Token = Annotated[int, Field(ge=0, lt=2**32)]
Tokens = Annotated[list[Token], Field(min_length=1)]
MOST_PROMPTS = 1024
_SEVERAL = Field(min_length=1, max_length=MOST_PROMPTS)
"""Of each list by itself: the bounds of a union are those of a text in the document of the API."""


class CompletionsBody(Sampled):
    prompt: str | Tokens | Annotated[list[str], _SEVERAL] | Annotated[list[Tokens], _SEVERAL]
    best_of: int | None = Field(None, ge=1, le=MOST_CHOICES)
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=20)
    max_tokens: int | None = Field(None, ge=0)
    suffix: Any = refused("models of this server don't fill text in", "")

    NOTES: ClassVar[Mapping[str, str]] = {
        **Sampled.NOTES,
        "prompt": f"a text, tokens, or up to {MOST_PROMPTS} of them; tokens are taken as they are, a text after the model's BOS",
        "best_of": "the likeliest by token; not in streams",
        "echo": "with the log probabilities of the prompt, if `logprobs` is given",
        "logprobs": "up to 20",
        "max_tokens": "16 if it isn't given; 0 gives the prompt alone, with `echo`",
    }

    def prompts(self) -> list[Text]:
        return list(map(Text, several(self.prompt)))

    def places(self) -> list[str]:
        """Of the prompts."""
        return places("prompt", self.prompt)

    def check_tokens(self, card: Card) -> None:
        """Raises BadRequest for tokens that the model hasn't."""
        check_tokens("prompt", self.prompt, card)

    @property
    def choices(self) -> int:
        """Of each prompt, in the answer."""
        return self.n or 1

    def requests(self) -> list[Request]:
        """One of each prompt. Raises BadRequest for parameters that don't go together."""
        made = self.best_of or self.choices
        if made < self.choices:
            raise BadRequest(f"best_of is {made}, and n {self.choices}; the best n of fewer can't be found", "best_of")
        if made > self.choices and self.stream:
            raise BadRequest(
                "best_of is more than n, and which are the best is known at the end; leave stream out", "best_of"
            )
        return [
            Request(
                prompt=prompt,
                choices=made,
                max_tokens=16 if self.max_tokens is None else self.max_tokens,
                stop=self.stops(),
                sampling=self.sampling(),
                logprobs=0 if made > self.choices and self.logprobs is None else self.logprobs,
                echo=bool(self.echo),
                ignore_stop_tokens=bool(self.ignore_eos),
            )
            for prompt in self.prompts()
        ]


def several(given: Any) -> list[Any]:
    """Texts, or lists of tokens, of which one may have been given by itself."""
    return [given] if _is_one(given) else list(given)


def places(name: str, given: Any) -> list[str]:
    """Of each of ``several``."""
    return [name] if _is_one(given) else [f"{name}[{number}]" for number in range(len(given))]


def _is_one(given: Any) -> bool:
    return isinstance(given, str) or isinstance(given[0], int)


def check_tokens(name: str, given: Any, card: Card) -> None:
    """Raises BadRequest for the first token that the model hasn't, at its place."""
    for place, tokens in zip(places(name, given), several(given), strict=True):
        strange = (n for n, token in enumerate(tokens) if not isinstance(token, str) and token >= card.vocabulary)
        if (number := next(strange, None)) is not None:
            found = f"{place}[{number}]"
            raise BadRequest(f"{found} is {tokens[number]}; ids of {card.name} are 0 to {card.vocabulary - 1}", found)
