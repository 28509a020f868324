"""From a source to a grammar, once for each source."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from pie_edge.errors import GrammarError
from pie_edge.grammar.json_schema import prepare
from pie_edge.grammar.matcher import Matcher
from pie_edge.grammar.source import Source
from pie_edge.grammar.vocabulary import Adapter, Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MOST_KEPT = 256
"""Compiled grammars."""
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As Python writes JSON. One form: so much of an answer is certain and needs no pass, and it can't be padded."""
_LIMITS: Any = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 20_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
"""Of the library: a hostile grammar is refused in milliseconds rather than compiled in seconds."""


class Grammar:
    """Made by ``Compiler.compile``; immutable."""

    def __init__(self, source: Source, inner: LLMatcher, vocabulary: Vocabulary) -> None:
        self.source = source
        self._inner = inner
        self._vocabulary = vocabulary

    def matcher(self) -> Matcher:
        """One at the beginning of a text."""
        return Matcher(self._inner.deep_copy(), self._vocabulary)


class Compiler:
    """Of one model. Any thread may call ``compile``, which takes milliseconds, and the first time up to a second."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._tokenizer: LLTokenizer | None = None
        self._kept: OrderedDict[str, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """What the first ``compile`` would wait for: all tokens in one tree. For 262,000 of them that takes 0.7 s, in which no
        other thread of this process has a turn."""
        import llguidance

        with self._lock:
            if self._tokenizer is None:
                tokenizer: Any = Adapter(self.vocabulary)
                self._tokenizer = llguidance.LLTokenizer(tokenizer, eos_token=sorted(self.vocabulary.stops))

    def compile(self, source: Source) -> Grammar:
        """Raises GrammarError for a source that isn't one, or that can't be enforced."""
        source.check()
        digest = source.digest
        with self._lock:
            found = self._kept.get(digest)
            if found is not None:
                self._kept.move_to_end(digest)
                return found
        self.prepare()
        made = Grammar(source, self._compiled(source), self.vocabulary)
        with self._lock:
            self._kept[digest] = made
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return made

    def _compiled(self, source: Source) -> LLMatcher:
        import llguidance

        assert self._tokenizer is not None
        limits = llguidance.LLParserLimits(**_LIMITS)
        inner = llguidance.LLMatcher(self._tokenizer, _written(source), log_level=0, limits=limits)
        if inner.is_error():
            what = str(inner.get_error()).strip().split("\n")[0]
            raise GrammarError(f"the {source.kind} grammar is refused: {what[:500]}")
        return inner


def _written(source: Source) -> str:
    """As the library reads it."""
    from llguidance import LLMatcher, regex_to_lark

    options: Any = _COMPACT
    match source.kind:
        case "json-schema":
            return str(LLMatcher.grammar_from_json_schema(prepare(source.text), overrides=options))
        case "json":
            return str(LLMatcher.grammar_from_json_schema('{"type": "object"}', overrides=options))
        case "regex":
            # As JavaScript and JSON Schema have it: \d and \w are ASCII.
            return str(LLMatcher.grammar_from_regex(regex_to_lark(source.text, "dw")))
        case "lark":
            return str(LLMatcher.grammar_from_lark(source.text))
