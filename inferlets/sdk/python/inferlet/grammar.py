"""What an answer may be: a JSON Schema, a regular expression, or a grammar that the tokens are chosen by.

person = Grammar.json_schema({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
text = await context.generate_until(grammar=person, max_tokens=100)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inferlet import _check, model
from inferlet._host import GrammarHandle, MatcherHandle, host
from inferlet.errors import UsageError
from inferlet.eta import tensor as tensors
from inferlet.eta.tensor import Tensor
from inferlet.eta.trace import session

__all__ = ["Grammar", "Matcher"]


class Grammar:
    """Made once and used for any number of generations. The constructors raise GrammarError for what is no grammar, or can't be
    enforced: the message says which part, and where."""

    def __init__(self, handle: GrammarHandle) -> None:
        """For the SDK's own modules."""
        self._handle = handle

    @classmethod
    def json_schema(cls, schema: str | Mapping[str, Any] | bool) -> Grammar:
        """JSON that is valid by a schema, in the form that ``json.dumps`` gives it. Properties come in the schema's order."""
        text = schema if isinstance(schema, str) else _check.json_text(schema, "Grammar.json_schema")
        return cls._made("json-schema", text)

    @classmethod
    def json(cls) -> Grammar:
        """Any JSON object."""
        return cls._made("json", None)

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """Texts that match as a whole."""
        return cls._made("regex", _check.text(pattern, "Grammar.regex"))

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """A context-free grammar in Lark's form of EBNF; its rule ``start`` is the whole text."""
        return cls._made("lark", _check.text(text, "Grammar.lark"))

    @classmethod
    def _made(cls, kind: str, text: str | None) -> Grammar:
        return cls(host().compile_grammar(kind, text))

    def matcher(self) -> Matcher:
        """One at the beginning of a text."""
        return Matcher(self)


class Matcher:
    """How far a text has come in a grammar, and what may be its next token. ``Context.generate(grammar=matcher)`` goes on from
    there; by hand, ``mask_logits(logits, matcher)`` in an epilogue lets only those tokens through that are allowed when its pass
    is submitted."""

    def __init__(self, grammar: Grammar, *, _handle: MatcherHandle | None = None) -> None:
        self._grammar = grammar
        self._handle = _handle or grammar._handle.matcher()
        self._state = self._handle.state()

    @property
    def accepting(self) -> bool:
        """Whether the text may end here."""
        return self._state.accepting

    @property
    def finished(self) -> bool:
        """Whether it has to: nothing can follow."""
        return self._state.finished

    @property
    def forced(self) -> list[int]:
        """Tokens that come next in any case, and needn't be sampled; none where there is a choice."""
        return list(self._state.forced)

    def accept(self, tokens: int | Iterable[int]) -> None:
        """They are the next of the text. Raises GrammarError at one that isn't allowed, and then none was accepted."""
        given = _check.tokens([tokens] if isinstance(tokens, int) else tokens, "Matcher.accept")
        self._state = self._handle.accept(given)

    def rollback(self, count: int) -> None:
        """Takes the last ``count`` tokens back. Raises GrammarError for more than were accepted."""
        self._state = self._handle.rollback(_check.count(count, "Matcher.rollback"))

    def fork(self) -> Matcher:
        """A copy that goes its own way."""
        return Matcher(self._grammar, _handle=self._handle.fork())

    def mask(self) -> list[int]:
        """Bit i % 32 of word i // 32 is whether token i may come next."""
        return self._handle.mask()

    @property
    def id(self) -> int:
        """What the host calls it."""
        return self._handle.id

    def __tensor__(self) -> Tensor:
        """In an epilogue: the mask, as it is when a pass is submitted."""
        return allowed(self)


def allowed(matcher: Matcher) -> Tensor:
    """The mask of a pass as a parameter that never comes through the program."""
    tracing = session()
    if tracing is None:
        raise UsageError("a matcher is a tensor only inside of an epilogue; call matcher.mask() for its bits")
    words = -(-model.vocabulary_size() // 32)
    taken = tensors.apply("param", dtype=tensors.dtype.u32.value, shape=[words])
    taken.node.parameter = (tensors.CASES[tensors.dtype.u32], [])
    tracing.takes.append((taken.node, ("allowed", matcher.id, 0)))
    return taken
