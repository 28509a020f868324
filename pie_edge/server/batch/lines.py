"""The lines of a batch: requests on the way in, answers on the way out.

A line of the input is ``{"custom_id": …, "method": "POST", "url": "/v1/chat/completions", "body": {…}}``. A line of the output
has the ``custom_id`` with a ``response`` (its ``status_code``, ``request_id`` and ``body``), or an ``error``. One that isn't any
request's, since its line can't be read or gives a ``custom_id`` again, says the number of that line.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pie_edge.errors import UsageError

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings")
_FIELDS = {"custom_id", "method", "url", "body"}


@dataclass(frozen=True, slots=True)
class Item:
    """A request. ``body`` is JSON."""

    custom_id: str
    url: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that is no request. ``custom_id`` is given where the line alone is wrong, and not its name."""

    line: int
    reason: str
    custom_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said. ``body`` is what it sent, JSON or not."""

    status: int
    request_id: str
    body: bytes


def read(path: Path) -> Iterator[Item | Bad]:
    """Empty lines are passed over. Raises UsageError for a file that can't be read."""
    seen: dict[str, int] = {}
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _item(number, line, seen)
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); name a file with a request on each line") from error


def _item(number: int, line: bytes, seen: dict[str, int]) -> Item | Bad:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Bad(number, f"the line is no JSON: {error}")
    if not isinstance(found, dict) or not isinstance(found.get("custom_id"), str) or not found["custom_id"]:
        return Bad(number, "a line is an object with a custom_id, which is a text, a method, a url and a body")
    name = found["custom_id"]
    if name in seen:
        return Bad(number, f"line {seen[name]} has the custom_id {name!r} already; each line needs its own")
    seen[name] = number
    if problem := _problem(found):
        return Bad(number, problem, name)
    return Item(name, found["url"], json.dumps(found["body"], ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _problem(found: dict[str, Any]) -> str:
    """Why it is no request, or nothing."""
    if unknown := found.keys() - _FIELDS:
        return (
            f"the line has {', '.join(sorted(unknown))}, which no request has; it takes custom_id, method, url and body"
        )
    if found.get("method") != "POST":
        return f"the method is {found.get('method')!r}; it is POST"
    if found.get("url") not in URLS:
        return f"the url is {found.get('url')!r}; it is one of {', '.join(URLS)}"
    body = found.get("body")
    if not isinstance(body, dict):
        return f"the body is {type(body).__name__}; it is an object"
    try:
        json.dumps(body, allow_nan=False)
    except ValueError:
        return "the body has a number that JSON hasn't, or that is beyond a double-precision number, as 1e999"
    if body.get("stream"):
        return "the body asks for a stream, which a line of a file can't be; leave stream out"
    return ""


def answered(item: Item, answer: Answer) -> str:
    """A line of the output."""
    try:
        body = json.loads(answer.body)
    except ValueError:
        body = answer.body.decode("utf-8", "replace")
    response = {"status_code": answer.status, "request_id": answer.request_id, "body": body}
    return _line({"custom_id": item.custom_id, "response": response, "error": None})


def failed(bad: Bad) -> str:
    error = {"code": "invalid_line", "message": f"line {bad.line}: {bad.reason}", "line": bad.line}
    return _line({"custom_id": bad.custom_id, "response": None, "error": error})


def _line(found: dict[str, Any]) -> str:
    return json.dumps({"id": f"batch_req_{secrets.token_hex(12)}", **found}, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class Done:
    """What an output holds already: the requests by their ``custom_id``, and other lines of the input by number."""

    names: frozenset[str] = frozenset()
    numbers: frozenset[int] = frozenset()

    def has(self, one: Item | Bad) -> bool:
        if one.custom_id is None or (isinstance(one, Bad) and one.line in self.numbers):
            return isinstance(one, Bad) and one.line in self.numbers
        return one.custom_id in self.names


def resume(path: Path) -> Done:
    """What is done, of an earlier run into this file. A last line that was cut in the middle is taken away, and done again.

    Raises UsageError for a file of something else.
    """
    if not path.exists():
        return Done()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror}); name the file that answers go to") from error
    whole = data[: data.rfind(b"\n") + 1]
    names, numbers = set(), set()
    for number, line in enumerate(whole.splitlines(), 1):
        match _parsed(line):
            case {"custom_id": str(name), "response": _}:
                names.add(name)
            case {"custom_id": None, "error": {"line": int(place)}}:
                numbers.add(place)
            case _:
                raise UsageError(f"{path} has no answer of a batch in line {number}; name another file for the answers")
    if len(whole) < len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return Done(frozenset(names), frozenset(numbers))


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
