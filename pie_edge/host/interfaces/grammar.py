"""Grammars and their matchers."""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING, Any

from pie_edge.host.guest import Guest
from pie_edge.host.interfaces import GRAMMAR, MATCHER, Interface

if TYPE_CHECKING:
    from pie_edge.grammar import Source

State = tuple[bool, bool, list[int]]


def _compile(guest: Guest, source: tuple[str, Any]) -> asyncio.Future[int]:
    from pie_edge.grammar import Source

    guest.grammars.check_room()
    kind, text = source
    asked: Any = kind
    pending = asyncio.ensure_future(_added(guest, Source(asked, text or "")))
    pending.add_done_callback(lambda _: guest.wake())
    return pending


async def _added(guest: Guest, source: Source) -> int:
    return guest.grammars.add(await guest.model.constraints.compile(source))


def _matcher(guest: Guest, grammar: int) -> int:
    guest.matchers.check_room()
    return guest.matchers.add(guest.grammars.find(grammar).matcher())


def _accept(guest: Guest, matcher: int, tokens: list[int]) -> State:
    guest.matchers.find(matcher).accept(tokens)
    return _state(guest, matcher)


def _rollback(guest: Guest, matcher: int, count: int) -> State:
    guest.matchers.find(matcher).rollback(count)
    return _state(guest, matcher)


def _state(guest: Guest, matcher: int) -> State:
    found = guest.matchers.find(matcher)
    return found.accepting, found.finished, found.forced()


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
