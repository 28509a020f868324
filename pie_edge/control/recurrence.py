"""Recurrent state of contexts: the slots it lies in, and how far it goes back. Pure.

Keys and values can be forgotten token by token; a recurrent state follows from all tokens before it. So a context has two
slots. The *head* has the state after all its tokens, and the inputs of the last ones, its tail. The *folded* one has the
state at an earlier place. A pass that begins where the head is goes on from there; one that begins earlier takes tokens
back: it starts from the folded state and runs what lies between again, from the tail. Below the folded place nothing can be
taken back but everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pie_edge.control.pages import Copy, Entry, PagePool, make_writable
from pie_edge.errors import InvalidHandle, Irreversible, OutOfPages, Unsupported

REVERSIBLE = 16
"""Tokens between the folded state and the head, at most: what a tail is long enough for, beside what convolutions see."""
LEAST_SLOTS = 4
"""What a pass over a forked context may need at once: two of its own, while the other fork has those it is copied from."""


class StatePool(PagePool):
    """Its pages are slots. ``model`` is named in errors; ``recurs`` is whether there is state that only running tokens again
    brings back: what convolutions see is in the tail, and needs no folded state."""

    def __init__(self, slots: int, model: str, *, recurs: bool) -> None:
        super().__init__(slots, page_size=1)
        self.model = model
        self.recurs = recurs

    @property
    def reversible(self) -> int:
        """How many tokens past where a context is sure to go on from may be forwarded, in any passes, and still be taken back.

        One fewer than is kept is for the pass that run-ahead may have put behind them. Half, where they must be run again: each
        fold runs those before it again, so it is done every so many tokens only.
        """
        return REVERSIBLE // 2 if self.recurs else REVERSIBLE - 1

    def refusal(self, count: int, who: str) -> OutOfPages:
        return OutOfPages(
            f"{who} asked for {count} slots of {self.model}'s recurrent state; {self.free} of {self.total} are free. "
            "Drop a context, run fewer at once, or raise state_memory in the configuration"
        )


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence of a step: its words of ``state_slots`` and ``state_spans``, and where it ends and is folded to."""

    slots: tuple[int, int, int]
    """source, home and fold"""
    counts: tuple[int, int, int]
    """start, replayed and folded"""
    end: int
    base: int


@dataclass(slots=True, eq=False)
class State:
    """One context's. ``end`` tokens are in the head's state, ``base`` in the folded one's; both are told in the order of
    launches, which the device keeps. ``length`` is how many of those up to ``end`` count: a pass that was only foreseen, and
    tokens that were discarded, don't. It is ``lost`` when a pass came to nothing on the device."""

    pool: StatePool
    head: Entry = field(default_factory=Entry)
    folded: Entry = field(default_factory=Entry)
    end: int = 0
    base: int = 0
    length: int = 0
    lost: bool = False

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Those that it uses: what only convolutions see is in the head's tail."""
        return (self.head, self.folded) if self.pool.recurs else (self.head,)

    def share(self, length: int) -> State:
        """That of a fork with the first ``length`` tokens. Who runs a pass first gets copies."""
        head, folded = self.pool.share(self.head), self.pool.share(self.folded)
        return State(self.pool, head, folded, self.end, self.base, min(self.length, length), self.lost)

    def give_back(self) -> None:
        self.pool.give_back(self.entries)
        self._forget()

    def lose(self) -> None:
        """A pass came to nothing, so that nobody knows what the slots have."""
        self.pool.give_back(self.entries)
        self._forget()
        self.lost = True

    def truncate(self, length: int) -> None:
        """Only the first ``length`` tokens still count."""
        self.length = min(self.length, length)

    def check(self, start: int, who: str, does: str = "goes on from token") -> None:
        """Raises Irreversible or InvalidHandle where no pass can begin at ``start``."""
        if start == 0:
            return
        model = self.pool.model
        if self.lost:
            raise Irreversible(
                f"{who} {does} {start}, and {model}'s recurrent state of this context was lost with a pass that failed; forward "
                "it from token 0, or use a fork made before"
            )
        if start > self.length:
            raise InvalidHandle(
                f"{who} {does} {start}, and {self.length} tokens come before: {model} has recurrent state, which passes over no "
                "token; forward those between"
            )
        if start < self.base:
            raise Irreversible(
                f"{who} {does} {start} of {self.length}, and {model} has recurrent state, which goes back to {self.base}, or to "
                "0. Fork a context before what may have to be taken back, or forward it from token 0; model.reversible_tokens() "
                "is how many can always be"
            )

    def claim(self, begin: int, start: int, end: int, who: str) -> tuple[Span, Sequence[Copy]]:
        """What rows ``start … end`` of a pass that began at ``begin`` run on, once its slots are its own to write, by these
        copies. Raises what ``check`` does, or OutOfPages, and has changed nothing that counts.

        It counts once it is committed. The sources of the copies stay held, as those of ``make_writable``.
        """
        self.check(start, who)
        base = 0 if start == 0 else self.base
        target = self._target(base, begin, end)
        folds = self.pool.recurs and target > base
        # What is folded must be run on: when it lies behind the head, from the folded state on.
        ahead = start == self.end and start > 0 and not (folds and target < start)
        origin = start if ahead or not self.pool.recurs else base
        copies = make_writable(self.pool, [(entry, 0) for entry in (self.entries if folds else (self.head,))], who)
        source = self.head if ahead or not self.pool.recurs else self.folded
        slots = source.page if origin else 0, self.head.page, self.folded.page if folds else 0
        return Span(slots, (start, start - origin, target - origin if folds else 0), end, target), copies

    def commit(self, span: Span, *, counts: bool) -> None:
        """The pass goes to the device next; it ``counts`` unless it was only foreseen."""
        self.head.written, self.folded.written = 1, int(self.pool.recurs and span.base > 0)
        self.end, self.base, self.lost = span.end, span.base, False
        self.length = span.end if counts else min(self.length, span.counts[0])

    def _target(self, base: int, begin: int, end: int) -> int:
        """Where to fold to: as late as there is need for, and then so that there is none for a while; never into a pass that
        fits between the two."""
        if end - base <= REVERSIBLE:
            return base
        if not self.pool.recurs:
            return end - REVERSIBLE
        return max(end - REVERSIBLE, min(begin, end - 1 - self.pool.reversible), base)

    def _forget(self) -> None:
        self.end = self.base = self.length = 0


def refuse_trick(state: State | None, who: str, what: str) -> None:
    """Raises Unsupported for what works on keys and values alone, where there is more."""
    if state is not None:
        raise Unsupported(
            f"{who} {what}: that is for attention alone, and {state.pool.model} has recurrent state, in which every token that "
            "was forwarded stays. Forward the tokens that are to count in a context of their own; model.is_recurrent() tells"
        )
