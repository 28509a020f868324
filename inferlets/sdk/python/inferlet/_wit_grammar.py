"""Grammars of the WIT world."""

from __future__ import annotations

from typing import Any

from wit_world.imports import grammar

from inferlet._matching import MatcherState
from inferlet._wit_errors import checked

_SOURCES = {
    "json-schema": grammar.Source_JsonSchema,
    "regex": grammar.Source_Regex,
    "lark": grammar.Source_Lark,
}
_CHOICES = {"auto": grammar.Choice_Auto(), "required": grammar.Choice_Required()}


class _Matcher:
    def __init__(self, handle: grammar.Matcher) -> None:
        self._handle = handle
        self.id = handle.id()
        self.mask = checked(handle.mask)
        self._accept = checked(handle.accept)

    def accept(self, tokens: list[int]) -> MatcherState:
        return _state(self._accept(tokens))

    def rollback(self, count: int) -> MatcherState:
        return _state(checked(self._handle.rollback)(count))

    def fork(self) -> _Matcher:
        return _Matcher(checked(self._handle.fork)())

    def state(self) -> MatcherState:
        return _state(checked(self._handle.state)())


class _Grammar:
    def __init__(self, handle: grammar.Grammar) -> None:
        self._handle = handle

    def matcher(self) -> _Matcher:
        return _Matcher(checked(self._handle.matcher)())


class Grammars:
    def compile_grammar(self, kind: str, text: str | None) -> _Grammar:
        source = grammar.Source_Json() if text is None else _SOURCES[kind](text)
        return _Grammar(checked(grammar.Grammar.compile)(source))

    def tools_grammar(
        self, tools: str, choice: str, name: str | None, parallel: bool, thinking: bool | None
    ) -> _Grammar:
        wanted = grammar.Choice_Named(name) if name is not None else _CHOICES[choice]
        return _Grammar(checked(grammar.Grammar.of_tools)(tools, wanted, parallel, thinking))


def _state(found: Any) -> MatcherState:
    return MatcherState(found.accepting, found.finished, list(found.forced))
