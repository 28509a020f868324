"""HTTP requests of inferlets: only to hosts that were allowed, without anything of the machine's own (no cookies, no proxies, no
credentials), and within limits."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from pie_edge import __version__
from pie_edge.errors import HttpDenied, HttpError, UsageError
from pie_edge.host.http_wire import Answer, Headers, exchange
from pie_edge.host.limits import Limits

_PORTS = {"http": 80, "https": 443}
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_REDIRECTS = 20
_LONGEST_URL = 8192
_LONGEST_HEADERS = 32 * 1024
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = {
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
"""Headers that say how a message travels: those are set here."""
_CREDENTIALS = {"authorization", "cookie"}
"""What is meant for one origin doesn't follow a redirect to another."""
_DEFAULTS = {"user-agent": f"pie-edge/{__version__}", "accept": "*/*", "accept-encoding": "identity"}


@dataclass(frozen=True, slots=True)
class Request:
    """``timeout`` is seconds."""

    method: str
    url: str
    headers: Headers
    body: bytes
    timeout: float | None
    redirects: int


@dataclass(frozen=True, slots=True)
class Response:
    """``url`` is where it came from in the end."""

    url: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class _Target:
    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


class Allowed:
    """Who may be asked: ``HOST`` stands for its usual ports, ``HOST:PORT`` for that one, ``*`` for everybody."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = [parse_host(entry) for entry in entries]

    def __contains__(self, target: _Target) -> bool:
        for host, port in self._entries:
            if host == "*" and port in (None, target.port):
                return True
            if host == target.host and target.port == (port or _PORTS[target.scheme]):
                return True
        return False

    def __str__(self) -> str:
        return ", ".join(host if port is None else f"{host}:{port}" for host, port in self._entries) or "none"


def parse_host(entry: str) -> tuple[str, int | None]:
    """``HOST`` or ``HOST:PORT`` of an allow-list. Raises UsageError."""
    try:
        parts = urlsplit(f"//{entry}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.path or parts.query or parts.fragment or "@" in entry or ("*" in host and host != "*"):
        raise UsageError(
            f"{entry!r} is no host to allow HTTP to; write HOST or HOST:PORT, such as example.org or localhost:8080, or * for any"
        )
    return host, port


class HttpClient:
    """Of one host of inferlets. ``tls`` says whom to trust; by default the certificates of the system."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def fetch(self, request: Request, limits: Limits, who: str) -> Response:
        """Raises HttpDenied, HttpError or UsageError."""
        _check(request, limits, who)
        seconds = limits.http_time if request.timeout is None else min(request.timeout, limits.http_time)
        url = request.url
        try:
            async with asyncio.timeout(seconds):
                for _ in range(request.redirects + 1):
                    response = await self._exchange(request, url, limits, who)
                    onward = _redirect(response)
                    if onward is None or request.redirects == 0:
                        return response
                    request, url = _redirected(request, url, onward, response.answer.status, who), onward
        except TimeoutError:
            raise HttpError(f"{who}: {url} gave no whole answer within {seconds:g} s") from None
        raise HttpError(f"{who}: {url} is redirect number {request.redirects + 1}; the most is {request.redirects}")

    async def _exchange(self, request: Request, url: str, limits: Limits, who: str) -> Response:
        target = _target(url, who)
        if target not in (allowed := Allowed(limits.http)):
            raise HttpDenied(
                f"{who} may not ask {target.host}:{target.port}; allowed are {allowed}. "
                f"Whoever starts it can allow more: --allow-http {target.authority}"
            )
        tls = await self._trust() if target.scheme == "https" else None
        try:
            answer = await exchange(
                target.host,
                target.port,
                tls,
                _written(request, target),
                has_body=request.method != "HEAD",
                most=limits.http_body,
            )
        except HttpError as error:
            raise HttpError(f"{who}: {url}: {error}") from None
        except OSError as error:  # SSL's errors and those of name look-ups are among them
            raise HttpError(f"{who}: {url} can't be reached: {error.strerror or error}") from None
        return Response(url, answer)

    async def _trust(self) -> ssl.SSLContext:
        if self._tls is None:
            # Reading the system's certificates takes tens of milliseconds.
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls


def _check(request: Request, limits: Limits, who: str) -> None:
    if request.method not in _METHODS:
        raise UsageError(f"{who} asks with the method {request.method[:40]!r}; it must be {', '.join(_METHODS)}")
    if request.redirects > _MOST_REDIRECTS:
        raise UsageError(f"{who} would follow {request.redirects} redirects; the most is {_MOST_REDIRECTS}")
    if len(request.body) > limits.http_body:
        raise UsageError(f"{who} sends a body of {len(request.body):,} bytes; the most is {limits.http_body:,}")
    for name, value in request.headers:
        if not _TOKEN.fullmatch(name) or name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise UsageError(f"{who} sets the header {name[:80]!r}, which is no name or isn't a program's to set")
        if not value.isprintable() or not value.isascii():
            raise UsageError(f"{who} sets the header {name!r} to {value[:80]!r}; use printable ASCII characters")
    if sum(len(name) + len(value) + 4 for name, value in request.headers) > _LONGEST_HEADERS:
        raise UsageError(f"{who} sets headers of more than {_LONGEST_HEADERS:,} bytes")


def _target(url: str, who: str) -> _Target:
    try:
        parts = urlsplit(url) if len(url) <= _LONGEST_URL and url.isprintable() else SplitResult("", "", "", "", "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in _PORTS or parts.username is not None:
        raise UsageError(
            f"{who} asks for {url[:200]!r}; give http://HOST/… or https://HOST/…, without a user or password"
        )
    try:
        name = host.encode("idna").decode() if not host.isascii() else host
    except UnicodeError:
        raise UsageError(f"{who} asks the host {host[:80]!r}, which is no name") from None
    # What is escaped already stays as it is; everything else that has no place in a request line is escaped.
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~-._?")
    return _Target(parts.scheme, name, port or _PORTS[parts.scheme], path + (f"?{query}" if query else ""))


def _written(request: Request, target: _Target) -> bytes:
    given = {name.lower() for name, _ in request.headers}
    headers = [("host", target.authority), *request.headers]
    headers += [(name, value) for name, value in _DEFAULTS.items() if name not in given]
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        headers.append(("content-length", str(len(request.body))))
    headers.append(("connection", "close"))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"{request.method} {target.path} HTTP/1.1\r\n{lines}\r\n".encode() + request.body


def _redirect(response: Response) -> str | None:
    """Where the answer sends the client."""
    where = response.answer.header("location") if response.answer.status in _REDIRECTS else None
    return None if where is None else urljoin(response.url, where)


def _redirected(request: Request, before: str, after: str, status: int, who: str) -> Request:
    """The request to go on with (RFC 9110, 15.4)."""
    to_get = (status == 303 and request.method != "HEAD") or (status in (301, 302) and request.method == "POST")
    method, body = ("GET", b"") if to_get else (request.method, request.body)
    dropped = {"content-type"} if to_get else set()
    if _target(before, who).origin != _target(after, who).origin:
        dropped |= _CREDENTIALS
    headers = tuple((name, value) for name, value in request.headers if name.lower() not in dropped)
    return replace(request, method=method, body=body, headers=headers)
