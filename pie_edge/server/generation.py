"""What every endpoint asks for, and what comes back, whatever the wire format: the seam between the providers' modules, which
translate to and from this, and the built-in inferlets, which do it.

A request travels to the inferlet as JSON (``as_input``), and its events come back as messages of JSON (``event``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from pie_edge.protocol.messages import Thinks


@dataclass(frozen=True, slots=True)
class After:
    """Where a generation that was kept has ended: its name, all of its tokens, and how many of the messages those are."""

    name: str
    tokens: Sequence[int]
    messages: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and tools as OpenAI's chat completions have them, with content as text or parts."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    thinking: bool | None = None
    """Whether the model thinks before it answers; None leaves it to the chat template."""
    shorten: bool = False
    """Whether the oldest turns are left out of a conversation that is too long."""
    prefill: str = ""
    """What the answer begins with; events don't repeat it."""
    after: After | None = None
    """It goes on where that one has ended, on its pages if they are still there, on its tokens in any case."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text or tokens to continue, without a chat template."""

    content: str | Sequence[int]


@dataclass(frozen=True, slots=True)
class Sampling:
    """None leaves a setting to what the checkpoint recommends, and else to the default of ``inferlet.Sampler``."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the answer must match. ``text`` is the JSON Schema as JSON, the regular expression, or the grammar; "" for ``json``,
    which is any JSON object."""

    kind: Literal["json", "json-schema", "regex", "lark"]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    prompt: Conversation | Text
    choices: int = 1
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    sampling: Sampling = field(default_factory=Sampling)
    logprobs: int | None = None
    """How many alternatives to report for each token, beside its own log probability; None reports none of it."""
    echo: bool = False
    """Whether the prompt comes first, in text and log probabilities."""
    tool_choice: Literal["auto", "none", "required"] | str = "auto"
    """``function:NAME`` has that one called."""
    parallel_calls: bool = True
    constraint: Constraint | None = None
    thinking_tokens: int | None = None
    """After how many tokens the reasoning is closed, for the answer to begin; None leaves that to the model."""
    keep: str | None = None
    """A name under which a later conversation can go on after this. Of one choice."""
    keep_seconds: float = 0.0
    """For how long, unless pages run out."""
    ignore_stop_tokens: bool = False
    """Whether the model's own stop tokens don't end the answer; for measurements."""

    def as_input(self) -> dict[str, Any]:
        """As the inferlet ``completion`` takes it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """``data`` are the token's bytes, which may be a part of a character. ``top`` are the likeliest, likeliest first."""

    token: int
    data: bytes
    logprob: float | None
    """None for the first token of all, which nothing comes before."""
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Began:
    """The prompt as the model reads it: how many tokens, and how many of them needn't be forwarded since they were cached."""

    prompt: int
    cached: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of the answer. ``logprobs`` are of the tokens that it consists of, if they were asked for."""

    choice: int
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Thought:
    """Text of the reasoning before the answer."""

    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class CallBegan:
    choice: int
    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments' JSON text."""

    choice: int
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """``reason``: ``stop`` (the model's own end), ``stop-string`` (``stopped_by`` is it), ``length`` (``max_tokens``),
    ``context`` (the model can read no more), ``calls`` (it calls tools)."""

    choice: int
    reason: Literal["stop", "stop-string", "length", "context", "calls"]
    stopped_by: str | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """How many tokens were made so far, in all choices: for whoever watches, since an answer may end without ``Usage``."""

    generated: int


@dataclass(frozen=True, slots=True)
class Kept:
    """All tokens of a generation that was to be kept, for ``After``."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """In tokens. The last event of every generation. ``reasoning`` ones are among those ``generated``, in all choices."""

    prompt: int
    cached: int
    generated: int
    reasoning: int = 0


Event = Began | Piece | Thought | CallBegan | CallArguments | Ended | Counted | Kept | Usage


@dataclass(frozen=True, slots=True)
class Card:
    """What a client may know of the model that is served. ``created`` is in seconds since 1970."""

    name: str
    context: int
    created: int
    chat: bool
    """Whether it has a chat template."""
    embeds: bool
    """Whether it gives vectors of texts."""
    thinks: Thinks = "never"
    description: str = ""
    unpooled: str = ""
    """Why it gives none and what would help, as the end of a text."""
    hidden: int = 0
    """Entries of a vector."""
    vocabulary: int = 0
    """Token ids are below it."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """What the checkpoint recommends to sample with, by the names of ``Sampling``."""
    tools: bool = True
    """Whether its chat template has a place for tools."""


class Service(Protocol):
    """What endpoints do their work with: the engine's process behind it, or in tests a host in the same one."""

    @property
    def card(self) -> Card:
        """Raises NotReady while the model loads."""

    def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        """Its events, ``Usage`` last. Closing the generator before that ends the inferlet, and its pages are free at once.

        Raises UsageError and the other kinds of PieError for what is refused; before the first event nothing was made.
        """

    async def count(self, prompt: Conversation | Text) -> int:
        """How many tokens the model would read."""

    async def forget(self, name: str) -> None:
        """What was kept under the name needn't be any longer."""

    async def embed(
        self, texts: Sequence[str | Sequence[int]], dimensions: int | None = None
    ) -> tuple[list[Sequence[float]], int]:
        """A vector of unit length for each, and how many tokens they have. With ``dimensions`` the vectors are cut to so many
        entries before they get that length. Raises Unsupported where the model gives none, and ContextOverflow for a text that is
        too long."""
