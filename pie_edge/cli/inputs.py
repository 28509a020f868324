"""The words after ``--`` as the inferlet's ``input``.

    --key value   --key=value    typed as JSON where it parses (8, true, [1, 2], null), else text;
                                 one that begins with -- needs the =
    --key:text value             always text
    --key    --no-key            true, false
    --key a --key b              ["a", "b"]

Dashes inside a key become underscores: ``--max-tokens 8`` is ``input["max_tokens"] == 8``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pie_edge.errors import UsageError

TEXT_SUFFIX = ":text"
MOST_DIGITS = sys.int_info.default_max_str_digits


def parse_words(words: Sequence[str]) -> dict[str, Any]:
    """Raises UsageError naming the word that can't be understood."""
    given: dict[str, list[Any]] = {}
    position = 0
    while position < len(words):
        word = words[position]
        following = words[position + 1] if position + 1 < len(words) else None
        name, value, used = _pair(word, following)
        given.setdefault(name, []).append(value)
        position += used
    return {name: values[0] if len(values) == 1 else values for name, values in given.items()}


def _pair(word: str, following: str | None) -> tuple[str, Any, int]:
    """Name, value and how many words it took."""
    _check_text(word)
    if not word.startswith("--"):
        raise UsageError(f"{word!r} after -- has no key; write it as --key {word}")
    key, equals, value = word[2:].partition("=")
    used = 1
    if not equals and following is not None and not following.startswith("--"):
        _check_text(following)
        value, equals, used = following, "=", 2
    as_text = key.endswith(TEXT_SUFFIX)
    name = key.removesuffix(TEXT_SUFFIX).replace("-", "_")
    if equals:
        typed: Any = value if as_text else typed_value(value)
    elif as_text:
        raise UsageError(f"{word} needs a value")
    else:
        typed = not name.startswith("no_")
        name = name.removeprefix("no_")
    if not name.isidentifier():
        raise UsageError(f"{word!r} is no key; keys are names such as --prompt or --max-tokens")
    return name, typed, used


def typed_value(text: str) -> Any:
    """What ``text`` is as JSON, or the text itself."""
    try:
        return _strict_json(text)
    except (ValueError, RecursionError):
        return text


def _strict_json(text: str) -> Any:
    """As the standard has it: NaN, Infinity and numbers beyond a float are refused; so are whole numbers that Python wouldn't
    turn into text again."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_whole)


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits, the most is {MOST_DIGITS:,}; write it as text")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no JSON number")
    return number


def _check_text(word: str) -> None:
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{word!r} is not valid UTF-8") from None


def read_object(source: str) -> dict[str, Any]:
    """The JSON object in a file, or on stdin for ``-``."""
    try:
        # Some editors begin a file with a byte order mark.
        text = (sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--input {source} can't be read: {error}") from None
    if not text.strip():
        raise UsageError(f"--input {source} is empty; an inferlet's input is a JSON object")
    try:
        value = _strict_json(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--input {source} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"--input {source} holds {type(value).__name__}; an inferlet's input is a JSON object")
    return value
