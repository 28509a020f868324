"""Reads our WIT files: as much of the language as they use, and an error for anything else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_TOKEN = re.compile(
    r"(?P<doc>///[^\n]*)|(?P<comment>//[^\n]*)|(?P<mark>->|[{}()<>,:;.=@/])|\s+"
    r"|(?P<word>%?[a-z][a-z0-9-]*|_|\d+\.\d+\.\d+)"
)


@dataclass(frozen=True)
class Member:
    """A parameter, a field, or a case; ``type`` is None for a case without a payload."""

    name: str
    type: str | None
    docs: str = ""


@dataclass(frozen=True)
class Function:
    name: str
    parameters: tuple[Member, ...]
    result: str | None
    docs: str
    kind: str = "func"
    """``func``, ``static func`` or ``constructor``."""

    def __str__(self) -> str:
        given = ", ".join(f"{one.name}: {one.type}" for one in self.parameters)
        if self.kind == "constructor":
            return f"constructor({given})"
        gives = f" -> {self.result}" if self.result else ""
        return f"{self.name}: {self.kind}({given}){gives}"


@dataclass(frozen=True)
class Type:
    """A record, variant, enum or resource."""

    kind: str
    name: str
    docs: str
    members: tuple[Member, ...] = ()
    methods: tuple[Function, ...] = ()


@dataclass
class Interface:
    """An interface, or the world: then ``functions`` are what it exports."""

    name: str
    docs: str
    types: list[Type] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)

    def type(self, name: str) -> Type:
        return next(one for one in self.types if one.name == name)


class _Reader:
    def __init__(self, text: str, where: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._where = where
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise SyntaxError(f"{where}: {text[place : place + 20]!r} isn't understood")
            if match.lastgroup in ("doc", "word", "mark"):
                self._tokens.append((match.lastgroup, match[0]))
            place = match.end()
        self._at = 0

    @property
    def over(self) -> bool:
        return self._at == len(self._tokens)

    def peek(self) -> str:
        return "" if self.over else self._tokens[self._at][1]

    def take(self, *wanted: str) -> str:
        """The next token, which must be one of ``wanted`` if there are any."""
        found = self.peek()
        if not found or (wanted and found not in wanted):
            raise SyntaxError(f"{self._where}: {found or 'the end'!r} where {' or '.join(wanted) or 'more'} is due")
        self._at += 1
        return found

    def skip(self, text: str) -> bool:
        found = self.peek() == text
        self._at += found
        return found

    def docs(self) -> str:
        lines = []
        while not self.over and self._tokens[self._at][0] == "doc":
            lines.append(self.take().removeprefix("///").strip())
        return "\n".join(lines)

    def name(self) -> str:
        return self.take().removeprefix("%")

    def until(self, end: str) -> None:
        while self.take() != end:
            pass

    def type(self) -> str:
        name = self.name()
        if not self.skip("<"):
            return name
        inner = [self.type()]
        while self.skip(","):
            inner.append(self.type())
        self.take(">")
        return f"{name}<{', '.join(inner)}>"

    def members(self, open_: str, close: str) -> tuple[Member, ...]:
        """``name``, ``name: type`` or ``name(type)``, with commas between them."""
        self.take(open_)
        found = []
        while not self.skip(close):
            docs, name = self.docs(), self.name()
            kind = None
            if self.skip(":"):
                kind = self.type()
            elif self.skip("("):
                kind = self.type()
                self.take(")")
            found.append(Member(name, kind, docs))
            if self.peek() != close:
                self.take(",")
        return tuple(found)

    def function(self, name: str, docs: str) -> Function:
        kind = "static func" if self.skip("static") else "func"
        self.take("func")
        parameters = self.members("(", ")")
        result = self.result()
        self.take(";")
        return Function(name, parameters, result, docs, kind)

    def result(self) -> str | None:
        return self.type() if self.skip("->") else None

    def resource(self, docs: str) -> Type:
        name, methods = self.name(), []
        self.take("{")
        while not self.skip("}"):
            said = self.docs()
            method = self.name()
            if method == "constructor":
                methods.append(Function(method, self.members("(", ")"), None, said, "constructor"))
                self.take(";")
            else:
                self.take(":")
                methods.append(self.function(method, said))
        return Type("resource", name, docs, methods=tuple(methods))

    def block(self, docs: str) -> Interface:
        """What stands in an interface or a world, braces included."""
        found = Interface(self.name(), docs)
        self.take("{")
        while not self.skip("}"):
            said = self.docs()
            word = self.take()
            if word in ("use", "import"):
                self.until(";")
            elif word in ("record", "variant", "enum") and self.peek() != ":":
                found.types.append(Type(word, self.name(), said, self.members("{", "}")))
            elif word == "resource" and self.peek() != ":":
                found.types.append(self.resource(said))
            else:
                name = self.name() if word == "export" else word.removeprefix("%")
                self.take(":")
                found.functions.append(self.function(name, said))
        return found


def read(text: str, where: str = "WIT") -> list[Interface]:
    """The interfaces and worlds of a file. Raises SyntaxError."""
    reader = _Reader(text, where)
    found = []
    while not reader.over:
        docs = reader.docs()
        if reader.take("package", "interface", "world") == "package":
            reader.until(";")
        else:
            found.append(reader.block(docs))
    return found


def read_all(files: Iterable[Path]) -> dict[str, Interface]:
    """By name."""
    found = [one for file in files for one in read(file.read_text(encoding="utf-8"), file.name)]
    return {one.name: one for one in found}
