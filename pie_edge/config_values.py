"""The kinds of value a setting may have: what TOML or text is accepted, what it becomes, and how it is written back."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9}

ANY_TEXT = "a text"


@dataclass(frozen=True)
class Kind:
    """``parse`` takes what TOML holds and raises ValueError if it isn't ``expects``; ``read`` turns the text of an
    environment variable or a flag into what TOML would hold; ``write`` is a parsed value as TOML. A ``hidden`` value isn't shown,
    not as one that is refused either."""

    expects: str
    parse: Callable[[object], Any]
    read: Callable[[str], object]
    write: Callable[[Any], str]
    hidden: bool = False


def _literal(text: str) -> object:
    """``8`` → 8, ``true`` → True; anything that is no TOML value stays text, for ``parse`` to refuse."""
    try:
        value: object = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def text() -> Kind:
    def parse(value: object) -> str:
        if not isinstance(value, str) or any(ord(character) < 32 for character in value):
            raise ValueError
        return value

    return Kind(ANY_TEXT, parse, str, _quoted)


_HOST = re.compile(r"(?:\*|\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?::[0-9]{1,5})?")


def hosts() -> Kind:
    """A list of ``HOST`` or ``HOST:PORT``."""
    return _texts(lambda one: bool(_HOST.fullmatch(one)), 'a list of hosts such as ["example.org", "localhost:8080"]')


_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}=.+")


def named_folders() -> Kind:
    """A list of ``NAME=FOLDER``, each name once; as one text they have commas between them."""

    def parse(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(
            isinstance(one, str) and _NAMED.fullmatch(one) for one in value
        ):
            raise ValueError
        names = [one.partition("=")[0] for one in value]
        if len(set(names)) < len(names):
            raise ValueError
        return tuple(value)

    def read(text: str) -> object:
        return [part.strip() for part in text.split(",") if part.strip()]

    expects = 'a list of NAME=FOLDER, each name once, such as ["poet=adapters/poet"]'
    return Kind(expects, parse, read, lambda value: f"[{', '.join(map(_quoted, value))}]")


def flag() -> Kind:
    def parse(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return Kind("true or false", parse, _literal, lambda value: "true" if value else "false")


def one_of(*choices: str | int) -> Kind:
    """A closed set, all texts or all whole numbers."""
    texts = isinstance(choices[0], str)

    def parse(value: object) -> str | int:
        for choice in choices:
            if type(value) is type(choice) and value == choice:
                return choice
        raise ValueError

    named = [_quoted(str(choice)) if texts else str(choice) for choice in choices]
    expects = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} or {named[-1]}"
    return Kind(expects, parse, str if texts else _literal, lambda value: _quoted(value) if texts else str(value))


def whole(low: int, high: int) -> Kind:
    def parse(value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return Kind(f"a whole number from {low} to {high}", parse, _literal, str)


def seconds(low: float, high: float) -> Kind:
    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError
        return float(value)

    return Kind(f"a number of seconds from {low:g} to {high:,.0f}", parse, _literal, lambda value: f"{value:g}")


def size(low: int, high: int) -> Kind:
    """Bytes: a whole number, or a text with a unit such as ``"512 MiB"``."""

    def parse(value: object) -> int:
        nbytes = parse_size(value) if isinstance(value, str) else value
        if type(nbytes) is not int or not low <= nbytes <= high:
            raise ValueError
        return nbytes

    expects = f'a size such as "512 MiB", from {show_size(low)} to {show_size(high)}'
    return Kind(expects, parse, str, lambda value: _quoted(show_size(value)) if value else "0")


def parse_size(value: str) -> int:
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", value)
    unit = match and {name.lower(): factor for name, factor in UNITS.items()}.get(match[2].lower())
    if not match or unit is None:
        raise ValueError(value)
    return int(float(match[1]) * unit)


def show_size(nbytes: int) -> str:
    """The largest binary unit that holds it as a whole number: 1536 → ``1536 B``, 2**20 → ``1 MiB``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if nbytes and nbytes % UNITS[unit] == 0:
            return f"{nbytes // UNITS[unit]} {unit}"
    return f"{nbytes} B" if nbytes else "0"


HIDDEN = "…"
"""What a secret is shown as."""


def secrets() -> Kind:
    """A list of texts that nobody is shown."""

    def fits(one: str) -> bool:
        return bool(one) and one.isascii() and one.isprintable() and " " not in one

    kind = _texts(fits, "a list of keys, each of printable ASCII characters without spaces", lambda one: HIDDEN)
    return replace(kind, hidden=True)


_ORIGIN = re.compile(r"\*|https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


def origins() -> Kind:
    """A list of origins of web pages."""
    expects = 'a list of origins such as ["https://example.org", "http://localhost:3000"]'
    return _texts(lambda one: bool(_ORIGIN.fullmatch(one)), expects)


def _texts(fits: Callable[[str], bool], expects: str, shown: Callable[[str], str] = str) -> Kind:
    """A list of texts; as one text they have commas between them."""

    def parse(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) and fits(one) for one in value):
            raise ValueError
        return tuple(value)

    def read(text: str) -> object:
        return [part.strip() for part in text.split(",") if part.strip()]

    return Kind(expects, parse, read, lambda value: f"[{', '.join(_quoted(shown(one)) for one in value)}]")
