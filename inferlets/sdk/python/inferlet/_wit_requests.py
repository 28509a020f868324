"""Requests and their outcomes, to and from the records of the WIT world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from componentize_py_types import Err
from wit_world.imports import events, forward, http, types

from inferlet._requests import (
    AttentionMass,
    Candidates,
    ChannelValue,
    ChildMessage,
    ChildResult,
    Drain,
    Elements,
    Fetch,
    File,
    Forward,
    LoadSnapshot,
    Masses,
    Message,
    NextDistribution,
    NextSignal,
    Outcome,
    Receive,
    ReceiveFile,
    Request,
    Response,
    SaveSnapshot,
    Source,
    Synchronize,
    Tensor,
)
from inferlet._wit_errors import error

_ELEMENTS = {
    "floats": types.Elements_Floats,
    "signed": types.Elements_Signed,
    "unsigned": types.Elements_Unsigned,
    "bools": types.Elements_Bools,
}
_SOURCES = {"take": forward.Source_Take, "read": forward.Source_Read, "allowed": forward.Source_Allowed}
_RECEIVE = events.Request_Receive()
_DRAIN = events.Request_Drain()
_PIECE = 256 * 1024  # bytes of a body that one call reads


def submission(ticket: int, request: Request) -> events.Submission:
    return events.Submission(ticket, _CASES[type(request)](request))


def outcome(result: Any) -> Outcome:
    value = result.value
    if type(result) is Err:
        return error(value)
    return _VALUES[type(value)](value)


def _forward(request: Forward) -> Any:
    observed = None if request.observed is None else forward.Observation(*request.observed)
    call = forward.Call(
        request.context.id,
        request.tokens,
        request.start,
        request.end,
        request.rows,
        request.epilogue,
        [elements(parameter) for parameter in request.parameters],
        request.positions,
        request.mask,
        observed,
        [forward.Embedded(after, _source(source)) for after, source in request.embeds],
        [forward.Fetched(parameter, _source(source)) for parameter, source in request.fetches],
        [forward.Placed(output, channel) for output, channel in request.puts],
        request.adapter,
    )
    return events.Request_Forward(call)


def _source(source: Source) -> Any:
    kind, first, second = source
    if kind == "output":
        return forward.Source_Output((first, second))
    return _SOURCES[kind](first)


def elements(value: Elements) -> Any:
    kind, values = value
    return _ELEMENTS[kind](values)


def _fetch(request: Fetch) -> Any:
    return events.Request_Fetch(
        http.Request(request.method, request.url, request.headers, request.body, request.timeout, request.redirects)
    )


def _save(request: SaveSnapshot) -> Any:
    return events.Request_SaveSnapshot(
        events.SnapshotSave(request.context.id, request.name, request.length, request.note)
    )


def _load(request: LoadSnapshot) -> Any:
    return events.Request_LoadSnapshot(events.SnapshotLoad(request.context.id, request.name))


def _response(value: events.Value_Response) -> Response:
    """All of it, and then the host's copy goes."""
    with value.value as response:
        size = response.size()
        body = b"".join(bytes(response.read(offset, _PIECE)) for offset in range(0, size, _PIECE))
        return Response(response.status(), response.url(), list(response.headers()), body)


def _file(value: events.Value_File) -> File:
    """All of it, and then the host's copy goes."""
    with value.value as file:
        return File(file.name(), b"".join(bytes(file.read(at, _PIECE)) for at in range(0, file.size(), _PIECE)))


_CASES: dict[type, Callable[[Any], Any]] = {
    Forward: _forward,
    ChannelValue: lambda request: (events.Request_ReadValue if request.stays else events.Request_TakeValue)(
        request.channel
    ),
    Receive: lambda request: _RECEIVE,
    Drain: lambda request: _DRAIN,
    NextSignal: lambda request: events.Request_Signal(),
    ReceiveFile: lambda request: events.Request_ReceiveFile(),
    Synchronize: lambda request: events.Request_Synchronize(request.queue),
    NextDistribution: lambda request: events.Request_NextDistribution(request.embed),
    AttentionMass: lambda request: events.Request_AttentionMass(request.embed),
    Message: lambda request: events.Request_Message(request.subscription),
    Fetch: _fetch,
    ChildResult: lambda request: events.Request_ChildResult(request.child),
    ChildMessage: lambda request: events.Request_ChildMessage(request.child),
    SaveSnapshot: _save,
    LoadSnapshot: _load,
}
_VALUES: dict[type, Callable[[Any], Outcome]] = {
    events.Value_Nothing: lambda value: None,
    events.Value_Tensors: lambda value: [Tensor(one.shape, one.elements.value) for one in value.value],
    events.Value_Text: lambda value: str(value.value),
    events.Value_Distribution: lambda value: Candidates(value.value.tokens, value.value.probabilities),
    events.Value_Masses: lambda value: Masses(value.value),
    events.Value_Response: _response,
    events.Value_File: _file,
}
