"""One answer of a context, as it comes: pieces of text, and why it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from inferlet import chat, model
from inferlet._chooser import Choice, Chooser
from inferlet._transcript import Transcript
from inferlet.errors import UsageError
from inferlet.grammar import Matcher
from inferlet.samplers import Sampler
from inferlet.stops import StopStrings

FinishReason = Literal["stop", "length", "context", "until"]
"""``stop``: a stop token or string, or the end of a grammar. ``length``: max_tokens. ``context``: the model can read no more.
``until``: the program's own predicate."""


@dataclass(frozen=True, slots=True)
class Logprob:
    """Of a token: what the model itself gave it, and its likeliest alternatives, likeliest first. None where nothing comes before
    it."""

    token: int
    logprob: float | None
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Usage:
    """``prompt`` tokens were there before; ``generated`` ones were made, a stop token included."""

    prompt: int
    generated: int = 0


class TextDecoder(Protocol):
    """Makes the text of a generation's tokens, or as much of it as is meant to be seen."""

    def push(self, token: int) -> str: ...
    def flush(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Ending:
    """When a generation ends: what comes first of these, a stop token of the model's (or of ``stop_tokens`` instead), or the
    end of what the model can read."""

    max_tokens: int | None = None
    stop: str | Iterable[str] = ()
    stop_tokens: Iterable[int] | None = None
    until: Callable[[Generation], bool] | None = None


class Generation(AsyncIterator[str]):
    """``async for piece in generation``; a piece never ends in half a character. ``Context.generate`` makes it.

    Nothing runs between two pieces, so a loop may be left at any time; the context then holds what was made so far.
    ``tokens`` are those made, without a stop token; ``text`` is what the pieces add up to; ``logprobs`` has an entry for
    each token if they were asked for; ``stopped_by`` is the stop string or token that ended it.
    """

    def __init__(
        self,
        transcript: Transcript,
        sampler: Sampler,
        ending: Ending,
        logprobs: int | None,
        *,
        begins: bool = False,
        decoder: TextDecoder | None = None,
        matcher: Matcher | None = None,
    ) -> None:
        """``begins``: the text begins here, so a tokenizer that puts a space before texts doesn't show it. ``matcher`` says what
        it may be, and goes along."""
        if ending.max_tokens is not None and (type(ending.max_tokens) is not int or ending.max_tokens < 0):
            raise UsageError(
                f"max_tokens is {ending.max_tokens!r}; give a whole number from 0 up, or None for no limit"
            )
        strings = [ending.stop] if isinstance(ending.stop, str) else list(ending.stop)
        own = chat.stop_tokens() if ending.stop_tokens is None else ending.stop_tokens
        self.tokens: list[int] = []
        self.text = ""
        self.logprobs: list[Logprob] = []
        self.usage = Usage(prompt=len(transcript.tokens))
        self.finish_reason: FinishReason | None = "length" if ending.max_tokens == 0 else None
        self.stopped_by: str | int | None = None
        self._transcript = transcript
        self._revision = transcript.revision
        self._matcher = matcher
        self._chooser = Chooser(sampler, logprobs, None if matcher is None else matcher.id)
        self._max_tokens = ending.max_tokens
        self._until = ending.until
        self._strings = StopStrings(strings)
        self._stop_tokens = frozenset(own) | _control_tokens(strings)
        # By a grammar the text is what it says, a leading space included.
        continued = not begins or matcher is not None
        self._decoder: TextDecoder = decoder or chat.Decoder(continued=continued)
        self._ends = [0]
        """Where the text ends after so many tokens, as far as it is certain then."""

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> str:
        """The next piece, once there is some text."""
        before = len(self.text)
        while await self.step():
            if len(self.text) > before:
                return self.text[before:]
        raise StopAsyncIteration

    async def finish(self) -> str:
        """Runs to the end, and gives the whole text."""
        async for _ in self:
            pass
        return self.text

    async def step(self) -> bool:
        """One token, or those that a grammar leaves no choice of, and the text that has become certain with it; False once there
        is none to come."""
        if self.finish_reason is not None:
            return False
        self._check_unchanged()
        if self._matcher is not None and self._follow(self._matcher):
            return True
        result = await self._transcript.forward(self._chooser.epilogue())
        self._check_unchanged()
        choice = self._chooser.take(result)
        self.usage.generated += 1
        if choice.token in self._stop_tokens:
            self.stopped_by = choice.token
            self._finish("stop")
            return True
        if self._matcher is not None:
            self._matcher.accept(choice.token)
        self._accept(choice)
        return True

    def _follow(self, matcher: Matcher) -> bool:
        """Takes what comes next in any case, if anything does: no pass is run for it. Where log probabilities were asked for,
        each token has its pass."""
        forced = [] if self._chooser.reports else matcher.forced
        if not (forced or matcher.finished):
            return False
        matcher.accept(forced)
        for count, token in enumerate(forced, 1):
            self.usage.generated += 1
            self._chooser.note(token)
            self._accept(Choice(token), ahead=len(forced) - count)
            if self.finish_reason is not None:
                break
        else:
            if not forced:
                self._finish("stop")
        return True

    def _accept(self, choice: Choice, ahead: int = 0) -> None:
        """``ahead`` is how many tokens more the matcher, if there is one, has taken."""
        self.tokens.append(choice.token)
        self._transcript.append([choice.token])
        if choice.logprob is not None:
            self.logprobs.append(Logprob(choice.token, choice.logprob, choice.alternatives))
        decoded = self._decoder.push(choice.token)
        self._ends.append(self._ends[-1] + len(decoded))
        self.text += self._strings.push(decoded)
        reason = self._reason(ahead)
        if reason is not None and self._matcher is not None:
            self._matcher.rollback(ahead)
        if self._strings.found is not None:
            self.finish_reason, self.stopped_by = "stop", self._strings.found
            self._cut()
        elif reason is not None:
            self._finish(reason)
        self._revision = self._transcript.revision

    def _reason(self, ahead: int) -> FinishReason | None:
        """Why it ends with the latest token, if it does."""
        if self._strings.found is not None:
            return "stop"
        if self._until is not None and self._until(self):
            return "until"
        if not ahead and self._matcher is not None and self._matcher.finished:
            return "stop"
        if len(self.tokens) == self._max_tokens:
            return "length"
        return "context" if len(self._transcript.tokens) > model.context_size() else None

    def _finish(self, reason: FinishReason) -> None:
        """With what was held back by then."""
        self.finish_reason = reason
        self.text += self._strings.push(self._decoder.flush()) + self._strings.flush()

    def _cut(self) -> None:
        """A stop string was made: the context goes back to hold just the text before it."""
        length = len(self.text)
        kept = next(count for count, end in enumerate(self._ends) if end >= length)
        rest: list[int] = []
        if self._ends[kept] > length:
            # The string begins inside of a token: the text before that is put into tokens of its own.
            begin = self._ends[kept - 1]
            kept = self._ends.index(begin)
            rest = model.encode(self.text[begin:])
        self._transcript.truncate(len(self._transcript.tokens) - len(self.tokens) + kept)
        self._transcript.append(rest)
        if self._matcher is not None:
            self._matcher.rollback(len(self.tokens) - kept)
            self._matcher.accept(rest)

    def _check_unchanged(self) -> None:
        if self._transcript.revision != self._revision:
            raise UsageError(
                "the context was changed while this generation was under way; "
                "fork it for a second one, or let the first one end"
            )


def _control_tokens(strings: Iterable[str]) -> frozenset[int]:
    """Stop strings that spell a control token, which never shows in the text."""
    spelt = (model.encode(string, special=True) for string in strings)
    return frozenset(ids[0] for ids in spelt if len(ids) == 1 and not model.decode(ids, continued=True))
