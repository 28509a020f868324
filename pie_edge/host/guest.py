"""One inferlet as the imports see it: what it owns, and where its words go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pie_edge.errors import InvalidHandle
from pie_edge.host.events import Events
from pie_edge.host.mailbox import Mailbox
from pie_edge.host.wasi import STDERR, Outside

if TYPE_CHECKING:
    from pie_edge.control.engine import ModelFacts
    from pie_edge.control.space import Space
    from pie_edge.host.limits import Limits
    from pie_edge.host.source import Source
    from pie_edge.tokenizer import Detokenizer, Tokenizer


_MOST_DECODERS = 10_000


class Turns(Protocol):
    """A model's chat template, cut into the token sequences that a conversation is made of. May raise TemplateError."""

    def prefix(self) -> Sequence[int]: ...
    def preamble(self) -> Sequence[int]: ...
    def system(self, text: str) -> Sequence[int]: ...
    def user(self, text: str) -> Sequence[int]: ...
    def assistant(self, text: str) -> Sequence[int]: ...
    def cue(self) -> Sequence[int]: ...
    def seal(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Model:
    """What all guests of a host share. ``turns`` is None where the model has no chat template."""

    facts: ModelFacts
    tokenizer: Tokenizer
    turns: Turns | None


@dataclass(eq=False)
class Guest:
    number: int
    name: str
    source: Source
    limits: Limits
    model: Model
    space: Space
    has_client: bool
    text_sink: Callable[[str], None]
    log_sink: Callable[[str], None]
    wake: Callable[[], None] = lambda: None
    """Lets the guest go on; set by whoever schedules it."""
    last_words: str = ""
    """The end of what went to the Wasm guest's own standard error: a crashing interpreter says why there."""
    callback_error: BaseException | None = None
    """What ``text_sink`` or ``log_sink`` raised."""
    mailbox: Mailbox = field(init=False)
    events: Events = field(init=False)
    outside: Outside = field(init=False)

    def __post_init__(self) -> None:
        sink = None if self.has_client else self.on_text
        self.mailbox = Mailbox(self.name, self.limits.message, self.limits.unread, sink)
        self.events = Events(self.space, self.mailbox, lambda: self.wake())
        self.outside = Outside(self._raw_output)
        self._decoders: dict[int, Detokenizer] = {}
        self._last_decoder = 0

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

    def add_decoder(self, decoder: Detokenizer) -> int:
        if len(self._decoders) >= _MOST_DECODERS:
            raise InvalidHandle(f"{self.name} has {_MOST_DECODERS:,} decoders; drop some before making more")
        self._last_decoder += 1
        self._decoders[self._last_decoder] = decoder
        return self._last_decoder

    def decoder(self, number: int) -> Detokenizer:
        if number not in self._decoders:
            raise InvalidHandle(f"{self.name} has no decoder {number}")
        return self._decoders[number]

    def drop_decoder(self, number: int) -> None:
        self._decoders.pop(number, None)
