"""Keys, and pages of others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from pie_edge.errors import Unauthorized, UsageError
from pie_edge.server.access import Access, check_reach

KEYS = ("first-key", "second-key")


def asked(
    access: Access, path: str = "/v1/models", query: bytes = b"", websocket: bool = False, **headers: str
) -> None:
    named = {name.replace("_", "-"): value for name, value in {"host": "127.0.0.1:8642", **headers}.items()}
    access.check(path, query, Headers(named), websocket)


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        (b"", {"authorization": "Bearer second-key"}),
        (b"", {"authorization": "bearer  first-key"}),
        (b"", {"x_api_key": "first-key"}),
        (b"", {"x_goog_api_key": "second-key"}),
        (b"alt=sse&key=first-key", {}),
    ],
)
def test_a_key_is_taken_however_the_providers_clients_send_it(query: bytes, headers: dict[str, str]) -> None:
    asked(Access("0.0.0.0", KEYS, ()), query=query, **headers)


@pytest.mark.parametrize(
    ("query", "headers", "said"),
    [
        (b"", {}, "missing"),
        (b"", {"authorization": "Bearer other"}, "wrong"),
        (b"", {"authorization": "Bearer first-ke"}, "wrong"),
        (b"", {"authorization": "Basic Zmlyc3Qta2V5"}, "missing"),
        (b"", {"x_api_key": "first-key "}, "wrong"),
        (b"key=", {}, "missing"),
        (b"", {"x_api_key": "schlüssel"}, "wrong"),
    ],
)
def test_without_one_of_the_keys_it_is_refused(query: bytes, headers: dict[str, str], said: str) -> None:
    with pytest.raises(Unauthorized, match=said):
        asked(Access("127.0.0.1", KEYS, ()), query=query, **headers)


@given(st.text(st.characters(codec="latin-1")), st.binary())
def test_no_other_key_is_taken(key: str, query: bytes) -> None:
    if key not in KEYS:
        with pytest.raises(Unauthorized):
            asked(Access("127.0.0.1", KEYS, ()), query=b"x=" + query.replace(b"key", b""), x_api_key=key or "none")


def test_health_and_the_page_need_no_key_but_a_web_socket_does() -> None:
    access = Access("127.0.0.1", KEYS, ())
    asked(access, "/health")
    asked(access, "/")
    with pytest.raises(Unauthorized):
        asked(access, "/ws", websocket=True)
    with pytest.raises(Unauthorized):
        asked(access, "/metrics")


@pytest.mark.parametrize(
    "host", ["localhost:1", "127.0.0.1", "[::1]:8642", "LOCALHOST", "pie.localhost:80", "localhost.", "localhost.:8642"]
)
def test_this_machine_s_own_names_are_answered(host: str) -> None:
    asked(Access("127.0.0.1", (), ()), host=host)


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "127.0.0.1.evil.example:80",
            "",
            "localhost.evil.example",
            "10.0.0.1",
            "127.0.0.1, evil.example",
        ),
        *(
            "localhost:evil.example",
            "evil.example@localhost",
            "localhost@evil.example",
            "localhost:80:80",
            "localhost/x",
        ),
    ],
)
def test_a_page_whose_name_leads_to_this_machine_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="this server is for"):
        asked(Access("127.0.0.1", (), ()), host=host)
    asked(Access("0.0.0.0", KEYS, ()), host=host, x_api_key=KEYS[0])


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "file://"])
@pytest.mark.parametrize("websocket", [False, True])
def test_a_page_of_others_is_refused_unless_it_is_allowed(origin: str, websocket: bool) -> None:
    with pytest.raises(UsageError, match="may not use this server"):
        asked(Access("127.0.0.1", (), ()), "/ws", websocket=websocket, origin=origin)
    for allowed in (origin, "*"):
        asked(Access("127.0.0.1", (), (allowed,)), "/ws", websocket=websocket, origin=origin)
    asked(Access("127.0.0.1", (), ()), "/ws", websocket=websocket, origin="http://127.0.0.1:8642")


@pytest.mark.parametrize(("host", "keys"), [("127.0.0.1", ()), ("localhost", ()), ("::1", ()), ("0.0.0.0", KEYS)])
def test_without_a_key_only_this_machine_is_served(host: str, keys: Any) -> None:
    check_reach(host, keys)
    for reachable in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(UsageError, match="give one with --api-key"):
            check_reach(reachable, ())
