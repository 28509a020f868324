"""HTTP requests of inferlets: who may be asked, what is sent, what may come back, and everything that can go wrong on the way."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pie_edge.errors import HttpDenied, HttpError, UsageError
from pie_edge.host.http import Allowed, HttpClient, Request, Response, _target, parse_host
from pie_edge.host.limits import Limits
from tests.host.serving import Asked, Tool, answer, echo, serving

CERTIFICATE = Path(__file__).parents[1] / "data" / "localhost.pem"


def fetch(
    answering: Callable[[Asked], bytes | None],
    path: str = "",
    *,
    method: str = "GET",
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes = b"",
    timeout: float | None = None,
    redirects: int = 5,
    **limits: Any,
) -> tuple[Response, Tool]:
    """One request to a server that answers so."""

    async def inside() -> tuple[Response, Tool]:
        async with serving(answering) as tool:
            request = Request(method, tool.url + path, headers, body, timeout, redirects)
            chosen = Limits(**{"http": (tool.host,), "http_time": 5.0, **limits})
            return await HttpClient().fetch(request, chosen, "program"), tool

    return asyncio.run(inside())


# Who may be asked.

ALLOWED = [
    ("example.org", "http://example.org/", True),
    ("example.org", "https://example.org/", True),
    ("example.org", "https://EXAMPLE.org:443/x", True),
    ("Example.Org", "https://example.org/", True),
    ("example.org", "http://example.org:8080/", False),
    ("example.org", "http://www.example.org/", False),
    ("example.org", "http://example.org.evil.net/", False),
    ("example.org", "http://127.0.0.1/", False),
    ("example.org:8080", "http://example.org:8080/", True),
    ("example.org:8080", "http://example.org/", False),
    ("[::1]:8080", "http://[::1]:8080/", True),
    ("*", "http://anything.net:123/", True),
    ("*:443", "https://anything.net/", True),
    ("*:443", "http://anything.net/", False),
]


@pytest.mark.parametrize(("entry", "url", "expected"), ALLOWED)
def test_only_allowed_hosts_may_be_asked(entry: str, url: str, expected: bool) -> None:
    assert (_target(url, "program") in Allowed([entry])) is expected


def test_a_host_that_is_not_allowed_is_never_asked() -> None:
    async def inside() -> None:
        async with serving() as tool:
            request = Request("GET", tool.url, (), b"", None, 5)
            with pytest.raises(
                HttpDenied, match=rf"program may not ask 127.0.0.1:{tool.port}; allowed are example.org"
            ):
                await HttpClient().fetch(request, Limits(http=("example.org",)), "program")
            with pytest.raises(
                HttpDenied,
                match=f"allowed are none. Whoever starts it can allow more: --allow-http 127.0.0.1:{tool.port}",
            ):
                await HttpClient().fetch(request, Limits(), "program")
            assert tool.asked == []

    asyncio.run(inside())


@pytest.mark.parametrize(
    "entry", ["", "http://example.org", "example.org/x", "user@example.org", "a:b", "*.org", "example.org:70000"]
)
def test_an_entry_of_the_list_is_a_host(entry: str) -> None:
    with pytest.raises(UsageError, match="is no host to allow HTTP to; write HOST or HOST:PORT"):
        parse_host(entry)


# What is sent.


def test_a_request_has_what_the_program_gave_and_nothing_of_the_machine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    response, tool = fetch(
        echo, "echo?q=a%20b", method="POST", headers=(("X-Own", "yes"), ("User-Agent", "mine")), body=b"\x00data"
    )
    [asked] = tool.asked
    assert (response.answer.status, response.answer.body, response.url) == (200, b"a b", f"{tool.url}echo?q=a%20b")
    assert (asked.method, asked.path, asked.body) == ("POST", "/echo?q=a%20b", b"\x00data")
    assert asked.headers == {
        "host": tool.host,
        "x-own": "yes",
        "user-agent": "mine",
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-length": "5",
        "connection": "close",
    }


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("a b/ä?q=ö ü&x=1#part", "/a%20b/%C3%A4?q=%C3%B6%20%C3%BC&x=1"),
        ("?q=1", "/?q=1"),
        ("a%2Fb", "/a%2Fb"),
        ("a/../b", "/a/../b"),
        ('"<>`{|}', "/%22%3C%3E%60%7B%7C%7D"),
    ],
)
def test_what_has_no_place_in_a_request_line_is_escaped(path: str, sent: str) -> None:
    _, tool = fetch(lambda asked: answer(), path)
    assert tool.asked[0].path == sent


REFUSED = [
    ({"url": "ftp://example.org/"}, "asks for 'ftp://example.org/'; give http"),
    ({"url": "file:///etc/passwd"}, "asks for 'file"),
    ({"url": "http://user:secret@example.org/"}, "without a user or password"),
    ({"url": "http://"}, "asks for 'http://'"),
    ({"url": "example.org"}, "asks for 'example.org'"),
    ({"url": "http://example.org:99999/"}, "asks for"),
    ({"url": "http://example.org/\r\nX: y"}, "asks for"),
    ({"url": "http://exa\x00mple.org/"}, "asks for"),
    ({"url": "http://example.org/" + "x" * 9000}, "asks for"),
    ({"method": "CONNECT"}, "asks with the method 'CONNECT'; it must be GET"),
    ({"method": "get"}, "asks with the method 'get'"),
    ({"headers": (("Host", "other"),)}, "sets the header 'Host'"),
    ({"headers": (("Content-Length", "3"),)}, "sets the header 'Content-Length'"),
    ({"headers": (("Transfer-Encoding", "chunked"),)}, "sets the header 'Transfer-Encoding'"),
    ({"headers": (("Proxy-Authorization", "x"),)}, "sets the header 'Proxy-Authorization'"),
    ({"headers": (("X Y", "1"),)}, "sets the header 'X Y'"),
    ({"headers": (("", "1"),)}, "sets the header ''"),
    ({"headers": (("X", "1\r\nY: 2"),)}, "use printable ASCII"),
    ({"headers": (("X", "ä"),)}, "use printable ASCII"),
    ({"headers": (("X", "y" * 40_000),)}, "headers of more than 32,768 bytes"),
    ({"body": b"x" * 101}, "a body of 101 bytes; the most is 100"),
    ({"redirects": 21}, "would follow 21 redirects; the most is 20"),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_a_request_that_cannot_be_made_is_refused_before_anybody_is_asked(changes: dict[str, Any], said: str) -> None:
    given = {"method": "GET", "url": "http://example.org/", "headers": (), "body": b"", "timeout": None, "redirects": 5}
    with pytest.raises(UsageError, match=f"program .*{said}"):
        asyncio.run(HttpClient().fetch(Request(**(given | changes)), Limits(http=("*",), http_body=100), "program"))


# What may come back.

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNDERSTOOD = {
    "a length": (answer("hello", X="1"), b"hello"),
    "chunks": (
        CHUNKED + b"5\r\nhello\r\n1;x=y\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
        b"hello 0123456789",
    ),
    "until the connection ends": (b"HTTP/1.1 200 OK\r\n\r\nhello", b"hello"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello", b"hello"),
    "an interim answer before it": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + answer("hello"), b"hello"),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", b"x"),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "an empty body": (answer(b""), b""),
    "all bytes": (answer(bytes(range(256))), bytes(range(256))),
    "more than it says": (answer("hello") + b"more", b"hello"),
}


@pytest.mark.parametrize("case", UNDERSTOOD)
def test_answers_are_understood(case: str) -> None:
    sent, body = UNDERSTOOD[case]
    response, _ = fetch(lambda asked: sent)
    assert response.answer.body == body


def test_an_answer_to_head_has_a_length_and_no_body() -> None:
    response, _ = fetch(lambda asked: b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", method="HEAD")
    assert response.answer.body == b""
    assert response.answer.header("content-length") == "1000"


def test_headers_come_in_lower_case_in_their_order() -> None:
    response, _ = fetch(lambda asked: b"HTTP/1.1 404 Not Found\r\nB: 1\r\nSet-Cookie: a\r\nset-cookie:  b \r\n\r\n")
    assert response.answer.headers == (("b", "1"), ("set-cookie", "a"), ("set-cookie", "b"))
    assert response.answer.status == 404


WRONG = {
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", "begins with 'SSH-2.0-OpenSSH', which is no HTTP"),
    "a status that is no number": (b"HTTP/1.1 abc OK\r\n\r\n", "which is no HTTP"),
    "nothing": (b"", "ended in the middle of the answer"),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-", "ended in the middle of the answer"),
    "a header without a colon": (b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "the header 'nonsense'"),
    "a folded header": (b"HTTP/1.1 200 OK\r\nA: 1\r\n more\r\n\r\n", "the header ' more'"),
    "less than it says": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "ended in the middle"),
    "a length that is no number": (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "its length is '-1'"),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "two lengths: 1, 2"),
    "a chunk without a length": (CHUNKED + b"\r\n", "which is no length"),
    "a chunk of a signed length": (CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n", "which is no length"),
    "a chunk longer than it says": (CHUNKED + b"2\r\nhello\r\n0\r\n\r\n", "longer than it says"),
    "an end in a chunk": (CHUNKED + b"9\r\nhello", "ended in the middle"),
    "another coding": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "'gzip', which isn't understood"),
    "a head without an end": (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000, "longer than 65,536 bytes"),
    "interim answers for ever": (b"HTTP/1.1 102 Processing\r\n\r\n" * 100, "10 interim answers"),
    "a length above the limit": (answer(b"x" * 101), "more than 100 bytes"),
    "chunks above the limit": (CHUNKED + b"40\r\n" + b"x" * 64 + b"\r\n40\r\n" + b"x" * 64, "more than 100 bytes"),
    "a chunk of a huge length": (CHUNKED + b"ffffffffffffffff\r\n", "more than 100 bytes"),
    "a body above the limit without a length": (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101, "more than 100 bytes"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_answer_or_too_long_is_an_error(case: str) -> None:
    sent, said = WRONG[case]
    with pytest.raises(HttpError, match=f"program: http://127.0.0.1.*{said}"):
        fetch(lambda asked: sent, http_body=100)


@pytest.mark.parametrize(("timeout", "limit"), [(0.05, 5.0), (None, 0.05), (9.0, 0.05)])
def test_a_request_has_its_time_and_no_more_than_the_limit(timeout: float | None, limit: float) -> None:
    with pytest.raises(HttpError, match=r"gave no whole answer within 0.05 s"):
        fetch(echo, "slow", timeout=timeout, http_time=limit)


def test_nobody_there_is_an_error() -> None:
    async def inside() -> None:
        async with serving() as tool:
            url = tool.url
        with pytest.raises(HttpError, match=f"program: {url} can't be reached: "):
            await HttpClient().fetch(Request("GET", url, (), b"", None, 5), Limits(http=("*",)), "program")
        request = Request("GET", "http://no-such-host.invalid/", (), b"", None, 5)
        with pytest.raises(HttpError, match=r"http://no-such-host.invalid/ can't be reached: "):
            await HttpClient().fetch(request, Limits(http=("*",), http_time=5.0), "program")

    asyncio.run(inside())


# Redirects.


def sending(where: Callable[[Asked], str], status: str = "302 Found") -> Callable[[Asked], bytes]:
    """Sends everything but ``/end`` elsewhere."""
    return lambda asked: answer("end") if asked.path == "/end" else answer("", status, Location=where(asked))


@pytest.mark.parametrize(
    ("status", "method", "onward"),
    [
        ("301 Moved", "POST", "GET"),
        ("302 Found", "POST", "GET"),
        ("303 See Other", "PUT", "GET"),
        ("303 See Other", "HEAD", "HEAD"),
        ("307 Temporary", "POST", "POST"),
        ("308 Permanent", "PUT", "PUT"),
        ("301 Moved", "GET", "GET"),
    ],
)
def test_a_redirect_is_followed_as_its_status_says(status: str, method: str, onward: str) -> None:
    body = b"" if method in ("GET", "HEAD") else b"data"
    headers = (("Content-Type", "text/plain"), ("Authorization", "secret"))
    response, tool = fetch(sending(lambda asked: "end", status), "start", method=method, headers=headers, body=body)
    assert response.url == tool.url + "end"
    last = tool.asked[-1]
    kept = onward == method
    assert (last.method, last.body) == (onward, body if kept else b"")
    assert ("content-type" in last.headers) is kept
    assert last.headers["authorization"] == "secret", "it stays at its origin"


def test_a_redirect_to_a_host_that_is_not_allowed_is_refused() -> None:
    with pytest.raises(HttpDenied, match=r"may not ask 169.254.169.254:80"):
        fetch(sending(lambda asked: "http://169.254.169.254/latest"))


def test_a_redirect_to_something_else_than_http_is_refused() -> None:
    with pytest.raises(UsageError, match="asks for 'file:///etc/passwd'"):
        fetch(sending(lambda asked: "file:///etc/passwd"))


def test_credentials_do_not_follow_a_redirect_to_another_origin() -> None:
    async def inside() -> None:
        async with serving() as other, serving(sending(lambda asked: other.url + "echo?q=x")) as tool:
            headers = (("Authorization", "secret"), ("Cookie", "secret"), ("X-Own", "1"))
            request = Request("GET", tool.url, headers, b"", None, 5)
            await HttpClient().fetch(request, Limits(http=(tool.host, other.host)), "program")
            assert tool.asked[0].headers["authorization"] == "secret"
            assert not {"authorization", "cookie"} & other.asked[0].headers.keys()
            assert other.asked[0].headers["x-own"] == "1"

    asyncio.run(inside())


def test_only_so_many_redirects_are_followed() -> None:
    around = sending(lambda asked: f"/{int(asked.path[1:] or 0) + 1}")
    with pytest.raises(HttpError, match="is redirect number 4; the most is 3"):
        fetch(around, redirects=3)
    response, tool = fetch(around, redirects=0)
    assert (response.answer.status, len(tool.asked)) == (302, 1)


# TLS.


def test_a_certificate_is_checked() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATE)

    async def inside() -> None:
        async with serving(tls=server) as tool:
            request = Request("GET", tool.url + "echo?q=x", (), b"", None, 5)
            limits = Limits(http=(tool.host,))
            trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
            assert (await HttpClient(trusting).fetch(request, limits, "program")).answer.body == b"x"
            with pytest.raises(HttpError, match="can't be reached: .*certificate"):
                await HttpClient().fetch(request, limits, "program")

    asyncio.run(inside())
