"""HTTP requests, to the hosts that whoever started this program allows (``pie-edge run --allow-http HOST``).

Nothing of the machine's own goes with them: no cookies, no proxies, no credentials but those that the program gives.
"""

from __future__ import annotations

import json as _json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inferlet import _check, _guard, _loop
from inferlet._host import Fetch
from inferlet._host import Response as _Answer
from inferlet.errors import HttpError, UsageError

_MOST_SECONDS = 2**33


@dataclass(frozen=True, slots=True)
class Response:
    """``url`` is where it came from in the end. ``headers`` have names in lower case; one may come more than once."""

    status: int
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The values of a header, joined by commas as HTTP has it."""
        values = [value for known, value in self.headers if known == name.lower()]
        return ", ".join(values) if values else None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body, in the charset that its header names, else as UTF-8."""
        _, _, charset = (self.header("content-type") or "").partition("charset=")
        try:
            return self.body.decode(charset.split(";")[0].strip(" \"'") or "utf-8", "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        return _json.loads(self.body)

    def raise_for_status(self) -> None:
        """Raises HttpError unless the status is one of success."""
        if not self.ok:
            raise HttpError(f"{self.url} answered with status {self.status}: {self.text[:200]}")


async def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | str = b"",
    json: Any = None,
    timeout: float | None = None,
    redirects: int = 5,
) -> Response:
    """Any status is an answer. ``json`` is a body, too; ``timeout`` is seconds for the whole of it; of more than ``redirects``
    redirects the last is an error, with 0 the first is the answer.

    Raises HttpDenied for a host that isn't allowed, HttpError if no answer comes, UsageError for what can't be asked.
    """
    given = [
        (_check.text(str(name), "http"), _check.text(str(value), "http")) for name, value in (headers or {}).items()
    ]
    method, url = _check.text(method, "http: method"), _check.text(url, "http: url")
    if type(redirects) is not int or not 0 <= redirects < 2**32:
        raise UsageError(f"{redirects!r} redirects were given; it must be 0 or more")
    if json is not None:
        if body:
            raise UsageError("a request has one body; give json or body")
        body = _json.dumps(json)
        if not any(name.lower() == "content-type" for name, _ in given):
            given.append(("Content-Type", "application/json"))
    if timeout is not None and not 0 < timeout < _MOST_SECONDS:
        raise UsageError(f"a timeout of {timeout} seconds was given; it must be above 0")
    data = _check.text(body, "http: body").encode() if isinstance(body, str) else _guard.data(body, "http: body")
    nanoseconds = None if timeout is None else int(timeout * 1e9)
    answer: _Answer = await _loop.current().submit_alone(
        Fetch(method.upper(), url, given, data, nanoseconds, redirects)
    )
    return Response(answer.status, answer.url, tuple(answer.headers), answer.body)


async def get(url: str, **options: Any) -> Response:
    """``request("GET", url, …)``"""
    return await request("GET", url, **options)


async def post(url: str, **options: Any) -> Response:
    """``request("POST", url, …)``"""
    return await request("POST", url, **options)
