"""From a source to a grammar, once for each source."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from pie_edge.errors import GrammarError
from pie_edge.grammar.matcher import Matcher, Pace
from pie_edge.grammar.schema import Prepared, prepare
from pie_edge.grammar.schema.refusal import refuse
from pie_edge.grammar.source import Source
from pie_edge.grammar.vocabulary import Adapter, Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MOST_KEPT = 64
"""Compiled grammars."""
MOST_TRIED = 100
"""Parts of a schema, to find the one that is refused."""
_COMPACT = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrtbf\\"',
}
"""As Python writes JSON. One form: so much of an answer is certain and needs no pass, it can't be padded, and a name can't come
again in another spelling."""
_LIMITS: Any = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 20_000,
    "max_lexer_states": 30_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
"""Of the library: a hostile grammar is refused in milliseconds rather than compiled in seconds."""

_UNFORCED = '\n%llguidance {"no_forcing": true}\n'
"""After a grammar of somebody else's: the library looks for all that must come next, without end where a terminal takes what the
next one needs, as in ``/a+/ "a"``."""
_INLINE = re.compile(r"%json\s*(?=[{\[tf])")


class Grammar:
    """Made by ``Compiler.compile``; immutable."""

    def __init__(self, source: Source, inner: LLMatcher, vocabulary: Vocabulary) -> None:
        self.source = source
        self._inner = inner
        self._vocabulary = vocabulary
        self._pace = Pace()
        self.matcher().measure()

    def matcher(self) -> Matcher:
        """One at the beginning of a text."""
        return Matcher(self._inner.deep_copy(), self._vocabulary, self._pace)


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
                self._tokenizer = llguidance.LLTokenizer(tokenizer, eos_token=tokenizer.stops)

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
        prepared = prepare(source.text) if source.kind == "json-schema" else None
        inner = self._read(_written(source) if prepared is None else _from_schema(prepared.text))
        why = _fault(inner)
        if why and prepared is not None:
            self._refuse_part(prepared, why)
        if why:
            raise GrammarError(f"the {source.kind} grammar is refused: {why}")
        return inner

    def _read(self, grammar: str) -> LLMatcher:
        import llguidance

        assert self._tokenizer is not None
        return llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=llguidance.LLParserLimits(**_LIMITS))

    def _refuse_part(self, prepared: Prepared, why: str) -> None:
        """Raises GrammarError for the innermost schema that is refused by itself, and its keyword without which it isn't."""
        for place, part in prepared.parts[:MOST_TRIED]:
            fault = self._fault_of(part, prepared)
            if fault:
                # Without its type it may always be some other value.
                words = sorted(part, key=lambda word: word == "type")
                rest = ((word, {key: part[key] for key in part if key != word}) for word in words)
                guilty = next((word for word, others in rest if not self._fault_of(others, prepared)), None)
                refuse(place if guilty is None else place / guilty, fault)
        raise GrammarError(f"the schema can't be enforced: {why}")

    def _fault_of(self, part: Any, prepared: Prepared) -> str:
        own = {"$defs": prepared.definitions, **part} if prepared.definitions else part
        return _fault(self._read(_from_schema(json.dumps(own))))


def _fault(matcher: LLMatcher) -> str:
    """Why it can't be used; empty if it can."""
    if matcher.is_error():
        return _in_one_line(str(matcher.get_error()))
    # What matches nothing is found only when it is tried.
    found = any(matcher.compute_bitmask()) and not matcher.is_error()
    return "" if found else "no text that this model can write matches it"


def _in_one_line(error: str) -> str:
    """What the library says over several lines: of a pattern it says what is wrong below a picture of where."""
    lines = [line.strip() for line in error.strip().split("\n")]
    reasons = [line.removeprefix("error: ") for line in lines[1:] if line.startswith("error: ")]
    return " ".join((lines[0], *reasons[:1]))[:500]


def _from_schema(text: str) -> str:
    from llguidance import LLMatcher

    options: Any = _COMPACT
    try:
        return str(LLMatcher.grammar_from_json_schema(text, overrides=options))
    except ValueError as error:
        raise GrammarError(f"the schema can't be enforced: {error}") from None


def inlined(schema: str) -> str:
    """A JSON Schema as what follows ``%json`` in a Lark grammar. Raises GrammarError, as for one by itself."""
    return json.dumps({**json.loads(prepare(schema).text), "x-guidance": _COMPACT})


def with_schemas(lark: str) -> str:
    """A Lark grammar in which every inline schema is enforced whole, or refused."""
    parts: list[str] = []
    decoder, at = json.JSONDecoder(), 0
    for found in _INLINE.finditer(lark):
        if found.start() < at:
            continue
        try:
            schema, end = decoder.raw_decode(lark, found.end())
        except (ValueError, RecursionError) as error:
            raise GrammarError(
                f"what follows %json at character {found.start()} of the grammar is no JSON: {error}"
            ) from None
        parts += [lark[at : found.end()], inlined(json.dumps(schema))]
        at = end
    return "".join(parts) + lark[at:]


def _written(source: Source) -> str:
    """As the library reads it."""
    from llguidance import LLMatcher, regex_to_lark

    match source.kind:
        case "regex":
            # As JavaScript and JSON Schema have it: \d and \w are ASCII.
            return str(LLMatcher.grammar_from_regex(regex_to_lark(source.text, "dw")))
        case "lark":
            return str(LLMatcher.grammar_from_lark(with_schemas(source.text) + _UNFORCED))
        case "tools":
            return str(LLMatcher.grammar_from_lark(source.text))
        case _:
            return _from_schema('{"type": "object"}')
