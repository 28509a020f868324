"""Grammars and matchers, as the host has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class MatcherState:
    """Whether the text may end, whether it has to, and the tokens that come next in any case."""

    accepting: bool
    finished: bool
    forced: list[int]


class MatcherHandle(Protocol):
    id: int

    def accept(self, tokens: list[int]) -> MatcherState: ...
    def rollback(self, count: int) -> MatcherState: ...
    def fork(self) -> MatcherHandle: ...
    def state(self) -> MatcherState: ...
    def mask(self) -> list[int]: ...


class GrammarHandle(Protocol):
    def matcher(self) -> MatcherHandle: ...


class GrammarHost(Protocol):
    def compile_grammar(self, kind: str, text: str | None) -> GrammarHandle:
        """``kind`` is ``json-schema``, ``json``, which has no text, ``regex`` or ``lark``."""

    def tools_grammar(
        self, tools: str, choice: str, name: str | None, parallel: bool, thinking: bool | None
    ) -> GrammarHandle:
        """``choice`` is ``auto``, ``required`` or ``named``."""
