"""Regular expressions of a schema, as the matching library has to read them.

JSON Schema's are ECMA-262's, Python's validators take them for Python's, and the library for Rust's. What is written here matches
nothing that one of the first two doesn't: a class that the two read differently becomes what they have in common.
"""

from __future__ import annotations

import re

_QUANTIFIER = re.compile(r"\{\d+(?:,\d*)?\}")
_ESCAPE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[pP]\{[A-Za-z_=]+\}|.)", re.DOTALL)
_NEVER = "\x01"
"""A control that no answer has, since it has no short escape. Where a class has all of them, the library lets every escape be
written for it, those of quotes and backslashes too: so none has this one."""
_ALONE = {
    "d": "[0-9]",
    "D": r"[\P{Nd}--\x01]",
    "w": "[0-9A-Za-z_]",
    "W": r"[^\x01\p{L}\p{N}\p{M}\p{Pc}]",
    "s": r"\s",
    "S": r"[\S--\x01]",
}
_IN_CLASS = {"d": "0-9", "D": r"\P{Nd}", "w": "0-9A-Za-z_", "s": r"\s", "S": r"\S"}
_IN_NEGATED_CLASS = {"d": r"\p{Nd}", "w": r"\p{L}\p{N}\p{M}\p{Pc}", "s": r"\s", "S": r"\S"}
_CONTROLS = set("nrtfv")
_ANY = r"[^\n\r\u2028\u2029\x01]"
_NOTHING = r"[\x01--\x01]"


class PatternError(Exception):
    """The message is why."""


def translated(pattern: str) -> str:
    """Raises PatternError for what isn't supported, or what the two read too differently."""
    return _Reader(pattern).read()


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0

    def read(self) -> str:
        written: list[str] = []
        while self._at < len(self._text):
            written.append(self._next())
        return "".join(written)

    def _next(self) -> str:
        character = self._text[self._at]
        if character == "\\":
            return self._escape(_ALONE)
        if character == "[":
            return self._class()
        if character == "(":
            return self._group()
        if character == "{":
            return self._brace()
        self._at += 1
        if character == ".":
            return _ANY
        if character == _NEVER:
            return _NOTHING
        return f"\\{character}" if character in "]}" else character

    def _escape(self, classes: dict[str, str]) -> str:
        found = _ESCAPE.match(self._text, self._at)
        if found is None:
            raise PatternError("it ends with a backslash")
        self._at = found.end()
        escape, name = found[0], found[0][1]
        if name in classes:
            return classes[name]
        if len(escape) > 2:
            return f"[{escape}--\\x01]" if classes is _ALONE else escape
        if name in _CONTROLS:
            return escape
        if name.isdigit() and name != "0":
            raise PatternError(f"back-references like {escape!r} aren't supported")
        if name == "0":
            return r"\x00"
        if name.isalpha():
            raise PatternError(f"{escape!r} isn't supported")
        return re.escape(name)

    def _group(self) -> str:
        self._at += 1
        if not self._text.startswith("?", self._at):
            return "(?:"
        if not self._text.startswith("?:", self._at):
            raise PatternError(
                f"groups like {self._text[self._at - 1 : self._at + 2]!r} aren't supported; only (?: begins with a question mark"
            )
        self._at += 2
        return "(?:"

    def _brace(self) -> str:
        found = _QUANTIFIER.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
            return found[0]
        if self._text.startswith("{,", self._at):
            raise PatternError("'{,' is read in different ways; write {0,")
        self._at += 1
        return r"\{"

    def _class(self) -> str:
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        if self._text.startswith("]", self._at):
            raise PatternError("a class that begins with ']' is read in different ways; write \\]")
        written: list[str] = []
        while True:
            if self._at >= len(self._text):
                raise PatternError("a class has no end")
            character = self._text[self._at]
            if character == "]":
                self._at += 1
                return f"[[{'^' if negated else ''}{''.join(written)}]--\\x01]"
            if character == "\\":
                written.append(self._escape(_IN_NEGATED_CLASS if negated else _IN_CLASS))
                continue
            self._at += 1
            written.append(self._in_class(character, bool(written)))

    def _in_class(self, character: str, inner: bool) -> str:
        """Rust gives brackets, and doubled signs, a meaning that the others don't."""
        if character != "-":
            return f"\\{character}" if character in "[&~^" else character
        last = self._text.startswith("]", self._at)
        if self._text.startswith("-", self._at):
            raise PatternError("'--' in a class is read in different ways; write \\-")
        return "-" if inner and not last else r"\-"
