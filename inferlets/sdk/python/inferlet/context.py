"""A context to fill, generate from, fork and look into: what most programs need of the model.

context = Context()
context.fill("Hello,")
print(await context.generate_until(max_tokens=10))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import ModuleType, TracebackType
from typing import Any

from inferlet import chat, probes, snapshots
from inferlet import model as _model
from inferlet import tools as _tools
from inferlet._kv import check_length
from inferlet._seeds import first_seed
from inferlet._transcript import Transcript, check_tokens
from inferlet.errors import InvalidHandle, UsageError
from inferlet.eta.memo import traced
from inferlet.generation import Ending, Generation, Logprob, TextDecoder
from inferlet.grammar import Grammar, Matcher
from inferlet.samplers import GREEDY, Sampler


class Turn(Enum):
    """Where a conversation stands. In a NONE, tokens were put in by hand, or nothing was."""

    NONE = 0
    ASKED = 1
    """The last turn is whole, and the model's comes next."""
    OPEN = 2
    """The model's own turn has begun."""


class Context:
    """Tokens that the model reads, and writes on. It begins with what the model wants a context to begin with (``chat.prefix``).

    Filling costs nothing by itself: tokens are forwarded when logits are needed, all at once. Pages are taken as they fill
    and given back when the context is closed, leaves its ``with`` block, or is no longer referred to. ``seed`` is what its
    random numbers derive from; by default each context of a program has its own, which follows from the program's. Its tokens
    go through ``adapter``, one of ``model.adapters()``, if it has one; so do those of its forks.
    """

    def __init__(
        self,
        model: ModuleType | None = None,
        *,
        seed: int | None = None,
        adapter: str | None = None,
        thinking: bool | None = None,
    ) -> None:
        """``model`` is ``inferlet.model``: there is the one. ``thinking`` has it think before it answers, or not, where its chat
        template can say so. Raises InvalidHandle for an adapter that it hasn't."""
        if model is not None and model is not _model:
            raise UsageError(
                f"a context of {model!r} was asked for; write Context(model), after `from inferlet import model`"
            )
        self._start(Transcript(first_seed() if seed is None else seed, adapter), thinking=thinking)
        self.transcript.fill(chat.prefix())

    @classmethod
    def of(
        cls,
        transcript: Transcript,
        turn: Turn = Turn.NONE,
        *,
        opened: bool = False,
        begins: bool = False,
        thinking: bool | None = None,
    ) -> Context:
        """Over tokens that are there already; for the SDK's own modules."""
        context = object.__new__(cls)
        context._start(transcript, turn, opened, begins, thinking)
        return context

    def _start(
        self,
        transcript: Transcript,
        turn: Turn = Turn.NONE,
        opened: bool = False,
        begins: bool = False,
        thinking: bool | None = None,
    ) -> None:
        self.transcript = transcript
        self.turn = turn
        self.thinking = thinking
        self.opened = opened
        """Whether the conversation has begun: with a system message, or what stands in its place."""
        self._begins = begins
        """Whether the next text begins a turn."""
        self._base = len(transcript.tokens)
        """How many tokens it had when it was forked."""
        self._last: Generation | None = None
        self._answer: asyncio.Future[None] | None = None

    # What it holds.

    @property
    def tokens(self) -> list[int]:
        return list(self.transcript.tokens)

    @property
    def text(self) -> str:
        """Without the control tokens."""
        return _model.decode(self.transcript.tokens)

    @property
    def last(self) -> Generation:
        """The latest generation: its text, tokens, logprobs, usage and why it ended."""
        if self._last is None:
            raise UsageError("this context hasn't generated anything yet")
        return self._last

    # Filling it.

    def fill(self, content: str | Iterable[int], *, special: bool = False) -> None:
        """Appends text or tokens. With ``special``, text that spells a control token becomes that token.

        Raises ContextOverflow, having changed nothing, if that would be more than the model can read.
        """
        tokens = _model.encode(content, special=special) if isinstance(content, str) else check_tokens(content)
        self.transcript.fill(tokens)
        self._begins = False
        if self.turn is Turn.ASKED:
            self.turn = Turn.NONE

    async def fill_scored(self, tokens: Iterable[int], alternatives: int = 0) -> list[Logprob]:
        """Appends tokens, as ``fill``, and gives what the model thinks of each, and of the likeliest in its place. The first
        token of a context has no log probability: nothing comes before it."""
        given = check_tokens(tokens)
        check_length(len(self.transcript.tokens) + len(given))
        self._begins = False
        if self.turn is Turn.ASKED:
            self.turn = Turn.NONE
        return await probes.along(self.transcript, given, alternatives)

    def fill_system(self, text: str) -> None:
        """A system message; it comes first. Raises TemplateError where the model has no chat template, like all turns."""
        self._fill_turn(chat.system(text, thinking=self.thinking), opens=True)

    def fill_user(self, text: str) -> None:
        self._fill_turn(chat.user(text))

    def fill_assistant(self, text: str) -> None:
        """An answer, as if the model had given it."""
        self._fill_turn(chat.assistant(text))

    def equip(self, tools: Iterable[Mapping[str, Any]], system: str | None = None) -> None:
        """Tells the model of its tools; it comes first, with a system message or without. ``tools.Decoder`` finds the calls."""
        self._fill_turn(_tools.equip(tools, system, thinking=self.thinking), opens=True)

    def fill_answers(self, *answers: tuple[_tools.Call | str, Any]) -> None:
        """What the calls of the model's last turn gave, all of them: pairs of a call and its answer. Closes that turn."""
        if self.turn is not Turn.OPEN:
            raise UsageError("nothing has been called: the model's own turn isn't open; generate one with calls first")
        tokens = _tools.answer(*answers)
        self._check_called([call if isinstance(call, str) else call.name for call, _ in answers])
        self.transcript.fill(tokens)
        self.turn = Turn.ASKED

    def cue(self) -> None:
        """Opens the model's own turn. A generation does so by itself after a ``fill_user``."""
        if self.turn is not Turn.OPEN:
            self.transcript.fill(chat.cue(thinking=self.thinking))
            self.turn, self._begins = Turn.OPEN, True

    def seal(self) -> None:
        """Closes the model's own turn, if it is open. The next turn does so by itself."""
        if self.turn is Turn.OPEN:
            self.transcript.fill(chat.seal())
            self.turn = Turn.NONE

    def truncate(self, length: int) -> None:
        """Back to its first ``length`` tokens; what they are worth in the cache stays."""
        if not 0 <= length <= len(self.transcript.tokens):
            raise InvalidHandle(f"a context of {len(self.transcript.tokens)} tokens can't be truncated to {length}")
        self.transcript.truncate(length)
        self.turn, self._begins = Turn.NONE, False
        self._base = min(self._base, length)

    def _check_called(self, answered: Sequence[str]) -> None:
        """Raises UsageError for an answer to what the model has not called, if its turn is a generation with calls."""
        made = self._last.tokens if self._last is not None else []
        if not made or self.transcript.tokens[-len(made) :] != made:
            return
        called = _tools.called(made, thinking=self.thinking)
        strange = [name for name in answered if called and name not in called]
        if strange:
            raise UsageError(
                f"there is an answer of {strange[0]!r}, which the model's turn doesn't call; it calls {', '.join(called)}"
            )

    def _fill_turn(self, turn: Sequence[int], opens: bool = False) -> None:
        before = chat.seal() if self.turn is Turn.OPEN else []
        if not (opens or self.opened):
            before = [*before, *chat.preamble(thinking=self.thinking)]
        self.transcript.fill([*before, *turn])
        self.opened, self.turn = True, Turn.ASKED

    # Generating.

    def generate(
        self,
        sampler: Sampler | None = None,
        *,
        max_tokens: int | None = None,
        stop: str | Iterable[str] = (),
        stop_tokens: Iterable[int] | None = None,
        until: Callable[[Generation], bool] | None = None,
        logprobs: int | None = None,
        decoder: TextDecoder | None = None,
        grammar: Grammar | Matcher | None = None,
        **settings: Any,
    ) -> Generation:
        """An asynchronous iterator over pieces of text; what is made is appended to the context.

        It ends at ``max_tokens``, before any of the strings in ``stop`` (of which neither the text nor the context keeps
        anything), at a stop token of the model (or of ``stop_tokens`` in their place), when ``until(generation)`` holds, or
        when the model can read no more. Without a ``sampler`` the likeliest token is taken; settings of one may stand in
        its place: ``generate(temperature=0.7, top_p=0.9)``. ``logprobs`` is how many alternatives to report. A ``decoder`` makes
        the text out of the tokens in place of ``chat.Decoder``: what it leaves out is neither shown nor stopped at.

        With a ``grammar`` only tokens are chosen that it allows, and it ends where the grammar does; a matcher goes along, and a
        later generation may go on with it. Log probabilities stay those of the model itself.
        """
        chosen = _sampler(sampler, settings)
        if self.turn is Turn.ASKED:
            self.cue()
        ending = Ending(max_tokens, stop, stop_tokens, until)
        begins, matcher = self._begins, _matcher(grammar)
        self._last = Generation(
            self.transcript, chosen, ending, logprobs, begins=begins, decoder=decoder, matcher=matcher
        )
        self._begins = False
        return self._last

    async def generate_until(self, sampler: Sampler | None = None, **options: Any) -> str:
        """As ``generate``, whole: the text. ``last`` has the rest."""
        generation = self.generate(sampler, **options)
        self._answer = answer = asyncio.get_running_loop().create_future()
        try:
            text = await generation.finish()
        except Exception as error:
            answer.set_exception(error)
            answer.exception()  # looked at: a program needn't join
            raise
        except BaseException:
            answer.set_result(None)
            raise
        answer.set_result(None)
        return text

    # Branches.

    def fork(self, *, seed: int | None = None) -> Context:
        """A copy that goes its own way, and draws its own numbers. The two share pages until one of them writes; tokens that
        weren't forwarded yet are forwarded once for all forks."""
        transcript = self.transcript.fork(seed)
        return Context.of(transcript, self.turn, opened=self.opened, begins=self._begins, thinking=self.thinking)

    async def join(self, *forks: Context) -> list[str]:
        """Waits for the forks' ``generate_until``, and appends what each has added since it was forked, in their order.

        Gives their texts; raises what a fork's generation failed with. What the first fork has added to a context that
        stayed as it was isn't forwarded again.
        """
        await asyncio.sleep(0)  # tasks that were just made begin now
        for fork in forks:
            if fork._answer is not None:
                await asyncio.shield(fork._answer)
        texts = []
        for fork in forks:
            added = fork.transcript.tokens[fork._base :]
            texts.append(_model.decode(added, continued=True))
            alike = fork.transcript.adapter == self.transcript.adapter
            if alike and fork.transcript.tokens[: fork._base] == self.transcript.tokens:
                self.transcript.adopt(fork.transcript)
            else:
                self.transcript.fill(added)
            self.turn, self.opened, self._begins = fork.turn, fork.opened, fork._begins
        return texts

    # Looking into it; nothing is appended.

    async def read(self, epilogue: Callable[[], Any]) -> Any:
        """What an epilogue (``docs/epilogues.md``) makes of the logits after the last token."""
        return await self.transcript.forward(traced(epilogue))

    async def score(self, candidates: Sequence[str | int | Sequence[int]]) -> list[float]:
        """The log probability of each candidate coming next: a text, a token, or tokens."""
        return await probes.score(self.transcript, candidates)

    async def entropy(self) -> float:
        """Of the next token, in nats."""
        return await probes.entropy(self.transcript)

    async def logits(self, tokens: Sequence[int]) -> list[float]:
        """The raw logits of these tokens coming next."""
        return await probes.logits(self.transcript, tokens)

    async def likeliest(self, count: int = 10) -> list[tuple[int, float]]:
        """The likeliest next tokens with their log probabilities, likeliest first."""
        return await probes.likeliest(self.transcript, count)

    # Keeping it.

    async def save(self, name: str) -> None:
        """Keeps it on disk under ``name``, in place of what had that name. ``snapshots`` has the names there are."""
        state = {
            "turn": self.turn.name,
            "opened": self.opened,
            "adapter": self.transcript.adapter,
            "thinking": self.thinking,
        }
        await snapshots.save(self.transcript, name, state)

    @classmethod
    async def load(cls, name: str, *, seed: int | None = None) -> Context:
        """A context that goes on where the saved one was, with nothing to be forwarded again. Like any new one it draws numbers
        of its own."""
        transcript = Transcript(first_seed() if seed is None else seed)
        state = await snapshots.load(transcript, name)
        return cls.of(transcript, Turn[state["turn"]], opened=state["opened"], thinking=state.get("thinking"))

    async def share(self, key: str, *, seconds: float | None = None) -> None:
        """Lets every inferlet of this host go on after it, as it is now, with ``resume``: until ``WorkingSet.remove(key)`` or,
        with ``seconds``, for so long, or until its pages are needed. Forwards what wasn't yet, but the last token.

        Raises UsageError for a context of fewer than two tokens, InvalidHandle if the key is taken.
        """
        await self.transcript.share(key, seconds)

    def resume(self, key: str, tokens: Iterable[int]) -> int:
        """Puts the tokens of what was shared under the key into this context, empty as it is, on its pages: how many of them
        needn't be forwarded. 0, and nothing done, where there is nothing any more."""
        return self.transcript.resume(key, check_tokens(tokens))

    def close(self) -> None:
        """Gives the pages back."""
        self.transcript.close()

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def _matcher(grammar: Grammar | Matcher | None) -> Matcher | None:
    if not isinstance(grammar, Grammar | Matcher | None):
        raise UsageError(f"{grammar!r:.80} is no grammar; give a Grammar.json_schema(…), or a matcher of one")
    return grammar.matcher() if isinstance(grammar, Grammar) else grammar


def _sampler(sampler: Sampler | None, settings: dict[str, Any]) -> Sampler:
    """The one that was given, or that the settings say; greedy where there is neither."""
    if not isinstance(sampler, Sampler | None):
        raise UsageError(f"{sampler!r} is no sampler; give a Sampler(…), or its settings by name")
    if not settings:
        return sampler or GREEDY
    known = Sampler.__dataclass_fields__
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise UsageError(f"generate takes no {', '.join(unknown)}; a sampler's settings are {', '.join(known)}")
    if sampler is not None:
        raise UsageError(f"a sampler was given, and {', '.join(settings)} beside it; put them into the sampler")
    return Sampler(**settings)
