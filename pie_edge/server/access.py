"""Who may use the server: keys, and what a browser is kept from doing for a page that isn't ours."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable, Sequence
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers

from pie_edge.errors import Unauthorized, UsageError

_NAME = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{0,5})?")
"""A Host header's name, with a port or without; nothing else is one."""
BEARER = "Authorization: Bearer KEY"
OPEN = frozenset({"/", "/health"})
"""What needs no key: the page has a field for it, and health tells nothing but that."""
PAGE = "/page/"
"""Where the page's own files lie."""


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_reach(host: str, keys: Sequence[str]) -> None:
    """Raises UsageError for a server that anybody on the network could use."""
    if not keys and not is_loopback(host):
        raise UsageError(
            f"--host {host} can be reached from other machines, and there is no API key; give one with --api-key "
            "(or serve.api_keys in the settings), or listen on 127.0.0.1"
        )


class Access:
    """``sent_as`` says how the clients of a path send their key."""

    def __init__(
        self, host: str, keys: Sequence[str], origins: Sequence[str], sent_as: Callable[[str], str] = lambda _: BEARER
    ) -> None:
        self._sent_as = sent_as
        self._digests = [_digest(key) for key in keys]
        self._names = {"localhost", "127.0.0.1", "::1", host.strip("[]")} if is_loopback(host) else None
        self._origins = frozenset(origins)

    def check(self, path: str, query: bytes, headers: Headers, websocket: bool) -> None:
        """Raises Unauthorized for a request without one of the keys, UsageError for one that a browser makes for a page of
        others."""
        self._check_host(headers.get("host", ""))
        self._check_origin(headers)
        if self._digests and (websocket or not (path in OPEN or path.startswith(PAGE))):
            self._check_key(_key(headers, query), path)

    def _check_host(self, host: str) -> None:
        """A page can have its own name lead to 127.0.0.1, and would be of our origin then: its name gives it away."""
        found = _NAME.fullmatch(host)
        name = "" if found is None else (found["v6"] or found["name"]).lower().removesuffix(".")
        if self._names is not None and name not in self._names and not name.endswith(".localhost"):
            raise UsageError(
                f"this server is for {' and '.join(sorted(self._names))}, and was asked for as {host[:80]!r}"
            )

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin in self._origins or "*" in self._origins:
            return
        if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise UsageError(
                f"a page of {origin[:80]!r} may not use this server; allow it with --cors (serve.cors in the settings)"
            )

    def _check_key(self, key: str, path: str) -> None:
        given = _digest(key)
        # All are compared: how long it takes says nothing about them.
        if not sum([hmac.compare_digest(given, known) for known in self._digests]):
            raise Unauthorized(
                "the API key is wrong; give one of those that the server was started with"
                if key
                else f"the API key is missing; send it as `{self._sent_as(path)}`"
            )


def _digest(key: str) -> bytes:
    """Of one length for all keys."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _key(headers: Headers, query: bytes) -> str:
    """As OpenAI's, Anthropic's and Google's clients send it."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return bearer.strip()
    for name in ("x-api-key", "x-goog-api-key"):
        if key := headers.get(name):
            return key
    return parse_qs(query.decode("latin-1")).get("key", [""])[0]
