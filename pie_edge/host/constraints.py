"""Grammars over the model's tokens, and their masks on the way to the device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pie_edge.control.cells import Cell, words_of_host
from pie_edge.errors import PieError
from pie_edge.host.tool_grammars import Wanted, tool_grammar
from pie_edge.tokenizer.vocabulary import Kind

if TYPE_CHECKING:
    from pie_edge.grammar import Compiler, Grammar, Matcher, Source
    from pie_edge.tokenizer import Tokenizer
    from pie_edge.tokenizer.formats import Formats

State = tuple[bool, bool, list[int]]
"""Whether the text may end, whether it has to, and what comes next in any case."""
_UNWRITTEN = (Kind.CONTROL, Kind.UNKNOWN, Kind.UNUSED)
"""Tokens of these kinds are no part of any text."""


class Constraints:
    """Of one model."""

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        """``size`` is how many logits the model has."""
        self._tokenizer = tokenizer
        self._size = size

    @cached_property
    def compiler(self) -> Compiler:
        from pie_edge.grammar import Compiler, Vocabulary

        tokenizer = self._tokenizer
        known = range(tokenizer.size)
        return Compiler(
            Vocabulary(
                tokens=[tokenizer.token_bytes(token) for token in known],
                special=frozenset(token for token in known if tokenizer.kind(token) in _UNWRITTEN),
                stops=tokenizer.stop_tokens,
                encode=lambda text: _continued(tokenizer, text),
                size=self._size,
            )
        )

    def prepare(self) -> None:
        """What the first grammar would wait for."""
        self.compiler.prepare()

    async def compile(self, source: Source) -> Grammar:
        """On another thread. Raises GrammarError."""
        return await asyncio.to_thread(lambda: self.compiler.compile(source))

    async def of_tools(self, formats: Formats, tools: Sequence[Any], wanted: Wanted) -> Grammar:
        """The same, of answers that call tools. Raises also Unsupported and UsageError."""
        return await asyncio.to_thread(self._of_tools, formats, tools, wanted)

    def _of_tools(self, formats: Formats, tools: Sequence[Any], wanted: Wanted) -> Grammar:
        from pie_edge.grammar import Source

        return self.compiler.compile(
            Source("tools", tool_grammar(self.compiler, self._tokenizer, formats, tools, wanted))
        )


SLOW = 0.0005
"""Seconds of a mask, or of a step. Where a grammar's latest took longer, the next one is taken on another thread, and nobody else
waits for it."""


def advanced(matcher: Matcher, advance: Callable[[], None], wake: Callable[[], None]) -> State | asyncio.Future[State]:
    """How ``matcher`` stands after ``advance``; ``wake`` is called if it comes later. Nobody else has the matcher meanwhile."""

    def work() -> State:
        advance()
        return matcher.accepting, matcher.finished, matcher.forced()

    if matcher.pace.step < SLOW:
        return work()
    pending = asyncio.get_running_loop().run_in_executor(None, work)
    pending.add_done_callback(lambda _: wake())
    return pending


def allowed(matcher: Matcher, wake: Callable[[], None]) -> Cell:
    """The mask as it is now, as a value that a pass takes; ``wake`` is called if it comes later. No pass is prepared behind one
    that takes a mask: the next mask depends on what is sampled."""
    cell = words_of_host(matcher.words)
    if matcher.pace.mask < SLOW:
        cell.set(matcher.mask())
        return cell
    # What is asked of the matcher meanwhile doesn't meet the thread: it has a copy.
    copy = matcher.fork()
    pending = asyncio.get_running_loop().run_in_executor(None, copy.mask)

    def arrived(found: asyncio.Future[bytes]) -> None:
        error = None if found.cancelled() else found.exception()
        if error is None and not found.cancelled():
            cell.set(found.result())
        else:
            cell.fail(error if isinstance(error, PieError) else PieError(f"a mask couldn't be computed: {error}"))
        wake()

    pending.add_done_callback(arrived)
    return cell


_BEFORE = "\x02"
"""A character that no token joins with another one."""


def _continued(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text that follows another one: without the space that some tokenizers put before every text."""
    if not tokenizer.strips_space:
        return tokenizer.encode(text)
    tokens = tokenizer.encode(_BEFORE + text)
    spelled = b"".join(map(tokenizer.token_bytes, tokens))
    rest = len(spelled) - len(text.encode())
    while tokens and rest > 0:
        rest -= len(tokenizer.token_bytes(tokens.pop(0)))
    return tokens
