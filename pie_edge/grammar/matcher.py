"""A grammar at work: which tokens may come next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pie_edge.errors import GrammarError
from pie_edge.grammar.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher

_NOTHING_FOLLOWS = "NoExtension"
"""How the library says so."""


MOST_FORCED = 512
"""Tokens that are told at once."""


@dataclass(slots=True)
class Pace:
    """Of all matchers of one grammar: the seconds that their latest mask and their latest step took."""

    mask: float = 0.0
    step: float = 0.0


class Matcher:
    """Tokens are accepted one after the other; what can't follow is refused, and changes nothing."""

    def __init__(self, inner: LLMatcher, vocabulary: Vocabulary, pace: Pace, accepted: int = 0) -> None:
        self.pace = pace
        self._inner = inner
        self._vocabulary = vocabulary
        self._accepted = accepted

    @property
    def words(self) -> int:
        """Of 32 bits, in a mask."""
        return self._vocabulary.words

    @property
    def accepted(self) -> int:
        """How many tokens were accepted, less those that were taken back."""
        return self._accepted

    @property
    def accepting(self) -> bool:
        """Whether the text may end here."""
        return bool(self._inner.is_accepting())

    @property
    def finished(self) -> bool:
        """Whether nothing can follow but the end."""
        return bool(self._inner.is_stopped())

    def accept(self, tokens: Sequence[int]) -> None:
        """Raises GrammarError at a token that can't follow; then none of them was accepted."""
        began = time.perf_counter()
        taken = self._inner.try_consume_tokens(list(tokens))
        self._check()
        if taken < len(tokens):
            self._inner.rollback(taken)
            raise GrammarError(f"{self._named(tokens[taken])} can't follow {self._accepted + taken} accepted tokens")
        self._accepted += taken
        self.pace.step = time.perf_counter() - began

    def rollback(self, count: int) -> None:
        """Takes the last ``count`` tokens back. Raises GrammarError for more than were accepted."""
        if not 0 <= count <= self._accepted:
            raise GrammarError(
                f"{count} tokens are to be taken back and {self._accepted} were accepted; give 0 to {self._accepted}"
            )
        if count:
            self._inner.rollback(count)
            self._check()
            self._accepted -= count

    def fork(self) -> Matcher:
        """A copy that goes its own way."""
        return Matcher(self._inner.deep_copy(), self._vocabulary, self.pace, self._accepted)

    def mask(self) -> bytes:
        """Whether each token may come next: bit i % 32 of little-endian word i // 32. Where the text may end, tokens that end an
        answer may come; some token always may."""
        began = time.perf_counter()
        mask = bytes(self._inner.compute_bitmask())
        self.pace.mask = time.perf_counter() - began
        self._check()
        if not mask.strip(b"\0"):
            self._refuse_dead_end()
        size = 4 * self.words
        return mask[:size].ljust(size, b"\0")

    def forced(self) -> list[int]:
        """The tokens that come next in any case, as the tokenizer would write that text; none where there is a choice."""
        began = time.perf_counter()
        found = [] if self.finished else list(self._inner.compute_ff_tokens()[:MOST_FORCED])
        self.pace.step += time.perf_counter() - began
        allowed = self._inner.validate_tokens(found) if found else 0
        self._check()
        return found[:allowed]

    def measure(self) -> None:
        """Takes the pace of the first mask and step."""
        self.mask()
        self.pace.step = 0.0
        self.forced()

    def _check(self) -> None:
        """A matcher that came to its limits can't go on."""
        if self._inner.is_error():
            what = str(self._inner.get_error()).split("\n")[0]
            if _NOTHING_FOLLOWS in what:
                self._refuse_dead_end()
            raise GrammarError(f"the grammar is too complex to match on from here: {what[:200]}; make it simpler")

    def _refuse_dead_end(self) -> NoReturn:
        raise GrammarError(
            f"after {self._accepted} tokens nothing can follow: this model has no tokens for the text that has to"
        )

    def _named(self, token: int) -> str:
        tokens = self._vocabulary.tokens
        spelled = tokens[token] if 0 <= token < len(tokens) else b"outside of the vocabulary"
        return f"token {token} ({spelled.decode('utf-8', 'replace')!r})"
