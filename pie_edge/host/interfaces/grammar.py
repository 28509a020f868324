"""Grammars and their matchers."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from pie_edge.host.constraints import State, advanced
from pie_edge.host.guest import Guest
from pie_edge.host.interfaces import GRAMMAR, MATCHER, Interface
from pie_edge.host.interfaces.chat import formats, tools_of
from pie_edge.host.tool_grammars import Wanted

if TYPE_CHECKING:
    from pie_edge.grammar import Grammar


def _compile(guest: Guest, source: tuple[str, Any]) -> asyncio.Future[int]:
    from pie_edge.grammar import Source

    kind, text = source
    asked: Any = kind
    return _added(guest, guest.model.constraints.compile(Source(asked, text or "")))


def _of_tools(
    guest: Guest, tools: str, choice: tuple[str, Any], parallel: bool, thinking: bool | None
) -> asyncio.Future[int]:
    known, how = tools_of(guest, tools), formats(guest)
    inside = how.has_tags and guest.model.turns is not None and guest.model.turns.opens_reasoning(thinking)
    kind, name = choice
    wanted = Wanted(name if kind == "named" else None, text=kind == "auto", several=parallel, inside=inside)
    return _added(guest, guest.model.constraints.of_tools(how, known, wanted))


def _added(guest: Guest, compiling: Coroutine[Any, Any, Grammar]) -> asyncio.Future[int]:
    """The guest sleeps until it is there."""

    async def added() -> int:
        return guest.grammars.add(await compiling)

    pending = asyncio.ensure_future(added())
    pending.add_done_callback(lambda _: guest.wake())
    return pending


def _matcher(guest: Guest, grammar: int) -> int:
    guest.matchers.check_room()
    return guest.matchers.add(guest.grammars.find(grammar).matcher())


def _accept(guest: Guest, matcher: int, tokens: list[int]) -> State | asyncio.Future[State]:
    found = guest.matchers.find(matcher)
    return advanced(found, lambda: found.accept(tokens), guest.wake)


def _rollback(guest: Guest, matcher: int, count: int) -> State | asyncio.Future[State]:
    found = guest.matchers.find(matcher)
    return advanced(found, lambda: found.rollback(count), guest.wake)


def _state(guest: Guest, matcher: int) -> State | asyncio.Future[State]:
    return advanced(guest.matchers.find(matcher), lambda: None, guest.wake)


def _mask(guest: Guest, matcher: int) -> array[int]:
    return array("I", guest.matchers.find(matcher).mask())


GRAMMARS: dict[str, Interface] = {
    "grammar": (
        {
            "grammar": (GRAMMAR, lambda guest, grammar: guest.grammars.drop(grammar)),
            "matcher": (MATCHER, lambda guest, matcher: guest.matchers.drop(matcher)),
        },
        {
            "[static]grammar.compile": _compile,
            "[static]grammar.of-tools": _of_tools,
            "[method]grammar.matcher": _matcher,
            "[method]matcher.id": lambda guest, matcher: matcher,
            "[method]matcher.accept": _accept,
            "[method]matcher.rollback": _rollback,
            "[method]matcher.fork": lambda guest, matcher: guest.matchers.add(guest.matchers.find(matcher).fork()),
            "[method]matcher.state": _state,
            "[method]matcher.mask": _mask,
        },
    ),
}
