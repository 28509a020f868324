"""The host of a component: every call of the seam is one import of the WIT world. Importable only inside of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from componentize_py_types import Err
from wit_world.imports import chat, events, forward, model, runtime, session, types

from inferlet._host import Elements, Facts, Forward, Outcome, Request, Tensor
from inferlet.errors import PieError, from_code

_LEVELS = {level.name.lower(): level for level in runtime.Level}
_STREAMS = {stream.name.lower(): stream for stream in runtime.Stream}
_ROLES = {role.name.lower(): role for role in chat.Role}
_ELEMENTS = {
    "floats": types.Elements_Floats,
    "signed": types.Elements_Signed,
    "unsigned": types.Elements_Unsigned,
    "bools": types.Elements_Bools,
}
_RECEIVE = events.Request_Receive()


def _error(value: types.Error) -> PieError:
    return from_code(value.code, value.message)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The error of a WIT result as the exception it stands for."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Err as error:
            raise _error(error.value) from None

    return call


class _Decoder:
    def __init__(self, special: bool, continued: bool) -> None:
        self._handle = model.Decoder(special, continued)
        self.push = _checked(self._handle.push)
        self.flush = self._handle.flush


class _WorkingSet:
    def __init__(self, handle: forward.WorkingSet) -> None:
        self.handle = handle
        self.id = handle.id()
        self.reserve = _checked(handle.reserve)
        self.capacity = _checked(handle.capacity)
        self.discard = _checked(handle.discard)

    def fork(self, seed: int | None = None) -> _WorkingSet:
        return _WorkingSet(_checked(self.handle.fork)(seed))

    def close(self) -> None:
        self.handle.__exit__(None, None, None)


def _submission(ticket: int, request: Request) -> events.Submission:
    if not isinstance(request, Forward):
        return events.Submission(ticket, _RECEIVE)
    call = forward.Call(
        request.context.id,
        request.tokens,
        request.start,
        request.end,
        request.rows,
        request.epilogue,
        [_elements(parameter) for parameter in request.parameters],
    )
    return events.Submission(ticket, events.Request_Forward(call))


def _elements(value: Elements) -> Any:
    kind, values = value
    return _ELEMENTS[kind](values)


def _outcome(result: Any) -> Outcome:
    value = result.value
    if type(result) is Err:
        return _error(value)
    if type(value) is events.Value_Text:
        return str(value.value)
    return [Tensor(tensor.shape, tensor.elements.value) for tensor in value.value]


class ComponentHost:
    version = staticmethod(runtime.version)
    instance_id = staticmethod(runtime.instance_id)
    seed = staticmethod(runtime.seed)
    encode = staticmethod(_checked(model.encode))
    decode = staticmethod(_checked(model.decode))
    decoder = _Decoder
    chat_available = staticmethod(chat.available)
    chat_prefix = staticmethod(chat.prefix)
    chat_preamble = staticmethod(_checked(chat.preamble))
    chat_cue = staticmethod(_checked(chat.cue))
    chat_seal = staticmethod(_checked(chat.seal))
    chat_stop_tokens = staticmethod(chat.stop_tokens)
    send = staticmethod(_checked(session.send))

    def print(self, stream: str, text: str) -> None:
        runtime.print(_STREAMS[stream], text)

    def log(self, level: str, message: str) -> None:
        runtime.log(_LEVELS[level], message)

    def find_module(self, name: str) -> tuple[str, str] | None:
        file = runtime.find_module(name)
        return (file.path, file.text) if file is not None else None

    def facts(self) -> Facts:
        facts = model.get_facts()
        return Facts(*(getattr(facts, name) for name in Facts.__slots__))

    def chat_turn(self, role: str, text: str) -> list[int]:
        tokens: list[int] = _checked(chat.turn)(_ROLES[role], text)
        return tokens

    def create_working_set(self, tokens: int, seed: int | None = None) -> _WorkingSet:
        return _WorkingSet(_checked(forward.WorkingSet.create)(tokens, seed))

    def wait(self, submissions: Sequence[tuple[int, Request]], timeout: int | None) -> list[tuple[int, Outcome]]:
        completions = events.wait([_submission(ticket, request) for ticket, request in submissions], timeout)
        return [(completion.ticket, _outcome(completion.outcome)) for completion in completions]
