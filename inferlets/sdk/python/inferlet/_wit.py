"""The host of a component: every call of the seam is one import of the WIT world. Importable only inside of one."""

from __future__ import annotations

from collections.abc import Sequence

from wit_world.imports import chat, events, forward, model, runtime, session, tools

from inferlet._host import Facts, Outcome, Request, Used
from inferlet._requests import Elements
from inferlet._wit_errors import checked
from inferlet._wit_formats import AnswerDecoder, names, opens_reasoning
from inferlet._wit_grammar import Grammars
from inferlet._wit_outside import Outside
from inferlet._wit_pages import Pages
from inferlet._wit_requests import elements, outcome, submission

_LEVELS = {level.name.lower(): level for level in runtime.Level}
_STREAMS = {stream.name.lower(): stream for stream in runtime.Stream}
_ROLES = {role.name.lower(): role for role in chat.Role}
_ELEMENTS = {element.name.lower(): element for element in forward.Element}


class _Decoder:
    def __init__(self, special: bool, continued: bool) -> None:
        self._handle = model.Decoder(special, continued)
        self.push = checked(self._handle.push)
        self.flush = self._handle.flush


class _WorkingSet:
    def __init__(self, handle: forward.WorkingSet) -> None:
        self.handle = handle
        self.id = handle.id()
        self.reserve = checked(handle.reserve)
        self.capacity = checked(handle.capacity)
        self.discard = checked(handle.discard)
        self.hide = checked(handle.hide)
        self.add = checked(handle.add)

    def fork(self, seed: int | None = None) -> _WorkingSet:
        return _WorkingSet(checked(self.handle.fork)(seed))

    def slice(self, first_page: int, count: int, seed: int | None = None) -> _WorkingSet:
        return _WorkingSet(checked(self.handle.slice)(first_page, count, seed))

    def close(self) -> None:
        self.handle.__exit__(None, None, None)


class _Channel:
    def __init__(self, handle: forward.Channel) -> None:
        self.handle = handle
        self.id = handle.id()

    def put(self, value: Elements) -> None:
        checked(self.handle.put)(elements(value))

    def set(self, value: Elements) -> None:
        checked(self.handle.set)(elements(value))

    def close(self) -> None:
        self.handle.__exit__(None, None, None)


class ComponentHost(Pages, Outside, Grammars):
    version = staticmethod(runtime.version)
    instance_id = staticmethod(runtime.instance_id)
    seed = staticmethod(runtime.seed)
    encode = staticmethod(checked(model.encode))
    decode = staticmethod(checked(model.decode))
    decoder = _Decoder
    chat_available = staticmethod(chat.available)
    chat_prefix = staticmethod(chat.prefix)
    chat_preamble = staticmethod(checked(chat.preamble))
    chat_cue = staticmethod(checked(chat.cue))
    chat_conversation = staticmethod(checked(chat.conversation))
    tools_equip = staticmethod(checked(tools.equip))
    tools_answer = staticmethod(checked(tools.answer))
    formats = staticmethod(names)
    opens_reasoning = staticmethod(opens_reasoning)
    answer_decoder = AnswerDecoder
    chat_seal = staticmethod(checked(chat.seal))
    chat_stop_tokens = staticmethod(chat.stop_tokens)
    send = staticmethod(checked(session.send))
    is_full = staticmethod(session.is_full)
    send_file = staticmethod(checked(session.send_file))
    remove_working_set = staticmethod(checked(forward.WorkingSet.remove))

    def print(self, stream: str, text: str) -> None:
        runtime.print(_STREAMS[stream], text)

    def log(self, level: str, message: str) -> None:
        runtime.log(_LEVELS[level], message)

    def find_module(self, name: str) -> tuple[str, str] | None:
        file = runtime.find_module(name)
        return (file.path, file.text) if file is not None else None

    def usage(self) -> Used:
        used = runtime.get_usage()
        return Used(used.forwarded, used.cached, used.recomputed)

    def facts(self) -> Facts:
        facts = model.get_facts()
        return Facts(*(getattr(facts, name) for name in Facts.__slots__))

    def adapters(self) -> list[str]:
        return list(model.adapters())

    def chat_turn(self, role: str, text: str, thinking: bool | None) -> list[int]:
        tokens: list[int] = checked(chat.turn)(_ROLES[role], text, thinking)
        return tokens

    def create_working_set(self, tokens: int, seed: int | None = None) -> _WorkingSet:
        return _WorkingSet(checked(forward.WorkingSet.create)(tokens, seed))

    def find_working_set(self, key: str) -> _WorkingSet | None:
        found = checked(forward.WorkingSet.find)(key)
        return None if found is None else _WorkingSet(found)

    def create_channel(self, element: str, shape: Sequence[int], capacity: int) -> _Channel:
        return _Channel(checked(forward.Channel.create)(_ELEMENTS[element], list(shape), capacity))

    def wait(self, submissions: Sequence[tuple[int, Request]], timeout: int | None) -> list[tuple[int, Outcome]]:
        completions = events.wait([submission(ticket, request) for ticket, request in submissions], timeout)
        return [(completion.ticket, outcome(completion.outcome)) for completion in completions]

    def give_up(self, ticket: int) -> None:
        events.give_up(ticket)
