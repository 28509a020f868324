"""One inferlet as the imports see it: what it owns, and where its words go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pie_edge.host import requests
from pie_edge.host.children import Children
from pie_edge.host.events import Events
from pie_edge.host.facilities import Facilities, SnapshotShelf
from pie_edge.host.http import Request, Response
from pie_edge.host.level1 import Level1
from pie_edge.host.mailbox import File, Mailbox
from pie_edge.host.table import Table
from pie_edge.host.topics import Subscription
from pie_edge.host.wasi import STDERR, Outside

if TYPE_CHECKING:
    from pie_edge.control.facts import Abilities, ModelFacts
    from pie_edge.control.space import Space
    from pie_edge.grammar import Grammar, Matcher
    from pie_edge.host.constraints import Constraints
    from pie_edge.host.limits import Limits
    from pie_edge.host.source import Source
    from pie_edge.tokenizer import Detokenizer, Tokenizer
    from pie_edge.tokenizer.formats import Formats, TokenDecoder


_MOST_DECODERS = 10_000
_MOST_GRAMMARS = 256
_MOST_MATCHERS = 10_000
_MOST_SUBSCRIPTIONS = 256
_MOST_RESPONSES = 256
_MOST_FILES = 256


class Turns(Protocol):
    """A model's chat template, cut into the token sequences that a conversation is made of. May raise TemplateError."""

    @property
    def formats(self) -> Formats: ...
    @property
    def thinks(self) -> Literal["never", "always", "switched"]: ...
    @property
    def takes_tools(self) -> bool: ...
    def prefix(self) -> Sequence[int]: ...
    def preamble(self, thinking: bool | None = None) -> Sequence[int]: ...
    def system(self, text: str, thinking: bool | None = None) -> Sequence[int]: ...
    def user(self, text: str) -> Sequence[int]: ...
    def assistant(self, text: str) -> Sequence[int]: ...
    def cue(self, thinking: bool | None = None) -> Sequence[int]: ...
    def seal(self) -> Sequence[int]: ...
    def equip(self, tools: Sequence[Any], system: str | None = None, thinking: bool | None = None) -> Sequence[int]: ...
    def answer(self, answers: Sequence[Mapping[str, Any]]) -> Sequence[int]: ...
    def conversation(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        thinking: bool | None = None,
        cue: bool = True,
    ) -> Sequence[int]: ...
    def opens_reasoning(self, thinking: bool | None = None) -> bool: ...


@dataclass(frozen=True, slots=True)
class Model:
    """What all guests of a host share. ``turns`` is None where the model has no chat template, ``template`` is its text."""

    facts: ModelFacts
    tokenizer: Tokenizer
    turns: Turns | None
    constraints: Constraints
    abilities: Abilities
    template: str = ""

    @property
    def traits(self) -> tuple[str, ...]:
        """The groups of level 1 functions that there are, as the WIT names them."""
        # Single pages hold nothing of a recurrent state.
        pages = () if self.abilities.recurrent else ("allocate", "forward", "input-text", "output-text")
        adapter = ("adapter",) if self.abilities.adapters else ()
        introspective = ("introspective",) if self.abilities.observable_layers else ()
        return (*pages, "tokenize", *adapter, *introspective)


def _nobody_waits() -> None: ...


@dataclass(eq=False, repr=False)
class Guest:
    """``generation`` is 0 for an inferlet that no other one started."""

    number: int
    name: str
    source: Source
    limits: Limits
    model: Model
    space: Space
    has_client: bool
    text_sink: Callable[[str], None]
    log_sink: Callable[[str], None]
    facilities: Facilities = field(default_factory=Facilities)
    generation: int = 0
    wake: Callable[[], None] = _nobody_waits
    """Lets the guest go on; set by whoever schedules it."""
    last_words: str = ""
    """The end of what went to the Wasm guest's own standard error: a crashing interpreter says why there."""
    callback_error: BaseException | None = None
    """What ``text_sink`` or ``log_sink`` raised."""
    mailbox: Mailbox = field(init=False)
    events: Events = field(init=False)
    outside: Outside = field(init=False)
    level1: Level1 = field(init=False)
    children: Children = field(init=False)
    decoders: Table[Detokenizer] = field(init=False)
    answers: Table[TokenDecoder] = field(init=False)
    grammars: Table[Grammar] = field(init=False)
    matchers: Table[Matcher] = field(init=False)
    subscriptions: Table[Subscription] = field(init=False)
    responses: Table[Response] = field(init=False)
    files: Table[File] = field(init=False)

    def __post_init__(self) -> None:
        sink = None if self.has_client else self.on_text
        self.mailbox = Mailbox(self.name, self.limits, sink)
        self.events = Events(partial(requests.begin, self), lambda: self.wake(), self.space.forget)
        self.outside = Outside(self._raw_output)
        self.level1 = Level1(self.space, self.model.facts.page_size, self.facilities.open_handles)
        self.children = Children(self)
        self.decoders = Table(self.name, "decoder", _MOST_DECODERS)
        self.answers = Table(self.name, "decoder of answers", _MOST_DECODERS)
        self.grammars = Table(self.name, "grammar", _MOST_GRAMMARS)
        self.matchers = Table(self.name, "matcher", _MOST_MATCHERS)
        self.subscriptions = Table(self.name, "subscription", _MOST_SUBSCRIPTIONS)
        self.responses = Table(self.name, "response", _MOST_RESPONSES)
        self.files = Table(self.name, "file", _MOST_FILES)
        self._fetching = asyncio.Semaphore(self.limits.http_at_once)

    @property
    def id(self) -> str:
        return f"{self.name}#{self.number}"

    @property
    def snapshots(self) -> SnapshotShelf:
        """Raises ResourceError where there are none."""
        return self.facilities.the_snapshots()

    def close(self) -> None:
        """It has ended: everything it held goes back, and what it started ends, too."""
        self.events.close()
        self.children.close()
        for subscription in self.subscriptions:
            subscription.close()
        self.subscriptions.clear()
        self.responses.clear()
        self.files.clear()
        self.space.close()
        self.mailbox.end()
        # Nobody asks for these any more, and each refers to the guest: with them it would be left to the garbage collector, which
        # holds everybody up.
        del self.events, self.outside
        self.wake = _nobody_waits

    def on_text(self, text: str) -> None:
        self._tell(self.text_sink, text)

    def on_log(self, text: str) -> None:
        self._tell(self.log_sink, text)

    def _tell(self, sink: Callable[[str], None], text: str) -> None:
        try:
            sink(text)
        except BaseException as error:
            self.callback_error = error
            raise

    def _raw_output(self, stream: int, text: str) -> None:
        if stream == STDERR:
            self.last_words = (self.last_words + text)[-2000:]
            self.on_log(text)
        else:
            self.on_text(text)

    def subscribe(self, topic: str) -> int:
        self.subscriptions.check_room()
        return self.subscriptions.add(self.facilities.topics.subscribe(topic, self.name, self.limits))

    def unsubscribe(self, number: int) -> None:
        subscription = self.subscriptions.drop(number)
        if subscription is not None:
            subscription.close()

    async def fetch(self, request: Request) -> Response:
        """An HTTP request; those beyond the limit wait their turn."""
        async with self._fetching:
            return await self.facilities.http.fetch(request, self.limits, self.name)
