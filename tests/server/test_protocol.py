"""Messages to bytes and back, and what is refused."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pie_edge.errors import ProtocolError, UsageError
from pie_edge.protocol.codec import encode, from_server, to_server
from pie_edge.protocol.framing import Splitter, framed
from pie_edge.protocol.messages import FromServer, Launch, Message, Send, ToServer

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
WHOLE = st.integers(0, 2**64 - 1)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)


def values(hint: Any) -> st.SearchStrategy[Any]:
    origin, of = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(of)
    if origin is types.UnionType:
        return st.none() | values(of[0])
    if origin is tuple:
        return st.lists(values(of[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(TEXT, values(of[1]), max_size=3)
    if dataclasses.is_dataclass(hint):
        return messages(hint)
    return {int: WHOLE, float: NUMBER, str: TEXT, bytes: st.binary(), bool: st.booleans()}[hint]


def messages(kind: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{name: values(hint) for name, hint in get_type_hints(kind).items()})


def any_of(kinds: Any) -> st.SearchStrategy[Any]:
    return st.one_of(*map(messages, get_args(kinds)))


@given(any_of(ToServer))
def test_what_goes_to_a_server_comes_back_the_same(message: Any) -> None:
    assert to_server(encode(message)) == message


@given(any_of(FromServer))
def test_what_comes_from_a_server_comes_back_the_same(message: Any) -> None:
    assert from_server(encode(message)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        message = to_server(data)
    except ProtocolError:
        return
    assert to_server(encode(message)) == message


JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | NUMBER | TEXT | st.binary(),
    lambda one: st.lists(one) | st.dictionaries(TEXT, one),
)


@given(any_of(ToServer), st.data())
def test_a_message_with_a_changed_field_is_a_message_or_refused(message: Any, data: st.DataObject) -> None:
    fields = msgpack.unpackb(encode(message))
    name = data.draw(st.sampled_from(sorted(fields)) | TEXT)
    fields[name] = data.draw(JSON)
    try:
        got = to_server(msgpack.packb(fields))
    except ProtocolError:
        return
    assert to_server(encode(got)) == got


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"op": "shutdown"}, "none of hello, status"),
        ({"op": 3}, "none of hello"),
        ({"text": b"x"}, "text: b'x' is not of type str"),
        ({"id": -1}, "id: -1 is no whole number"),
        ({"id": True}, "id: True is no whole number"),
        ({"id": 1.0}, "id: 1.0 is no whole number"),
        ({"more": 1}, "there is no field 'more'"),
    ],
)
def test_what_isnt_exactly_a_message_is_refused_by_what_is_wrong(change: dict[str, Any], said: str) -> None:
    fields = {"op": "send", "id": 1, "instance": "a-1", "text": "x"}
    assert to_server(msgpack.packb(fields)) == Send(1, "a-1", "x")
    with pytest.raises(ProtocolError, match=said):
        to_server(msgpack.packb(fields | change))
    with pytest.raises(ProtocolError, match="send: instance, text is missing"):
        to_server(msgpack.packb({"op": "send", "id": 1}))


@pytest.mark.parametrize(
    ("change", "request_id"),
    [
        ({"text": 1}, 7),
        ({"more": 1}, 7),
        ({"op": "shutdown"}, 7),
        ({"id": 0, "text": 1}, 0),
        ({"id": "7"}, 0),
        ({}, None),
    ],
)
def test_what_is_wrong_in_a_request_names_the_request(change: dict[str, Any], request_id: int | None) -> None:
    fields = {"op": "send", "id": 7, "instance": "a-1", "text": "x"} | change
    found = None
    try:
        to_server(msgpack.packb(fields))
    except ProtocolError as error:
        found = error.request
    assert found == request_id


def test_a_field_that_comes_twice_is_refused() -> None:
    once = msgpack.packb({"op": "status", "id": 1})
    twice = b"\x83" + once[1:] + msgpack.packb("id") + msgpack.packb(2)
    with pytest.raises(ProtocolError, match="a message with the field 'id' twice"):
        to_server(twice)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91" * 5000, b"\x81\x01\x02", b"\xd9\xff"])
def test_what_is_no_message_pack_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"a message that is no MessagePack: .+"):
        to_server(data)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Launch(1, "{}", 1, seed=-1), "launch: seed: -1 is no whole number from 0"),
        (Launch(1, "{}", 1, seed="x"), "launch: seed: 'x' is no whole number"),  # type: ignore[arg-type]
        (Launch(1, "{}", 1, seed=2**64), "launch: seed: 18446744073709551616 is no whole number"),
        (Launch(1, "{}", 1, time=float("nan")), "launch: time: nan is no number"),
        (Launch(1, "{}", 1, detached=1), "launch: detached: 1 is not of type bool"),  # type: ignore[arg-type]
        (Send(1, "a", 5), "send: text: 5 is not of type str"),  # type: ignore[arg-type]
    ],
)
def test_what_a_server_would_refuse_is_found_before_it_is_sent(message: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        to_server.check(message)
    to_server.check(Launch(1, "{}", 1, seed=2**64 - 1, time=3))


@pytest.mark.parametrize("value", [[], "x", None, 7])
def test_a_message_is_a_map(value: Any) -> None:
    with pytest.raises(ProtocolError, match="a message is a map"):
        to_server(msgpack.packb(value))


def test_a_message_longer_than_the_most_is_neither_sent_nor_read() -> None:
    with pytest.raises(UsageError, match="send has 22,"):
        encode(Send(1, "a", "x" * 22_000_000))
    with pytest.raises(ProtocolError, match="the most is"):
        to_server(b"\x00" * 22_000_000)


def test_text_without_a_utf_8_form_is_refused_where_it_is_sent() -> None:
    with pytest.raises(UsageError, match="launch can't be sent"):
        encode(Launch(1, '"\ud800"', 1))


def test_the_fields_that_may_be_left_out_are_those_with_a_default() -> None:
    small = msgpack.packb({"op": "launch", "id": 1, "input": "{}", "credit": 5})
    assert to_server(small) == Launch(1, "{}", 5)


@given(st.lists(st.binary(max_size=50)), st.lists(st.integers(1, 40)))
def test_a_stream_cut_anywhere_gives_the_same_messages(whole: list[bytes], cuts: list[int]) -> None:
    stream, splitter, got = b"".join(map(framed, whole)), Splitter(), []
    for cut in cuts:
        got += splitter.feed(stream[:cut])
        stream = stream[cut:]
    got += splitter.feed(stream)
    assert got == whole


@given(st.binary(max_size=300))
def test_any_stream_is_messages_or_refused_and_keeps_no_more_than_the_longest(stream: bytes) -> None:
    splitter = Splitter(longest=64)
    try:
        for at in range(0, len(stream), 7):
            for message in splitter.feed(stream[at : at + 7]):
                assert len(message) <= 64
            assert len(splitter._data) <= 64 + 4 + 7
    except ProtocolError:
        return


def test_a_length_beyond_the_most_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(ProtocolError, match="4,294,967,295 bytes"):
        list(Splitter().feed(b"\xff\xff\xff\xff"))
    assert from_server(encode(Message("a", ""))) == Message("a", "")
