"""What a grammar is made from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from pie_edge.errors import GrammarError

Kind = Literal["json-schema", "json", "regex", "lark", "tools"]

LONGEST = 96 * 1024
"""Bytes of a source in UTF-8: reading one takes about a millisecond, in which no other thread has a turn."""


@dataclass(frozen=True, slots=True)
class Source:
    """``json`` is any JSON object, and has no text; ``tools`` is Lark whose schemas were prepared by ``inlined``."""

    kind: Kind
    text: str = ""

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.kind}\n{self.text}".encode()).hexdigest()

    def check(self) -> None:
        """Raises GrammarError for one that is too long, or no text."""
        try:
            size = len(self.text.encode())
        except UnicodeEncodeError as error:
            raise GrammarError(
                f"the {self.kind} grammar has a lone surrogate at character {error.start}; pass valid Unicode"
            ) from None
        if size > LONGEST:
            raise GrammarError(
                f"the {self.kind} grammar is {size:,} bytes long, the most is {LONGEST:,}; make it smaller"
            )
