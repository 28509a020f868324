"""``POST /v1/completions``: what may be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from pie_edge.server.generation import Request, Text
from pie_edge.server.openai.errors import BadRequest
from pie_edge.server.openai.parameters import refused
from pie_edge.server.openai.sampled import MOST_CHOICES, Sampled

Token = Annotated[int, Field(ge=0, lt=2**32)]
Tokens = Annotated[list[Token], Field(min_length=1)]
MOST_PROMPTS = 1024


class CompletionsBody(Sampled):
    prompt: str | Tokens | Annotated[list[str] | list[Tokens], Field(min_length=1, max_length=MOST_PROMPTS)]
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
        given: Any = self.prompt
        return [Text(given)] if isinstance(given, str) or isinstance(given[0], int) else list(map(Text, given))

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
